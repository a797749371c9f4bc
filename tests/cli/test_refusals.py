"""What the trawl command refuses before a command runs, in one line: settings and databases that are no good."""

import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from crawl.renames import Renames
from tests.crawl.installation import Installation
from tests.rig import ROOT, free_port

SUPPORTED = "; use sqlite:///PATH or postgres://user@host:port/name\n"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nonsense", "it is not a URL"),
        ("mysql://x", "trawl does not use mysql"),
        ("postgres://", "it names no database"),
        ("postgres://u@host:5432", "it names no database"),
        ("postgres://u:se/cret@host/name", "it cannot be read"),
        ("sqlite:///", "it names no database"),
        ("sqlite://relative.sqlite3", "it cannot be read"),
    ],
)
def test_a_malformed_database_url_is_told_in_one_line(tmp_path: Path, url: str, reason: str) -> None:
    ran = Installation(tmp_path / "data", url).run("block", "list")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"trawl: DATABASE_URL: {reason}{SUPPORTED}"


@pytest.mark.parametrize(
    ("variable", "value", "least"),
    [
        ("TRAWL_FETCH_QUEUES", 0, 1),
        ("TRAWL_VISITS_PER_WORKER", 0, 1),
        ("TRAWL_VISITS_PER_WORKER", -5, 1),
        ("TRAWL_LEASE_SECONDS", 0, 10),
    ],
)
def test_a_number_with_which_nothing_would_run_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: int, least: int
) -> None:
    one = Installation(tmp_path / "data")
    monkeypatch.setattr(Installation, "environment", {**one.environment, variable: str(value)})
    ran = one.run("block", "list")
    assert ran.code == 2
    assert ran.err == f"trawl: {variable}: it must be at least {least}, not {value}\n"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("TRAWL_LEASE_SECONDS", "abc", "TRAWL_LEASE_SECONDS: 'abc' is not a whole number"),
        ("TRAWL_FETCH_QUEUES", "", "TRAWL_FETCH_QUEUES: '' is not a whole number"),
        ("TRAWL_LOG_LEVEL", "foo", "TRAWL_LOG_LEVEL: 'FOO' is none of DEBUG, INFO, WARNING, ERROR, CRITICAL"),
    ],
)
def test_a_setting_that_makes_no_sense_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    one = Installation(tmp_path / "data")
    monkeypatch.setattr(Installation, "environment", {**one.environment, variable: value})
    ran = one.run("block", "list")
    assert (ran.code, ran.out, ran.err) == (2, "", f"trawl: {told}; docs/settings.md lists the settings\n")


def test_a_list_that_makes_no_sense_is_told_in_one_line_and_with_the_same_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Installation(tmp_path / "data")
    monkeypatch.setattr(Installation, "environment", {**one.environment, "TRAWL_RESOLVE": "=127.0.0.1"})
    ran = one.run("fetch", "http://127.0.0.1/")
    assert ran.code == 2
    assert ran.err == (
        "trawl: wrong setting in the environment: TRAWL_RESOLVE: '=127.0.0.1' is not of the form NAME=ADDRESS, for"
        " example *.test=127.0.0.1; docs/settings.md lists them\n"
    )


def test_a_terminal_that_takes_nothing_more_is_told(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            Installation(tmp_path / "data").command("url", "http://a.test/"),
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "trawl: No space left on device; free some space, for the data directory or where the output goes\n"
    )


@pytest.mark.parametrize("contact", ["foo", " ", "x@", "@y", "a b@c", "https://", "me@garden..test", "ftp://a.test/"])
def test_a_contact_that_nobody_can_write_to_is_refused(tmp_path: Path, contact: str) -> None:
    ran = Installation(tmp_path / "data").run("crawl", "http://garden.invalid/", "--contact", contact)
    assert ran.code == 2
    assert ran.err.endswith(
        f"trawl: the contact '{contact}' is neither a mail address (me@example.org) nor a page"
        " (https://example.org/bot)\n"
    )


@pytest.mark.parametrize("url", ["", " "])
@pytest.mark.parametrize("folder", ["data", "with?question #mark%41"])
def test_an_empty_database_url_is_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, folder: str
) -> None:
    one = Installation(tmp_path / folder)
    monkeypatch.setattr(Installation, "environment", {**one.environment, "DATABASE_URL": url})
    assert one.run("migrate").code == 0
    assert (one.data / "trawl.sqlite3").stat().st_size


@pytest.mark.parametrize("words", [("snapshot", "taken"), ("block", "list")])
def test_a_postgresql_that_is_not_there_is_told_at_once(tmp_path: Path, words: tuple[str, ...]) -> None:
    port = free_port()
    since = time.monotonic()
    ran = Installation(tmp_path / "data", f"postgres://u@127.0.0.1:{port}/name").run(*words)
    assert ran.code == 1
    assert ran.err.startswith(f"trawl: cannot use PostgreSQL at 127.0.0.1:{port}/name (")
    assert ran.err.count("\n") == 1
    assert time.monotonic() - since < 20  # the pool would try for 30 s


@pytest.mark.parametrize("words", [("snapshot", "taken"), ("block", "list")])
@pytest.mark.parametrize("file", ["trawl.sqlite3", "trawl-inbox.sqlite3"])
def test_a_damaged_database_is_called_by_its_name(tmp_path: Path, words: tuple[str, ...], file: str) -> None:
    one = Installation(tmp_path / "data")
    assert one.run("migrate").code == 0
    assert one.run("migrate", "--database", "inbox").code == 0
    with open(one.data / file, "r+b") as damaged:
        damaged.truncate(5000)
    ran = one.run(*words)
    assert ran.code == 1
    assert ran.err.startswith(f"trawl: database {one.data / file}: database disk image is malformed")


@pytest.mark.parametrize("word", ["snapshot", "restore"])
def test_an_empty_name_is_not_the_current_folder(tmp_path: Path, word: str) -> None:
    ran = Installation(tmp_path / "data").run(word, "")
    assert ran.code == 2
    assert "the name of the directory is empty" in ran.err


@pytest.mark.parametrize("module", ["zz", "zz.settings", "trawl_project.zz"])
def test_an_unknown_settings_module_is_refused(tmp_path: Path, module: str) -> None:
    ran = Installation(tmp_path / "data").run("block", "list", "--settings", module)
    assert (ran.code, ran.err) == (2, f"trawl: there is no settings module {module!r}\n")


def test_a_settings_module_that_is_named_is_used(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from trawl_project.settings import *\nLEASE_SECONDS = 7")
    read = "from django.conf import settings; print(settings.LEASE_SECONDS)"
    options = ("--settings=mine", "--pythonpath", str(tmp_path))
    ran = Installation(tmp_path / "data").run("shell", "--no-imports", "-c", read, *options)
    assert (ran.code, ran.out) == (0, "7\n")


@pytest.mark.parametrize("what", ["worker", "beat"])
def test_celery_does_not_open_a_directory_in_which_a_restore_was_cut_short(tmp_path: Path, what: str) -> None:
    one = Installation(tmp_path / "data")
    assert one.run("migrate").code == 0
    renames = Renames("/snapshot", True, "replaced-1", ["."], "restoring")
    (one.data / "unfinished-restore.json").write_text(json.dumps(asdict(renames)))
    environment = one.environment | {"TRAWL_DATA": str(one.data)}
    words = [sys.executable, "-m", "celery", "-A", "trawl", what]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "a restore was cut short" in done.stderr
    assert "restore /snapshot --replace" in done.stderr
    assert "Traceback" not in done.stderr
