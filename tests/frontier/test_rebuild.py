"""The seen index is derived: whatever happens to its files, the database has all that was in them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from django.db import transaction

from frontier import merge as merging
from frontier.models import Queue, SeenRun
from frontier.rebuild import rebuild
from frontier.seen import runs
from frontier.seen.index import NAME, URL, SeenIndex
from tests.frontier.world import History, Killed, World, die

QUEUED = [f"https://h{i % 7}.test/{i}" for i in range(30)]
VISITED = [f"http://h{i % 7}.test/?visited={i}" for i in range(25)]


@pytest.fixture
def crawled(frontier: World) -> World:
    """A frontier with URLs that wait, in two campaigns, and URLs that were visited."""
    frontier.add(*VISITED)
    visited = [(visit.name, url) for visit in frontier.visit() for url in visit.urls]
    queues = dict(Queue.objects.using(frontier.using).values_list("host__name", "id"))
    with transaction.atomic(using=frontier.using):
        frontier.finish(url for _, url in visited)
    History.pages = [(queues[name], f"http://{name}{url.ref.removeprefix('http:')}") for name, url in visited]
    frontier.add(*QUEUED)
    frontier.add(*QUEUED[:10], campaign=2)
    assert len(History.pages) == len(VISITED)
    return frontier


def entries(frontier: World) -> dict[str, set[tuple[int, ...]]]:
    """All that the index of a new process has: keys, and names with their ids."""
    frontier.restart()
    index = merging.merger(frontier.using).index
    index.refresh()
    found: dict[str, set[tuple[int, ...]]] = {}
    for kind, columns in ((URL, 2), (NAME, 3)):
        listed: list[tuple[int, ...]] = []
        for run in index._runs[kind].values():
            listed += zip(*(column.tolist() for column in run.columns[:columns]), strict=True)
            assert (np.diff(run.high.astype(object)) >= 0).all()
        found[kind] = set(listed)
        assert len(listed) == len(found[kind]), "a key stands in the index twice"
    return found


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_the_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def cut_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(b"\xa5" * path.stat().st_size)


def put_another_run_there(path: Path) -> None:
    path.unlink()
    empty = np.empty(0, np.uint64)
    runs.write(path, 1, iter([runs.Run(np.array([1], np.uint64), np.array([1], np.uint64), empty)]), with_values=False)


DAMAGE = [remove, empty, cut_the_last_byte, cut_the_header, fill_with_garbage, put_another_run_there]


@pytest.mark.parametrize("kind", [URL, NAME])
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_run_is_rebuilt_exactly(crawled: World, caplog, kind: str, damage: Callable[[Path], None]) -> None:
    before = entries(crawled)
    damage(next(crawled.directory.glob(f"{kind}-*.run")))
    crawled.restart()
    assert crawled.add(*QUEUED, *VISITED).new_urls == 0
    assert "rebuilding it from the database" in caplog.text
    assert entries(crawled) == before
    assert crawled.files() == set(SeenRun.objects.using(crawled.using).values_list("file", flat=True))
    assert crawled.add(*QUEUED, *VISITED, campaign=2).new_urls == 20 + len(VISITED)
    crawled.check()


@pytest.mark.parametrize("loss", ["directory", "manifest", "one manifest row too many"])
def test_an_index_that_does_not_fit_the_database_is_rebuilt_exactly(crawled: World, loss: str) -> None:
    before = entries(crawled)
    manifest = SeenRun.objects.using(crawled.using)
    if loss == "directory":
        crawled.move_to("another")
    elif loss == "manifest":
        manifest.update(store="the directory of another machine")
    else:
        manifest.create(kind=URL, file="url-unknown.run", entries=5, store=manifest.all()[0].store)
    crawled.restart()
    assert crawled.add(*QUEUED, *VISITED).new_urls == 0
    assert entries(crawled) == before
    assert set(manifest.values_list("file", flat=True)) == crawled.files()
    crawled.check()


def test_two_data_directories_on_one_database_take_turns_and_stay_exact(crawled: World) -> None:
    for number in range(4):
        crawled.move_to(f"machine{number % 2}")
        assert crawled.add(f"https://h0.test/turn{number}", *QUEUED, *VISITED).new_urls == 1
    crawled.check()


def test_a_page_that_waits_to_be_visited_again_is_one_key(crawled: World) -> None:
    queue = Queue.objects.using(crawled.using).get(host__name="h0.test", campaign=1)
    History.pages = [*History.pages, (queue.pk, QUEUED[0])]
    before = entries(crawled)
    crawled.move_to("another")
    crawled.add(QUEUED[0])
    assert entries(crawled) == before


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_a_rebuild_by_hand_says_how_many_urls_are_known(crawled: World, monkeypatch, chunk: int) -> None:
    monkeypatch.setattr("frontier.rebuild.CHUNK", chunk)
    before = entries(crawled)
    told: list[int] = []
    index = SeenIndex(crawled.directory, crawled.using)
    with merging.merge_lock(crawled.using) as mine:
        assert mine
        known = rebuild(index, crawled.using, told.append)
    assert known == told[-1] == len(QUEUED) + len(VISITED) + 10
    assert told == sorted(told)
    assert entries(crawled) == before


@pytest.mark.parametrize(
    "death",
    [
        (runs, "write", False, 1),
        (runs, "write", True, 3),
        (SeenIndex, "record_all", False, 1),
        (SeenIndex, "sweep", False, 1),
    ],
    ids=["at once", "on the way", "before the manifest", "before the old files are swept"],
)
@pytest.mark.parametrize("damaged", [True, False], ids=["a damaged index", "a whole index"])
def test_a_rebuild_that_dies_is_begun_again(crawled: World, damaged: bool, death) -> None:
    before = entries(crawled)
    if damaged:
        next(crawled.directory.glob("url-*.run")).unlink()
    crawled.restart()
    owner, name, after, call = death
    with pytest.MonkeyPatch.context() as patch:
        die(patch, owner, name, after=after, call=call)
        with pytest.raises(Killed), merging.merge_lock(crawled.using):
            rebuild(SeenIndex(crawled.directory, crawled.using), crawled.using)
    assert crawled.add(*QUEUED, *VISITED).new_urls == 0
    assert entries(crawled) == before
    assert crawled.files() == set(SeenRun.objects.using(crawled.using).values_list("file", flat=True))


def test_an_empty_frontier_can_be_rebuilt(frontier: World) -> None:
    with merging.merge_lock(frontier.using):
        assert rebuild(SeenIndex(frontier.directory, frontier.using), frontier.using) == 0
    assert frontier.add("https://a.test/").new_urls == 1
