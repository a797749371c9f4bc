"""trawl block: add, remove, import, list, test, purge."""

import gzip
import io
import os
import pty
import random
import signal
import subprocess
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from frontier.blocking import block
from frontier.models import DomainBlock
from tests.cli.test_lookup_url import environment, run
from tests.frontier.world import Killed, World, die


@pytest.fixture
def using(sqlite: str) -> str:
    """The command works on the default database."""
    return sqlite


def told(*words: str) -> str:
    out = io.StringIO()
    call_command("block", *words, stdout=out, stderr=out)
    return out.getvalue()


def blocked_hosts(world: World) -> list[str]:
    return sorted(name for name, host in world.hosts().items() if host.blocked)


def domains() -> list[str]:
    return sorted(DomainBlock.objects.values_list("domain", flat=True))


def test_add_and_remove_mark_the_hosts_and_are_idempotent(frontier: World) -> None:
    frontier.add("https://www.a.test/", "https://nota.test/")
    assert told("add", "A.test", "*.b.test", "a.test") == "2 domains blocked\n"
    assert domains() == ["a.test", "b.test"]
    assert blocked_hosts(frontier) == ["www.a.test"]
    assert told("add", "a.test", "c.test") == "1 domain blocked, 1 blocked already\n"
    assert told("remove", "a.test", "x.test") == "1 block lifted, 1 were none\n"
    assert blocked_hosts(frontier) == []
    assert told("remove", "a.test") == "0 blocks lifted, 1 were none\n"


def test_add_gives_a_reason_and_an_end_also_to_what_is_blocked_already(frontier: World) -> None:
    told("add", "a.test", "b.test")
    assert told("add", "a.test", "--reason", "asked by mail", "--expires", "30d") == "0 domains blocked, 1 changed\n"
    row = DomainBlock.objects.get(domain="a.test")
    assert row.reason == "asked by mail"
    assert row.expires_at is not None
    assert timedelta(29) < row.expires_at - timezone.now() < timedelta(31)
    assert DomainBlock.objects.get(domain="b.test").expires_at is None


def test_remove_tells_what_stays_blocked_by_another(frontier: World) -> None:
    told("add", "a.test", "www.a.test")
    assert "www.a.test is still blocked, by a.test" in told("remove", "www.a.test")


def test_test_tells_by_what_why_and_until_when(frontier: World) -> None:
    told("add", "a.test", "--reason", "spam\x1b[2J", "--expires", "2999-01-31")
    assert told("test", "nota.test", "b.test") == "nota.test\tnot blocked\nb.test\tnot blocked\n"
    out = io.StringIO()
    with pytest.raises(SystemExit, match="1"):
        call_command("block", "test", "b.test", "x.a.test:8080", stdout=out)
    assert out.getvalue() == (
        "b.test\tnot blocked\nx.a.test\tblocked by a.test\tuntil 2999-01-31 00:00:00 UTC\tspam\\x1b[2J\n"
    )
    DomainBlock.objects.update(expires_at=timezone.now() - timedelta(1))
    assert told("test", "a.test") == "a.test\tnot blocked\n"


def test_list_shows_the_blocks_by_name(frontier: World, monkeypatch) -> None:
    monkeypatch.setattr("crawl.management.commands.block.CHUNK", 2)
    told("add", "b.test", "a.test", "www.a.example", "c.test", "d.test")
    assert [line.split("\t")[0] for line in told("list").splitlines()] == [
        *("a.test", "b.test", "c.test", "d.test", "www.a.example")
    ]
    assert told("list", "A.") == "a.test\tfor ever\nwww.a.example\tfor ever\n"
    assert told("list", "?.test").count("\n") == 4
    assert told("list", "*.example") == "www.a.example\tfor ever\n"
    assert told("list", "nothing") == ""


