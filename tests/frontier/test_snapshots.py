"""Snapshots while workers and a merger are at it: nothing that was admitted is lost, and nothing is there twice."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections, transaction

from crawl.models import Page
from crawl.restore import readable, restore
from crawl.snapshot import take
from frontier.complete import Release, settle
from frontier.snapshot import moment
from frontier.urls import from_reference
from tests.frontier.world import GAP_MS, InThread, World

URLS = 1500
HOSTS = 23
SNAPSHOTS = {"default": 15, "postgresql": 5}  # a restore takes 0.1 s and 1 s


def url(number: int) -> str:
    return f"https://h{number % HOSTS}.test/{number}"


def number(of: str) -> int:
    return int(of.rsplit("/", 1)[1])


def links(fetched: list[str]) -> list[str]:
    """URL n links to 2n + 1, 2n + 2 and back to the first."""
    return [url(n) for one in map(number, fetched) for n in (2 * one + 1, 2 * one + 2, 0) if n < URLS]


@pytest.fixture
def pages(frontier: World) -> Iterator[None]:
    """The table of pages, empty; they stand for all that is committed with the end of a visit."""
    Page.objects.using(frontier.using).all().delete()
    yield
    Page.objects.using(frontier.using).all().delete()


def work(frontier: World, admitted: set[str]) -> int:
    """Visits what is due: links into the inbox, then pages and completion in one transaction."""
    visits = frontier.open(frontier.claim(limit=3), 1, quota=5)
    fetched = [from_reference(one.ref, visit.name) for visit in visits for one in visit.urls]
    found = links(fetched)
    frontier.admit(*found)
    admitted.update(found)  # one call, so no look from another thread sees half of it
    with transaction.atomic(using=frontier.using):
        frontier.finish(one for visit in visits for one in visit.urls)
        settle([], [Release(v.host, v.token, frontier.now, GAP_MS, 0, "") for v in visits], frontier.using)
        Page.objects.using(frontier.using).bulk_create(
            [Page(id=1 + number(one), hash=0, ref=one, depth=0, fetched_at=0, changed_at=0) for one in fetched]
        )
    return len(fetched)


def known(frontier: World) -> Counter[str]:
    """How often each URL stands in the queues and among the pages."""
    return Counter(frontier.urls()) + Counter(Page.objects.using(frontier.using).values_list("ref", flat=True))


def test_every_snapshot_of_a_busy_frontier_holds_every_link_once(frontier: World, pages: None, tmp_path: Path) -> None:
    admitted, stop = {url(0)}, threading.Event()
    frontier.add(url(0))

    def worker() -> None:
        while not stop.is_set():
            if not work(frontier, admitted):
                time.sleep(0.002)

    def merger() -> None:
        while not stop.is_set():
            if not frontier.merge().links:
                time.sleep(0.002)

    threads = [InThread(merger), InThread(worker), InThread(worker)]
    taken: list[tuple[Path, set[str]]] = []
    while len(taken) < SNAPSHOTS[frontier.using]:
        before = set(admitted)
        directory = tmp_path / f"snapshot{len(taken)}"
        manifest = take(directory, using=frontier.using)
        assert manifest.has_seen_index
        taken.append((directory, before))
    stop.set()
    for thread in threads:
        thread.result(60)
    assert len(taken[0][1]) < URLS  # it was not over before it began

    for directory, before in taken:
        frontier.move_to(directory.name)
        restore(directory, readable(directory, frontier.using), replace=True, using=frontier.using)
        frontier.now += GAP_MS
        while frontier.merge().links:
            pass
        there = known(frontier)
        assert not before - there.keys(), "lost"
        assert max(there.values()) == 1, "twice"
        frontier.check_nothing_is_stranded()

    # The last one goes on to the end.
    while work(frontier, admitted) or frontier.merge().links:
        pass
    assert known(frontier) == Counter(map(url, range(URLS)))
    assert frontier.waiting() == []


def test_links_and_their_page_are_of_one_moment(frontier: World, pages: None) -> None:
    """What is written after the moment is in neither file, in whichever order it is read."""
    frontier.add(url(0))
    with moment(frontier.using) as held:
        InThread(work, frontier, {url(0)}).result()
        assert held.count("crawl_page") == held.count("frontier_inbox") == 0
        assert held.count("frontier_queuedurl") == 1
        InThread(frontier.merge).result()
        assert held.count("frontier_queuedurl") == 1
    with moment(frontier.using) as held:
        assert (held.count("crawl_page"), held.count("frontier_queuedurl"), held.count("frontier_inbox")) == (1, 2, 0)


def test_no_writer_waits_while_it_is_copied(frontier: World, pages: None) -> None:
    frontier.add(url(0))
    with moment(frontier.using):
        started = time.monotonic()
        InThread(frontier.add, url(1)).result()
        InThread(work, frontier, {url(0)}).result()
        assert time.monotonic() - started < 20  # the timeout of a lock is 60 s
    assert not connections[frontier.using].in_atomic_block
