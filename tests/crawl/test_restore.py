"""trawl restore: what it puts back, what it refuses, and that the old crawl is never lost."""

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crawl.snapshot import sealed
from tests.crawl.installation import NO_SERVER, SERVER, Installation, checksums, database
from tests.crawl.running import LOCAL
from tests.rig import ROOT, wait_until
from tests.site import Site


@pytest.fixture
def snapshot(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "snapshot")


def change_manifest(snapshot: Path, **changes: Any) -> None:
    manifest = snapshot / "manifest.json"
    told = json.loads(manifest.read_text())
    del told["xxh3_128"]
    manifest.write_text(sealed(told | changes))


def test_the_command_that_goes_on_is_told_and_a_finished_crawl_is_finished(finished: Path, two: Installation) -> None:
    restored = two.run("restore", str(finished))
    assert f"--data {two.data} crawl --name site" in restored.out
    ran = two.run("crawl", "--name", "site", *LOCAL)
    assert ran.code == 0
    assert "is finished: 3 pages" in ran.err


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (flip, "database/main.sqlite3"),
        (cut, "database/inbox.sqlite3"),
        (Path.unlink, "database/main.sqlite3"),
        (flip, "warc/1/*.gz"),
        (Path.unlink, "warc/1/*.gz"),
        (cut, "seen/url*.run"),
        (flip, "manifest.json"),
        (cut, "manifest.json"),
    ],
)
def test_a_damaged_snapshot_is_refused_and_the_file_named(
    snapshot: Path, two: Installation, damage: Any, file: str
) -> None:
    damaged = next(snapshot.glob(file))
    damage(damaged)
    ran = two.run("restore", str(snapshot))
    assert ran.code == 1
    assert f"the snapshot is damaged: {damaged}" in ran.err
    assert not two.data.exists() or {path.name for path in two.data.iterdir()} == {"crawl.lock"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": 2, "unheard_of": 1}, "newer than this one"),
        ({"migrations": ["crawl.0001_initial", "crawl.9999_future"]}, "crawl.9999_future"),
        ({"database": "postgresql"}, "was taken from PostgreSQL and goes back into no other database"),
    ],
)
def test_a_snapshot_that_this_trawl_cannot_read_is_refused(
    snapshot: Path, two: Installation, changes: dict[str, Any], sentence: str
) -> None:
    change_manifest(snapshot, **changes)
    ran = two.run("restore", str(snapshot))
    assert ran.code == 1
    assert sentence in ran.err


@pytest.mark.parametrize("there", ["nothing", "a file"])
def test_what_is_no_snapshot_is_said_to_be_none(two: Installation, tmp_path: Path, there: str) -> None:
    target = tmp_path / "target"
    if there == "a file":
        target.write_text("x")
    ran = two.run("restore", str(target))
    assert ran.code == 1
    assert "holds no snapshot" in ran.err


def test_a_snapshot_of_an_older_trawl_is_restored_and_brought_up_to_date(
    pair: tuple[Installation, Installation], tmp_path: Path
) -> None:
    one, two = pair
    assert one.run("migrate").code == 0
    if not one.database_url:
        assert one.run("migrate", "--database", "inbox").code == 0
    assert one.run("migrate", "django_celery_beat", "0018").code == 0
    latest = "SELECT max(name) FROM django_migrations WHERE app = 'django_celery_beat'"
    assert one.run("snapshot", str(tmp_path / "old")).code == 0
    assert one.rows(latest)[0][0].startswith("0018")  # it was not touched
    ran = two.run("restore", str(tmp_path / "old"))
    assert ran.code == 0, ran.err
    assert two.rows(latest)[0][0] > "0019"


def test_a_crawl_that_is_there_gives_way_only_when_told_and_is_kept(finished: Path, one: Installation) -> None:
    with closing(sqlite3.connect(one.data / "trawl.sqlite3")) as changed, changed:
        changed.execute("UPDATE crawl_campaign SET name = 'changed'")
    refused = one.run("restore", str(finished))
    assert refused.code == 1
    assert "--replace" in refused.err
    assert one.rows("SELECT name FROM crawl_campaign") == [("changed",)]
    ran = one.run("restore", str(finished), "--replace")
    assert ran.code == 0, ran.err
    assert one.rows("SELECT name FROM crawl_campaign") == [("site",)]
    (aside,) = one.data.glob("replaced-*")
    assert str(aside) in ran.out
    with closing(sqlite3.connect(aside / "trawl.sqlite3")) as old:
        assert old.execute("SELECT name FROM crawl_campaign").fetchall() == [("changed",)]
    assert {path.name for path in aside.iterdir()} >= {"trawl.sqlite3", "trawl-inbox.sqlite3", "seen", "warc"}
    assert not (one.data / "restoring").exists()


