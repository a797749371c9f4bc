"""trawl url without a campaign: forms of URLs, for people and for pipes, and nothing that makes it fall over."""

import contextlib
import io
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from trawl_project import cli

ROOT = Path(__file__).resolve().parent.parent.parent


def environment(data: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAWL_", "DJANGO_"))}
    return {**kept, "TRAWL_DATA": str(data / "data"), "PYTHONPATH": str(ROOT), **more}


def run(data: Path, *words: str | bytes, stdin: bytes = b"", **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "trawl_project", *words],
        input=stdin,
        cwd=data,
        env=environment(data, **more),
        capture_output=True,
        timeout=60,
        check=False,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    assert "internal error" not in err, err
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def call(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """run() in this process, which takes 3 ms and not 0.8 s; for commands that need no data directory.

    The database of this process is none of theirs.
    """
    source, out, err = (io.TextIOWrapper(io.BytesIO(data), write_through=True) for data in (stdin, b"", b""))
    with (
        patch.dict(os.environ),
        patch("crawl.management.commands.fetch.has_database", return_value=False),
        patch.object(sys, "stdin", source),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = cli.run(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
    texts = [stream.detach().getvalue().decode() for stream in (out, err)]
    assert "internal error" not in texts[1], texts[1]
    return subprocess.CompletedProcess(words, code, *texts)


def records(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_forms_of_a_url_are_shown_below_each_other(tmp_path: Path) -> None:
    done = run(tmp_path, "url", "HTTP://u:p@Example.COM:80/a/../b?b=1&a=2#x")
    assert done.stdout.splitlines()[1:] == [
        "canonical  http://example.com/b?a=2&b=1",
        "fetch      http://example.com/b?b=1&a=2",
        "host       example.com",
    ]
    assert done.returncode == 0
    assert done.stderr == ""


def test_without_a_campaign_no_data_directory_is_made(tmp_path: Path) -> None:
    run(tmp_path, "url", "http://a.test/", "-", stdin=b"http://b.test/\n")
    done = run(tmp_path, "url", "http://a.test/", "--campaign", "none")
    assert list(tmp_path.iterdir()) == []
    assert done.returncode == 2
    assert "there is no campaign 'none'" in done.stderr
    assert "start it with: trawl crawl URL" in done.stderr


def test_it_runs_by_the_script_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "trawl", "url", "http://A.test"], env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert "canonical  http://a.test/\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "canonical"),
    [
        (["../x?b=1&a=2", "--base", "http://a.test/one/two/"], "http://a.test/one/x?a=2&b=1"),
        (["http://a.test/x;jsessionid=1?utm_source=y&a=1"], "http://a.test/x;jsessionid=1?a=1&utm_source=y"),
        (["http://a.test/x;jsessionid=1?utm_source=y&a=1", "--rules", "session_ids, tracking"], "http://a.test/x?a=1"),
        (["http://[::1]:8080/"], "http://[::1]:8080/"),
        (["http://bücher.test:8080/"], "http://xn--bcher-kva.test:8080/"),
    ],
)
def test_bases_and_site_rules_are_applied(words: list[str], canonical: str) -> None:
    (record,) = records(call("url", "--json", *words))
    assert record["canonical"] == canonical
    assert "key" not in record


def test_each_line_is_answered_by_a_line_in_order_whatever_it_holds() -> None:
    lines = [
        b"http://a.test/1?b=&a=",
        b"",
        b"http://:::cnn.com/x",
        b"http://a.test/\xff\xfe",
        b"http://a.test/\0x",
        b"http://a.test/" + b"x" * 200_000,
        b"http://a.test/\tq\r",
        "http://a.test/é".encode(),
        b"http://a.test/last",  # without a line end
    ]
    done = call("url", "-", stdin=b"\n".join(lines))
    assert done.returncode == 1
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [
        ["http://a.test/1?a=&b=", "http://a.test/1?b=&a="],
        ["invalid", "it is empty"],
        ["invalid", "no host"],
        ["invalid", "it contains a lone surrogate, which no encoding can carry"],
        ["invalid", "it contains a NUL character"],
        ["invalid", "the line is longer than 65,536 bytes"],
        ["http://a.test/q", "http://a.test/q"],
        ["http://a.test/%C3%A9", "http://a.test/%C3%A9"],
        ["http://a.test/last", "http://a.test/last"],
    ]


def test_a_line_may_be_cut_into_any_pieces_on_its_way() -> None:
    lines = b"".join(b"http://a.test/%d/%s\n" % (n, b"y" * (n % 3000)) for n in range(300))
    done = call("url", "-", stdin=lines)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == lines.decode().splitlines()


def test_json_has_one_object_a_line_and_says_why_a_url_is_none(tmp_path: Path) -> None:
    done = run(tmp_path, "url", "http://a.test/", b"http://a.test/\xff", "ftp://a.test/", "--json")
    good, surrogate, scheme = records(done)
    url = "http://a.test/"
    assert good == {"url": url, "canonical": url, "fetch": url, "host": "a.test"}
    assert "lone surrogate" in surrogate["error"]
    assert "not http" in scheme["error"]
    assert done.returncode == 1


def test_a_line_is_answered_before_the_next_one_is_sent(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trawl_project", "url", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(tmp_path),
        cwd=tmp_path,
    ) as process:
        assert process.stdin
        assert process.stdout
        for number in range(3):
            process.stdin.write(b"http://a.test/%d\n" % number)
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 30)[0]
            assert process.stdout.readline().startswith(b"http://a.test/%d\t" % number)
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    command = f"yes http://a.test/ | {sys.executable} -m trawl_project url - | head -n 1"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("http://a.test/\t")
    assert done.stderr == ""


def test_what_could_steer_a_terminal_is_escaped() -> None:
    done = call("url", "\x1b]0;evil\x07http://[", "http://a.test/\u202e")
    assert "\x1b" not in done.stdout
    assert "\\x1b]0;evil" in done.stdout
    assert "\u202e" not in done.stdout


def test_a_terminal_gets_colour_and_the_whole_of_a_long_url(tmp_path: Path) -> None:
    url = "http://a.test/" + "x" * 500
    master, slave = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "trawl_project", "url", url],
        stdout=slave,
        stdin=subprocess.DEVNULL,
        env=environment(tmp_path, TERM="xterm-256color", COLUMNS="40"),
        cwd=tmp_path,
    ) as process:
        process.wait(30)
    os.close(slave)
    seen = b""
    deadline = time.monotonic() + 5
    while b"host" not in seen and time.monotonic() < deadline:
        seen += os.read(master, 65536)
    os.close(master)
    assert b"\x1b[" in seen
    assert url.encode() + b"\r\n" in seen


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["x", "--rules", "nonsense"], "the known rules are session_ids"),
        (["x", "--base", "nonsense"], "--base is not usable"),
        (["-", "-"], "only once"),
        ([], "URL"),
    ],
)
def test_wrong_usage_is_told_in_a_line_with_exit_code_2(words: list[str], says: str) -> None:
    done = call("url", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""


def test_a_closed_standard_input_is_told(tmp_path: Path) -> None:
    command = f"{sys.executable} -m trawl_project url - <&-"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "standard input is closed" in done.stderr
