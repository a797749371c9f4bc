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


def test_on_postgresql_nothing_that_somebody_made_is_deleted(tmp_path: Path) -> None:
    if not SERVER:
        pytest.skip(NO_SERVER)
    made = {
        "frontier_domainblock": "from frontier.models import DomainBlock as M; M.objects.create(domain='keepme.test')",
        "auth_user": "from django.contrib.auth.models import User as M; M.objects.create(username='somebody')",
        "auth_group": "from django.contrib.auth.models import Group as M; M.objects.create(name='some')",
        "django_celery_beat_intervalschedule": (
            "from django_celery_beat.models import IntervalSchedule as M; M.objects.create(every=3, period='days')"
        ),
    }
    theirs = {"auth_group": "WHERE name = 'some'"}  # the others are the roles, which migrating makes
    with database("held") as url:
        one = Installation(tmp_path / "one", url)
        assert one.run("migrate").code == 0
        assert one.run("snapshot", str(tmp_path / "nothing")).code == 0
        # Tables that a migration has just made are missed by nobody.
        ran = one.run("restore", str(tmp_path / "nothing"))
        assert (ran.code, ran.err) == (0, "")
        assert "what was there before" not in ran.out
        shutil.rmtree(one.data)
        for table, code in made.items():
            assert one.python(code).returncode == 0
            refused = one.run("restore", str(tmp_path / "nothing"))
            assert refused.code == 1
            assert "has rows in " in refused.err
            assert "--replace" in refused.err
            assert len(one.rows(f"SELECT * FROM {table} {theirs.get(table, '')}")) == 1
            assert one.python(f"{code.partition(';')[0]}; M.objects.all().delete()").returncode == 0
        assert one.python("\n".join(made.values())).returncode == 0
        ran = one.run("restore", str(tmp_path / "nothing"), "--replace")
        assert ran.code == 0, ran.err
        schema = ran.out.partition("the schema ")[2].split()[0]
        for table in made:
            assert len(one.rows(f"SELECT * FROM {schema}.{table} {theirs.get(table, '')}")) == 1
            assert not one.rows(f"SELECT * FROM {table} {theirs.get(table, '')}")


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


def restore_until(one: Installation, snapshot: Path, call: int, then: str, *options: str) -> str:
    """Runs a restore up to a rename to or from its folders, with Python instead of that; returns what it printed."""
    arguments = ["restore", str(snapshot), *options]
    ran = one.python(
        "import itertools, os, pathlib, trawl_project.cli\n"
        "calls, rename = itertools.count(1), pathlib.Path.rename\n"
        "def cut_short(source, target):\n"
        "    if any(word in f'{source} {target}' for word in ('restoring/', 'replaced-')):\n"
        f"        if next(calls) == {call}: {then}\n"
        "    return rename(source, target)\n"
        "pathlib.Path.rename = cut_short\n"
        f"print(trawl_project.cli.run({arguments!r}))"
    )
    return ran.stdout + ran.stderr


# The finished crawl has four things to put aside and four to put into place.
RENAMES = 8


@pytest.mark.parametrize("call", [1, 4, 5, RENAMES])
def test_when_putting_into_place_fails_everything_is_as_it_was(finished: Path, one: Installation, call: int) -> None:
    before = checksums(one.data)
    told = restore_until(one, finished, call, "raise OSError(5, 'Input/output error', 'disk')", "--replace")
    assert told == "1\ntrawl: disk: Input/output error\n"
    after = checksums(one.data)
    for name in before.keys() - {"crawl.lock"}:
        assert after[name] == before[name]
    assert [path.name for path in one.data.glob("*re*")] == ["secret_key"]  # no restoring, replaced-, unfinished-


KILL = "os.kill(os.getpid(), 9)"


@pytest.mark.parametrize("call", range(1, RENAMES + 1))
def test_after_a_kill_between_the_renames_only_the_same_restore_goes_on(
    finished: Path, one: Installation, call: int
) -> None:
    restore_until(one, finished, call, KILL, "--replace")
    finishing = f"--data {one.data} restore {finished} --replace"
    before = checksums(one.data)
    commands: list[tuple[str, ...]] = [("crawl", "http://a.test/")]
    if call == 4:  # every command that opens the data, at one of these moments
        commands += [("migrate",), ("block", "list"), ("url", "http://a.test/", "--campaign", "site")]
        commands += [("snapshot", str(one.data / "taken"))]
    for words in commands:
        ran = one.run(*words)
        assert ran.code == 1
        assert "a restore was cut short" in ran.err
        assert finishing in ran.err
        for aside in one.data.glob("replaced-*"):
            assert str(aside) in ran.err
    assert checksums(one.data) == before
    ran = one.run("restore", str(finished), "--replace")
    assert ran.code == 0, ran.err
    assert "was cut short; what it had done is undone" in ran.out
    assert len(one.pages()) == 3
    assert one.unreadable() == 0
    (aside,) = one.data.glob("replaced-*")
    assert {path.name for path in aside.iterdir()} == {"trawl.sqlite3", "trawl-inbox.sqlite3", "seen", "warc"}
    assert not list(one.data.glob("*restor*"))