def test_import_adds_a_list_and_marks_hosts_and_a_second_run_adds_nothing(frontier, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("crawl.management.commands.block.CHUNK", 7)
    frontier.add("https://www.d3.example/", "https://d30.example/", "https://other.example/")
    text = "# a list\n" + "".join(f"0.0.0.0 d{n}.example d{n % 5}.example\n" for n in range(30)) + "0.0.0.0 localhost\n"
    (tmp_path / "list.gz").write_bytes(gzip.compress(text.encode()))
    words = ("import", str(tmp_path / "list.gz"), "--reason", "ads", "--expires", "1h")
    assert told(*words).splitlines()[0] == "32 lines: 30 domains added, 30 already there, 1 skipped, 0 bad"
    assert blocked_hosts(frontier) == ["www.d3.example"]
    assert set(DomainBlock.objects.values_list("reason", flat=True)) == {"ads"}
    before = list(DomainBlock.objects.order_by("id").values())
    assert told(*words).splitlines()[0] == "32 lines: 0 domains added, 60 already there, 1 skipped, 0 bad"
    assert list(DomainBlock.objects.order_by("id").values()) == before


def test_import_goes_on_after_a_kill(frontier: World, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("crawl.management.commands.block.CHUNK", 30)
    frontier.add("https://www.d3.example/")
    (tmp_path / "list").write_text("".join(f"d{n}.example\n" for n in range(100)))
    with monkeypatch.context() as broken:
        die(broken, sys.modules["crawl.management.commands.block"], "block", call=3)
        with pytest.raises(Killed):
            told("import", str(tmp_path / "list"))
    assert len(domains()) == 60
    assert blocked_hosts(frontier) == []
    assert "40 domains added, 60 already there" in told("import", str(tmp_path / "list"))
    assert blocked_hosts(frontier) == ["www.d3.example"]


def test_import_tells_bad_lines_by_number_and_what_it_skipped(frontier: World, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("ok.test\n@@||good.test^\na..b\nx y\n" + "<p>\n" * 30 + "ok.test\n" * 30)
    said = told("import", str(tmp_path / "list"))
    assert "64 lines: 1 domain added, 30 already there, 1 skipped, 32 bad" in said
    assert "skipped: 1 exceptions (@@), which are not supported" in said
    assert "line 3: 'a..b': host 'a..b' is not a valid name" in said
    assert "line 22: '<p>'" in said
    assert "line 23" not in said
    assert "and 12 more bad lines" in said


@pytest.mark.parametrize("name", ["missing", "folder", "a\0b", "cut.gz"])
def test_a_list_that_cannot_be_read_is_told_with_exit_code_2(frontier: World, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "cut.gz").write_bytes(gzip.compress(os.urandom(9000).hex().encode())[:-5])
    with pytest.raises(CommandError, match="cannot read") as caught:
        told("import", str(tmp_path / name))
    assert caught.value.returncode == 2


NO_LISTS = [
    b"<html>\n<h1>404 Not Found</h1>\n",
    b"".join(random.Random(n).randbytes(50) + b"\na\nx.test\n5\n" for n in range(3000)),
    "".join(f"d{n}.example\n" for n in range(3000)).encode("utf-16"),
]


@pytest.mark.parametrize("data", NO_LISTS, ids=["html", "binary", "utf-16"])
def test_what_is_no_list_is_refused_with_exit_code_1_and_nothing_is_stored(frontier, tmp_path, data: bytes) -> None:
    (tmp_path / "none").write_bytes(data)
    with pytest.raises(CommandError, match=r"none is no list: (?s:.)*nothing was stored; understood are") as caught:
        told("import", str(tmp_path / "none"))
    assert caught.value.returncode == 1
    assert all(line.isprintable() for line in str(caught.value).splitlines())
    assert domains() == []


def test_a_list_without_a_domain_is_told(frontier: World, tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("/banner/\n##.ad\na..b\n")
    with pytest.raises(CommandError, match="holds no domain") as caught:
        told("import", str(tmp_path / "rules"))
    assert caught.value.returncode == 1
    (tmp_path / "empty").write_text("# nothing today\n")
    assert "1 line: 0 domains added" in told("import", str(tmp_path / "empty"))


def test_ctrl_c_waits_for_the_transaction_and_tells_what_is_stored(frontier, monkeypatch, tmp_path: Path) -> None:
    module = sys.modules["crawl.management.commands.block"]
    monkeypatch.setattr(module, "CHUNK", 30)
    (tmp_path / "list").write_text("".join(f"d{n}.example\n" for n in range(100)))
    out, calls = io.StringIO(), count(1)

    def interrupted(*args: Any) -> Any:
        if next(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return block(*args)

    with monkeypatch.context() as broken:
        broken.setattr(module, "block", interrupted)
        with pytest.raises(KeyboardInterrupt):
            call_command("block", "import", str(tmp_path / "list"), stdout=out, stderr=out)
    assert out.getvalue() == "interrupted: 60 domains added, which stay blocked; the same command adds the rest\n"
    assert len(domains()) == 60
    assert "40 domains added, 60 already there" in told("import", str(tmp_path / "list"))


def test_a_second_ctrl_c_does_not_wait(frontier: World, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a.test\n")

    def stuck(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    monkeypatch.setattr("crawl.management.commands.block.block", stuck)
    with pytest.raises(KeyboardInterrupt):
        told("import", str(tmp_path / "list"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_add_tells_that_a_top_level_domain_covers_much(frontier: World) -> None:
    frontier.add("https://www.a.test/")
    assert told("add", "test", "a.example", "2001:db8::1") == (
        "3 domains blocked\ntest is a top-level domain: the block covers every host below .test\n"
    )
    assert blocked_hosts(frontier) == ["www.a.test"]


def test_purge_wants_a_yes_and_takes_what_waits(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://www.a.test/2", "https://b.test/3")
    told("add", "a.test", "b.test")
    with pytest.raises(CommandError, match="would delete 2 waiting URLs on 2 blocked hosts; say --yes") as caught:
        told("purge", "a.test")
    assert caught.value.returncode == 2
    assert len(frontier.urls()) == 3
    assert told("purge", "a.test", "--yes") == "2 URLs deleted\n"
    assert frontier.urls() == ["https://b.test/3"]
    assert told("purge", "--all", "--yes") == "1 URL deleted\n"
    assert told("purge", "--all", "--yes") == "nothing waits on 3 blocked hosts\n"


def test_purge_refuses_a_domain_that_is_not_blocked(frontier: World) -> None:
    frontier.add("https://a.test/1")
    with pytest.raises(CommandError, match=r"a\.test is not blocked"):
        told("purge", "a.test", "--yes")
    told("add", "a.test")
    DomainBlock.objects.update(expires_at=timezone.now() - timedelta(1))
    with pytest.raises(CommandError, match=r"a\.test is not blocked"):
        told("purge", "a.test", "--yes")


WRONG = [
    ("add",),
    ("add", "a b"),
    ("add", "https://a.test/"),
    ("add", "a.test", "--expires", "soon"),
    ("add", "a.test", "--expires", "2001-01-01"),
    ("add", "a.test", "--expires", "99999999999d"),
    ("add", "a.test", "--reason", "x" * 201),
    ("import", "list", "--format", "pdf"),
    ("purge",),
    ("purge", "a.test", "--all"),
    ("nonsense",),
    (),
]


@pytest.mark.parametrize("words", WRONG)
def test_wrong_words_change_nothing(frontier: World, words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        told(*words)
    assert domains() == []


def test_the_whole_command_with_its_exit_codes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    done = run(data, "block", "import", "-", stdin="0.0.0.0 a.test\nbücher.example\na..b\n".encode())
    assert (done.returncode, "2 domains added" in done.stdout, "line 3" in done.stderr) == (0, True, True)
    assert run(data, "block", "test", "www.a.test").returncode == 1
    assert run(data, "block", "test", "b.test").returncode == 0
    assert run(data, "block", "add", "a b").returncode == 2
    assert run(data, "block").returncode == 2
    assert "cannot read missing" in run(data, "block", "import", "missing").stderr


def test_purge_asks_on_a_terminal(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    run(data, "block", "add", "a.test")
    fill = (
        "from frontier.admission import *; from frontier.merge import merge; from frontier.urls import canonicalise;"
        "admit(1, [Link(canonicalise('https://a.test/'), 4, 1)]); print(merge())"
    )
    assert "new_urls=1" in run(data, "shell", "--no-imports", "-c", fill).stdout
    assert answered(data, "n") == (1, True)
    assert answered(data, "y") == (0, True)
    assert "nothing waits" in run(data, "block", "purge", "--all").stdout


def answered(data: Path, answer: str) -> tuple[int, Any]:
    """The exit code of a purge that was answered on a terminal, and whether it said what it would do."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "trawl_project", "block", "purge", "a.test"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(data),
        text=True,
    ) as process:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        _, said = process.communicate(timeout=60)
    os.close(ours)
    return process.returncode, "Delete 1 waiting URL on 1 blocked host?" in said and "cannot be undone" in said
