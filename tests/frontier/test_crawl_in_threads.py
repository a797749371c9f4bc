"""A small crawl with workers and a merger in threads: every URL is visited once, every host by one at a time."""

import threading
import time

import pytest
from django.db import transaction

from frontier.complete import Release, settle
from frontier.urls import from_reference
from tests.frontier.world import GAP_MS, InThread, World

URLS = 300
HOSTS = 17


def url(number: int) -> str:
    return f"https://h{number % HOSTS}.test/{number}"


@pytest.mark.parametrize("workers", [3])
def test_every_url_is_visited_once_and_every_host_by_one_worker_at_a_time(frontier: World, workers: int) -> None:
    """URL n links to 2n + 1, 2n + 2 and back to the first."""
    visited: list[str] = []
    at_work: set[int] = set()
    lock, done = threading.Lock(), threading.Event()
    give_up = time.monotonic() + 30

    def worker() -> None:
        while not done.is_set():
            visits = frontier.open(frontier.claim(limit=3), 1, quota=4)
            with lock:
                assert not at_work & {visit.host for visit in visits}
                at_work.update(visit.host for visit in visits)
            fetched = [from_reference(one.ref, visit.name) for visit in visits for one in visit.urls]
            numbers = [int(one.rsplit("/", 1)[1]) for one in fetched]
            links = [url(n) for number in numbers for n in (2 * number + 1, 2 * number + 2, 0) if n < URLS]
            frontier.admit(*links)
            with lock:
                visited.extend(fetched)
                # From the commit on somebody else may have the host.
                at_work.difference_update(visit.host for visit in visits)
            with transaction.atomic(using=frontier.using):
                frontier.finish(one for visit in visits for one in visit.urls)
                settle([], [Release(v.host, v.token, frontier.now, GAP_MS, 0, "") for v in visits], frontier.using)
            if not visits:
                time.sleep(0.002)

    def merger() -> None:
        while not done.is_set():
            if not frontier.merge().links:
                with lock:
                    if len(visited) >= URLS or time.monotonic() > give_up:
                        done.set()
                time.sleep(0.002)

    frontier.add(url(0))
    threads = [InThread(merger), *(InThread(worker) for _ in range(workers))]
    for thread in threads:
        thread.result(60)
    frontier.merge()
    assert sorted(visited) == sorted(url(number) for number in range(URLS))
    assert frontier.waiting() == []
    assert not any(host.active or host.lease for host in frontier.hosts().values())
    frontier.check()
