"""A merge that dies at any step: the next one makes up for it, nothing is lost and nothing comes twice."""

import os
from typing import NamedTuple

import pytest

from frontier import merge as merging
from frontier.models import Host, Queue, SeenRun
from frontier.seen import index, runs
from tests.frontier.world import Killed, World, die


class Death(NamedTuple):
    """Before or after which call a merge dies, and whether its transaction was committed by then."""

    owner: object
    name: str
    after: bool = False
    call: int = 1
    committed: bool = False


# A merge of new names and new URLs in the order of its steps.
DEATHS = {
    "before the first run file": Death(runs, "write"),
    "before the first run file is synced": Death(os, "fsync"),
    "before its directory is synced": Death(runs, "sync_directory"),
    "between the two run files": Death(runs, "write", call=2),
    "with both files prepared": Death(merging.Merger, "_store"),
    "in the transaction": Death(merging._Queues, "store"),
    "with hosts and queues stored": Death(merging._Queues, "store", after=True),
    "with URLs stored": Death(merging, "fill", after=True),
    "with the manifest stored": Death(index.SeenIndex, "record", after=True),
    "after the commit": Death(merging.Merger, "_store", after=True, committed=True),
    "before publishing": Death(index.SeenIndex, "publish", committed=True),
    "in the middle of publishing": Death(index.SeenIndex, "_load", committed=True),
    "before the inbox is emptied": Death(index.SeenIndex, "publish", after=True, committed=True),
    "at the very end": Death(merging.Merger, "_merge", after=True, committed=True),
}

FIRST = [f"https://h{i}.test/" for i in range(10)]
SECOND = [f"https://h{i}.test/{i}" for i in range(5, 20)]


@pytest.fixture(params=["the process goes on", "the process is gone"])
def process_is_gone(request, monkeypatch) -> bool:
    """A process that is killed cleans nothing up."""
    gone: bool = request.param == "the process is gone"
    if gone:
        monkeypatch.setattr(index.SeenIndex, "discard", lambda self, growths: None)
    return gone


@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS.keys())
def test_the_merge_after_a_crash_makes_up_for_it(frontier: World, process_is_gone, death: Death) -> None:
    frontier.add(*FIRST)
    frontier.admit(*SECOND)
    frontier.admit(*FIRST)
    with pytest.MonkeyPatch.context() as patch:
        die(patch, death.owner, death.name, after=death.after, call=death.call)
        with pytest.raises(Killed):
            frontier.merge()
    frontier.check()
    assert frontier.urls() == sorted(FIRST + SECOND if death.committed else FIRST)
    if process_is_gone:
        frontier.restart()
    frontier.admit(*SECOND, "https://h0.test/more")

    frontier.merge()

    assert frontier.urls() == sorted([*FIRST, *SECOND, "https://h0.test/more"])
    assert [one.url for one in frontier.waiting() if "h5." in one.url] == ["https://h5.test/", "https://h5.test/5"]
    assert frontier.inbox_rows() == 0
    assert frontier.files() == set(SeenRun.objects.using(frontier.using).values_list("file", flat=True))
    assert Host.objects.using(frontier.using).count() == Queue.objects.using(frontier.using).count() == 20
    frontier.check()
    frontier.check_nothing_is_stranded()
    frontier.restart()
    assert frontier.add(*FIRST, *SECOND).new_urls == 0


def test_dying_at_every_step_in_turn_loses_nothing(frontier: World, process_is_gone) -> None:
    admitted = []
    for number, death in enumerate(DEATHS.values()):
        urls = [f"https://h{number}.test/", f"https://h{number // 2}.test/{number}"]
        admitted += urls
        frontier.admit(*urls)
        with pytest.MonkeyPatch.context() as patch:
            die(patch, death.owner, death.name, after=death.after, call=death.call)
            with pytest.raises(Killed):
                frontier.merge()
        frontier.check()
        if process_is_gone:
            frontier.restart()
    frontier.merge()
    assert frontier.urls() == sorted(set(admitted))
    assert frontier.files() == set(SeenRun.objects.using(frontier.using).values_list("file", flat=True))
    frontier.check()


def test_files_of_dead_merges_are_swept(frontier: World) -> None:
    frontier.add("https://a.test/")
    for name in ("url-dead.run", "name-dead.run", "url-half.tmp"):
        (frontier.directory / name).write_bytes(b"half of a run")
    frontier.add("https://b.test/")
    assert frontier.files() == set(SeenRun.objects.using(frontier.using).values_list("file", flat=True))


def test_a_full_disk_stops_the_merge_and_loses_nothing(frontier: World, monkeypatch) -> None:
    frontier.add("https://a.test/")
    frontier.admit("https://b.test/")
    before = frontier.files()
    with pytest.MonkeyPatch.context() as patch:

        def no_space(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", no_space)
        with pytest.raises(OSError, match="No space left"):
            frontier.merge()
    assert frontier.files() == before
    assert frontier.merge().new_urls == 1
    assert frontier.urls() == ["https://a.test/", "https://b.test/"]


def test_the_merge_lock_is_free_after_a_crash(frontier: World) -> None:
    frontier.admit("https://a.test/")
    with pytest.MonkeyPatch.context() as patch:
        die(patch, merging, "fill")
        with pytest.raises(Killed):
            frontier.merge()
    assert merging.Merger(frontier.using).merge().new_urls == 1
