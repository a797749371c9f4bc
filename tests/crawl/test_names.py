"""Crawls with a name server of their own."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crawl.running import LOCAL, command, crawl, environment
from tests.dnsserver import Says, name_server
from tests.rig import ROOT, wait_until
from tests.scripted import page, scripted

HERE = Says(("127.0.0.1",))


def names(server: str) -> dict[str, str]:
    return {"TRAWL_NAME_SERVERS": server, "TRAWL_CONTACT": "a@b.example"}


@contextmanager
def running(data: Path, *words: str, server: str) -> Iterator["subprocess.Popen[str]"]:
    """A crawl that is under way; it is killed if it has not ended by the end of the block."""
    settings = environment() | names(server)
    process = subprocess.Popen(
        command(data, *words, *LOCAL),
        cwd=ROOT,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_names_are_looked_up_at_the_name_server_that_is_set(tmp_path: Path) -> None:
    with scripted({"/": page("/a")}) as site, name_server({"one.example": HERE}) as server:
        url = f"http://one.example:{site.port}/"
        done = crawl(tmp_path, url, *LOCAL, settings=names(server.address))
    assert done.told["pages"] == 1
    assert server.asked == {"one.example": 1}
    assert done.told["dns"]["asked"] == 1
    assert done.told["dns"]["cached"] >= 1


def test_names_that_nobody_answers_for_leave_the_others_alone(tmp_path: Path) -> None:
    dead = {f"dead{number}.example": Says(silent=True) for number in range(40)}
    with scripted({"/": page("/a"), "/a": page()}) as site, name_server({"one.example": HERE} | dead) as server:
        urls = [f"http://{name}:{site.port}/" for name in [*dead, "one.example"]]
        with running(tmp_path, *urls, server=server.address) as process:
            wait_until(lambda: len(site.paths()) == 2)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=8)  # a look-up may take 10 seconds
    told = json.loads(out)
    assert told["errors"] == [], "the pages came before the first look-up was given up"
    assert told["dns"]["asked"] == 41
    assert told["waiting_urls"] == 40
    assert "Traceback" not in err


def test_without_a_name_server_nothing_is_given_up_and_the_reason_is_told(tmp_path: Path) -> None:
    with running(tmp_path, "http://one.example/", server="127.0.0.1:1") as process:
        assert process.stderr
        line = next(line for line in process.stderr if "no name server answers" in line)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert "waits for one.example" in line
    assert "Traceback" not in err
    told = json.loads(out)
    assert told["errors"] == []
    assert told["dns"]["unanswered"] == 1
    assert told["waiting_urls"] == 1
    assert told["unreachable_hosts"] == 0
    assert "no name server answers (127.0.0.1:1)" in (tmp_path / "crawl.log").read_text()