@pytest.mark.parametrize("call", [1, 4, 5, RENAMES])
def test_what_a_kill_left_is_undone_also_when_undoing_is_killed_and_the_snapshot_gone(
    snapshot: Path, one: Installation, call: int
) -> None:
    before = checksums(one.data)
    restore_until(one, snapshot, call, KILL, "--replace")
    shutil.rmtree(snapshot)
    for _ in range(call - 2):  # each undoes one rename of those that were made
        assert "undone" not in restore_until(one, snapshot, 2, KILL)
    ran = one.run("restore", str(snapshot))
    assert ran.code == 1
    assert "was cut short; what it had done is undone" in ran.out
    assert "holds no snapshot" in ran.err
    after = checksums(one.data)
    for name in before.keys() - {"crawl.lock"}:
        assert after[name] == before[name]
    assert not list(one.data.glob("re*"))
    assert one.run("block", "list").code == 0


def test_a_restore_that_was_killed_behind_its_last_rename_is_found_whole(finished: Path, one: Installation) -> None:
    one.python(
        "import os, crawl.renames, trawl_project.cli\n"
        f"crawl.renames._forget = lambda data: {KILL}\n"
        f"trawl_project.cli.run(['restore', {str(finished)!r}, '--replace'])"
    )
    assert "a restore was cut short" in one.run("block", "list").err
    ran = one.run("restore", str(finished), "--replace")
    assert (ran.code, ran.out) == (0, f"the restore of {finished} was cut short; it is whole\n")
    assert len(list(one.data.glob("replaced-*"))) == 1
    assert len(one.pages()) == 3


def test_undoing_overwrites_nothing_that_was_made_meanwhile(finished: Path, one: Installation) -> None:
    restore_until(one, finished, 5, KILL, "--replace")
    stranger = one.data / "trawl.sqlite3"
    stranger.write_text("made meanwhile")
    ran = one.run("restore", str(finished), "--replace")
    assert ran.code == 1
    assert f"{stranger}: the old one, " in ran.err
    assert stranger.read_text() == "made meanwhile"
    stranger.unlink()
    assert one.run("restore", str(finished), "--replace").code == 0


def test_folders_that_were_made_ready_are_no_obstacle_and_may_be_deleted(finished: Path, one: Installation) -> None:
    before = checksums(one.data)
    restore_until(one, finished, 2, KILL, "--replace")
    shutil.rmtree(one.data / "restoring")
    assert one.run("restore", str(finished)).code == 1  # undone, and then refused for want of --replace
    after = checksums(one.data)
    for name in before.keys() - {"crawl.lock"}:
        assert after[name] == before[name]


@pytest.mark.parametrize("is_committed", [False, True])
def test_on_postgresql_files_go_with_the_transaction(tmp_path: Path, is_committed: bool) -> None:
    if not SERVER:
        pytest.skip(NO_SERVER)
    with database("killed") as url:
        one = Installation(tmp_path / "one", url)
        assert one.run("migrate").code == 0
        assert one.run("block", "add", "first.test").code == 0
        assert one.run("snapshot", str(tmp_path / "first")).code == 0
        assert one.run("block", "add", "second.test").code == 0
        (one.data / "warc" / "1").mkdir(parents=True)
        (one.data / "warc" / "1" / "old").write_text("old")
        at = "_forget = lambda data:" if is_committed else "_sync = lambda data, renames:"
        one.python(
            "import os, crawl.renames, trawl_project.cli\n"
            f"crawl.renames.{at} {KILL}\n"
            f"trawl_project.cli.run(['restore', {str(tmp_path / 'first')!r}, '--replace'])"
        )
        assert not (one.data / "warc" / "1" / "old").exists()
        assert "a restore was cut short" in one.run("block", "list").err
        ran = one.run("restore", str(tmp_path / "first"))
        end = "it is whole" if is_committed else "what it had done is undone"
        assert f"was cut short; {end}" in ran.out
        assert ran.code == (0 if is_committed else 1)
        assert (one.data / "warc" / "1" / "old").exists() is not is_committed
        domains = [domain for (domain,) in one.rows("SELECT domain FROM frontier_domainblock ORDER BY 1")]
        assert domains == (["first.test"] if is_committed else ["first.test", "second.test"])


def test_commands_are_told_of_a_restore_that_is_under_way(finished: Path, one: Installation) -> None:
    ran = restore_until(one, finished, 3, "print(trawl_project.cli.run(['block', 'list']))", "--replace")
    assert f"a snapshot is being put back into {one.data} (pid " in ran


@pytest.mark.parametrize("left", ["trawl-inbox.sqlite3", "seen", "warc"])
@pytest.mark.parametrize("how", ["missing", "empty"])
def test_without_its_database_a_crawl_does_not_begin_anew(
    finished: Path, one: Installation, left: str, how: str
) -> None:
    for path in one.data.iterdir():
        if path.name != left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    main = one.data / "trawl.sqlite3"
    if how == "empty":
        main.touch()
    for words in (("crawl", "http://a.test/"), ("migrate",), ("snapshot", str(one.data / "taken"))):
        ran = one.run(*words)
        assert ran.code == 1
        assert f"{main} is {how}, but {one.data / left} is there: put it back" in ran.err
    assert (main.exists() and main.read_bytes()) == (b"" if how == "empty" else False)
    assert one.run("restore", str(finished), "--replace").code == 0
    assert len(one.pages()) == 3


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
