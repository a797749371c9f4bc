"""trawl snapshot, with real crawls in processes of their own; what restore does: test_restore.py.

What threads and merges do meanwhile: tests/frontier/test_snapshots.py. The tests on PostgreSQL need
TRAWL_TEST_DATABASE_URL, a server on which databases may be made.
"""

import hashlib
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.crawl.conftest import PAGES
from tests.crawl.installation import Installation, checksums
from tests.crawl.running import LOCAL
from tests.rig import ROOT, wait_until
from tests.site import Site


def test_a_crawl_goes_on_elsewhere_from_a_snapshot_that_was_taken_while_it_ran(
    pair: tuple[Installation, Installation], web: Site, tmp_path: Path
) -> None:
    one, two = pair
    snapshot = tmp_path / "snapshot"
    crawl = subprocess.Popen(
        one.crawl(f"{web.url}0.html"), cwd=ROOT, env=one.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_until(lambda: len(web.log) > PAGES // 4)
    taken = one.run("snapshot", str(snapshot))
    assert taken.code == 0, taken.err
    _, told = crawl.communicate(timeout=120)
    assert crawl.returncode == 0, told
    assert sorted(one.pages()) == sorted(f"/{number}.html" for number in range(PAGES))  # it went on unharmed
    before = checksums(snapshot)

    restored = two.run("restore", str(snapshot))
    assert restored.code == 0, restored.err
    assert "1 campaign, " in restored.out
    had = set(two.pages())
    assert 0 < len(had) < PAGES
    assert two.unreadable() == 0

    web.log.clear()
    ran = subprocess.run(
        two.command("crawl", "--name", "site", *LOCAL, "--json"),
        cwd=ROOT,
        env=two.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert Counter(two.pages()) == Counter(f"/{number}.html" for number in range(PAGES))
    asked = Counter(path for path in web.paths() if path != "/robots.txt")
    assert set(asked) == {f"/{number}.html" for number in range(PAGES)} - had
    assert set(asked.values()) == {1}
    assert two.unreadable() == 0
    assert checksums(snapshot) == before
    if not one.database_url:
        files = {path.name for path in (snapshot / "database").iterdir()}
        assert files == {"main.sqlite3", "inbox.sqlite3"}


def test_finished_warc_files_and_run_files_are_links_and_need_no_room(one: Installation, tmp_path: Path) -> None:
    assert one.run("snapshot", str(tmp_path / "linked")).code == 0
    linked = [*(tmp_path / "linked").rglob("*.warc.gz"), *(tmp_path / "linked").rglob("*.run")]
    assert {path.suffix for path in linked} == {".gz", ".run"}
    for path in linked:
        (original,) = one.data.rglob(path.name)
        assert path.samefile(original)


def test_without_warc_files_their_rows_say_where_they_are_and_replacing_takes_them_along(
    one: Installation, two: Installation, tmp_path: Path
) -> None:
    light = tmp_path / "light"
    taken = one.run("snapshot", str(light), "--no-warc")
    assert "WARC files left out: 1" in taken.out
    assert not (light / "warc").exists()
    assert two.run("restore", str(light)).code == 0
    assert two.rows("SELECT directory FROM crawl_warcfile") == [(str(one.data / "warc" / "1"),)]
    assert two.unreadable() == 0
    assert one.run("restore", str(light), "--replace").code == 0
    assert one.unreadable() == 0


@pytest.mark.parametrize("file", ["manifest.json", "note.txt"])
def test_a_snapshot_needs_an_empty_directory(one: Installation, tmp_path: Path, file: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / file).write_text("mine")
    ran = one.run("snapshot", str(target))
    assert ran.code == 1
    assert "is not empty" in ran.err
    assert checksums(target) == {file: hashlib.sha256(b"mine").hexdigest()}


def test_where_there_is_no_crawl_there_is_no_snapshot_and_no_database_is_made(
    two: Installation, tmp_path: Path
) -> None:
    ran = two.run("snapshot", str(tmp_path / "nothing"))
    assert ran.code == 1
    assert "there is no crawl here" in ran.err
    assert not two.data.exists()
    assert not (tmp_path / "nothing").exists()


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(one: Installation, tmp_path: Path) -> None:
    ran = one.python(
        "import shutil, trawl_project.cli\n"
        "usage = shutil.disk_usage\n"
        "shutil.disk_usage = lambda path: usage(path)._replace(free=1000)\n"
        f"print(trawl_project.cli.run(['snapshot', {str(tmp_path / 'large')!r}]))"
    )
    assert ran.stdout == "1\n"
    assert "1.0 kB are free at" in ran.stderr
    assert not (tmp_path / "large").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_snapshot_that_is_cut_short_is_told_from_a_whole_one_or_gone(
    one: Installation, two: Installation, tmp_path: Path, number: int
) -> None:
    one.python(
        "import os, crawl.snapshot, trawl_project.cli\n"
        f"crawl.snapshot._finish = lambda *args: os.kill(os.getpid(), {int(number)})\n"
        f"trawl_project.cli.run(['snapshot', {str(tmp_path / 'cut')!r}])"
    )
    restored = two.run("restore", str(tmp_path / "cut"))
    assert restored.code == 1
    assert not (two.data / "trawl.sqlite3").exists()
    if number == signal.SIGINT:
        assert not (tmp_path / "cut").exists()
    else:
        assert "was not finished" in restored.err
        assert "was not finished" in one.run("snapshot", str(tmp_path / "cut")).err


def test_a_terminal_gets_bars(one: Installation, two: Installation, tmp_path: Path) -> None:
    for installation, word, bar in ((one, "snapshot", "database"), (two, "restore", "checking")):
        master, slave = os.openpty()
        subprocess.run(
            installation.command(word, str(tmp_path / "shown")),
            cwd=ROOT,
            env={**installation.environment, "TERM": "xterm", "COLUMNS": "100"},
            stdout=subprocess.PIPE,
            stderr=slave,
            check=True,
            timeout=60,
        )
        os.close(slave)
        shown = os.read(master, 65536).decode()
        os.close(master)
        assert bar in shown