def test_on_postgresql_what_gives_way_is_kept_in_a_schema(tmp_path: Path) -> None:
    if not SERVER:
        pytest.skip(NO_SERVER)
    with database("aside") as url:
        one = Installation(tmp_path / "one", url)
        assert one.run("migrate").code == 0
        assert one.python("from crawl.models import Campaign; Campaign.objects.create(name='old')").returncode == 0
        assert (
            one.python(
                "from crawl.models import Worker as W; W.objects.create(name='a-1', seen_at=0, capacity=1).delete()"
            ).returncode
            == 0
        )
        assert one.run("snapshot", str(tmp_path / "first")).code == 0
        assert one.python("from crawl.models import Campaign; Campaign.objects.create(name='new')").returncode == 0
        refused = one.run("restore", str(tmp_path / "first"))
        assert refused.code == 1
        assert "--replace" in refused.err
        ran = one.run("restore", str(tmp_path / "first"), "--replace")
        assert ran.code == 0, ran.err
        assert one.rows("SELECT name FROM crawl_campaign") == [("old",)]
        schema = ran.out.partition("the schema ")[2].split()[0]
        assert len(one.rows(f"SELECT name FROM {schema}.crawl_campaign")) == 2
        # Numbers go on behind what was given out, also where its row is gone.
        added = one.python(
            "from crawl.models import Campaign, Worker\n"
            "print(Campaign.objects.create(name='next').pk)\n"
            "print(Worker.objects.create(name='b-1', seen_at=0, capacity=1).pk)"
        )
        assert added.stdout == "2\n2\n", added.stderr


@pytest.mark.parametrize("call", [1, 4, 5, 8])
def test_when_putting_into_place_fails_everything_is_as_it_was(finished: Path, one: Installation, call: int) -> None:
    before = checksums(one.data)
    ran = one.python(
        "import crawl.restore, itertools, trawl_project.cli\n"
        "calls, rename = itertools.count(1), crawl.restore._rename\n"
        "def failing(*args):\n"
        f"    if next(calls) == {call}: raise OSError(5, 'Input/output error', 'disk')\n"
        "    rename(*args)\n"
        "crawl.restore._rename = failing\n"
        f"print(trawl_project.cli.run(['restore', {str(finished)!r}, '--replace']))"
    )
    assert ran.stdout == "1\n", ran.stderr
    assert "Input/output error" in ran.stderr
    after = checksums(one.data)
    for name in before.keys() - {"crawl.lock"}:
        assert after[name] == before[name]
    assert not list(one.data.glob("re*"))  # neither restoring nor replaced


def test_nothing_is_restored_where_a_crawl_runs_but_at_once_where_one_was_killed(
    web: Site, finished: Path, tmp_path: Path
) -> None:
    three = Installation(tmp_path / "three")
    crawl = subprocess.Popen(three.crawl(f"{web.url}0.html"), cwd=ROOT, env=three.environment)
    try:
        wait_until(lambda: len(web.log) > 20)
        ran = three.run("restore", str(finished), "--replace")
        assert ran.code == 1
        assert f"another crawl (pid {crawl.pid}) uses {three.data}" in ran.err
    finally:
        crawl.kill()
        crawl.wait()
    assert three.run("restore", str(finished), "--replace").code == 0


def test_a_worker_elsewhere_that_lives_is_not_robbed_of_its_database(finished: Path, one: Installation) -> None:
    one.python(
        "from crawl.models import Worker; from frontier.politeness import now_ms\n"
        "Worker.objects.create(name='elsewhere-7', seen_at=now_ms() + 60_000, capacity=1)"
    )
    ran = one.run("restore", str(finished), "--replace")
    assert ran.code == 1
    assert "a worker crawls here (elsewhere-7)" in ran.err


def test_a_database_that_cannot_be_read_can_be_replaced(finished: Path, one: Installation) -> None:
    (one.data / "trawl.sqlite3").write_bytes(b"no database at all" * 1000)
    assert one.run("restore", str(finished), "--replace").code == 0
    assert len(one.pages()) == 3


@pytest.mark.parametrize("index", ["kept", "lost"])
def test_after_a_restore_what_was_known_is_known(
    one: Installation, two: Installation, tmp_path: Path, index: str
) -> None:
    if index == "lost":
        shutil.rmtree(one.data / "seen")
    taken = one.run("snapshot", str(tmp_path / "taken"))
    assert ("the seen index is not on this machine" in taken.out) == (index == "lost")
    assert two.run("restore", str(tmp_path / "taken")).code == 0
    merged = two.python(
        "from frontier.admission import Link, admit\n"
        "from frontier.merge import merge\n"
        "from frontier.models import Host\n"
        "from frontier.urls import canonicalise\n"
        "host = Host.objects.get().name\n"
        "admit(1, [Link(canonicalise(f'http://{host}/{n}.html'), 5, 1) for n in ('a', 'b', 'new')])\n"
        "print(merge().new_urls)"
    )
    assert merged.stdout == "1\n", merged.stderr
    assert ("rebuilding it from the database" in merged.stderr) == (index == "lost")
