"""The end of a visit: rows are finished once, clocks are kept, hosts come back when they may."""

import threading

import pytest
from django.db import transaction

from frontier import counts
from frontier.claim import wake
from frontier.complete import Clock, Release, finish, settle
from frontier.fill import refill
from frontier.models import QueuedUrl
from tests.frontier.world import GAP_MS, LEASE_MS, NOW, InThread, World, due_key


def test_finished_urls_are_gone_and_the_rest_waits(frontier: World) -> None:
    frontier.add(*[f"https://a.test/{i}" for i in range(5)])
    [visit] = frontier.visit()
    frontier.leave(visit, rows=[visit.urls[1].row, visit.urls[3].row])
    assert frontier.urls() == ["https://a.test/0", "https://a.test/2", "https://a.test/4"]
    frontier.check()
    frontier.now += GAP_MS
    [again] = frontier.visit()
    assert [url.ref for url in again.urls] == ["/0", "/2", "/4"]


def test_rows_that_are_gone_do_not_count_twice(frontier: World) -> None:
    frontier.add(*[f"https://a.test/{i}" for i in range(5)])
    frontier.add("https://a.test/held", level=15)
    rows = [row.pk for row in QueuedUrl.objects.using(frontier.using)]
    for part in (rows[:2], rows[:3], rows[:2] * 2, [], rows, rows):
        with transaction.atomic(using=frontier.using):
            finish(1, part, frontier.using)
        frontier.check()
    assert counts.waiting(1, frontier.using) == (0, 0, 1)


def test_two_workers_that_finish_the_same_rows_count_them_once(frontier: World) -> None:
    frontier.add(*[f"https://h{i % 5}.test/{i}" for i in range(100)])
    rows = [row.pk for row in QueuedUrl.objects.using(frontier.using)]
    start = threading.Barrier(4)

    def worker(number: int) -> None:
        start.wait()
        for at in range(0, 100, 10):
            part = rows[at : at + 10] if number % 2 else rows[90 - at : 100 - at]
            with transaction.atomic(using=frontier.using):
                finish(1, part, frontier.using)

    for thread in [InThread(worker, number) for number in range(4)]:
        thread.result()
    assert frontier.waiting() == []
    frontier.check()


def test_a_host_comes_back_when_its_visit_says_so(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    [visit] = frontier.visit(quota=1)
    frontier.leave(visit, due_at=NOW + 30_000, gap_ms=15_000, failures=2, reason="it said 503")
    host = frontier.host("a.test")
    assert (host.lease, host.next_at, host.due_at, host.gap_ms) == (0, NOW + 30_000, NOW + 30_000, 15_000)
    assert (host.failures, host.reason, host.active) == (2, "it said 503", True)


def test_a_late_release_under_a_lost_lease_changes_nothing(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    [late] = frontier.visit(quota=1)
    frontier.now += LEASE_MS
    [visit] = frontier.visit(quota=1)
    before = frontier.host("a.test")
    with transaction.atomic(using=frontier.using):
        settle([Clock(late.host, late.token, 1, 1)], using=frontier.using)
        settle([], [Release(late.host, late.token, 1, 1, 9, "late", parked=True)], frontier.using)
    assert frontier.host("a.test") == before
    frontier.leave(visit)
    assert frontier.host("a.test").lease == 0


def test_a_late_release_of_a_host_that_was_taken_back_changes_nothing(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    frontier.set_host("a.test", gap_ms=7_000)
    [late] = frontier.visit(quota=1)
    frontier.now += LEASE_MS
    assert frontier.claim().hosts == []
    before = frontier.host("a.test")
    with transaction.atomic(using=frontier.using):
        settle([Clock(late.host, late.token, 1, 1)], using=frontier.using)
        settle([], [Release(late.host, late.token, 1, 1, 9, "late", parked=True)], frontier.using)
    assert frontier.host("a.test") == before
    assert before.due_at == frontier.now + 7_000
    frontier.check()


def test_a_release_after_the_end_of_a_lease_counts_while_nobody_else_has_claimed(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    [visit] = frontier.visit(quota=1)
    frontier.now += LEASE_MS
    frontier.leave(visit, due_at=NOW + LEASE_MS + 3_000, gap_ms=3_000)
    assert frontier.claim().hosts == []
    host = frontier.host("a.test")
    assert (host.lease, host.due_at, host.gap_ms) == (0, NOW + LEASE_MS + 3_000, 3_000)
    frontier.check()


@pytest.mark.parametrize("changed", [True, False])
def test_what_is_known_of_a_host_is_written_where_it_may_have_changed(frontier: World, changed: bool) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    frontier.set_host("a.test", failures=1, reason="it said 503")
    [visit] = frontier.visit(quota=1)
    frontier.leave(visit, failures=3, reason="connect: refused", changed=changed)
    host = frontier.host("a.test")
    assert (host.failures, host.reason) == ((3, "connect: refused") if changed else (1, "it said 503"))
    assert (host.active, host.due_at) == (True, NOW + GAP_MS)
    frontier.now += GAP_MS
    [visit] = frontier.visit()
    frontier.leave(visit, due_at=NOW + 9_000, gap_ms=9_000, changed=False)
    host = frontier.host("a.test")
    assert (host.active, host.due_at, host.gap_ms) == (False, NOW + 9_000, 9_000)
    frontier.check()


def test_a_host_that_comes_back_stands_where_its_best_url_puts_it(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2", level=2)
    frontier.add("https://a.test/3", level=9)
    frontier.add("https://a.test/held", level=15)
    for level in (2, 2, 9):
        host = frontier.host("a.test")
        assert host.key == due_key(host.pk, host.due_at, level)
        [visit] = frontier.visit(quota=1)
        frontier.leave(visit)
        frontier.now += GAP_MS
    assert not frontier.host("a.test").active


def test_what_a_late_worker_fetched_counts_as_fetched(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    [late] = frontier.visit(quota=1)
    frontier.now += LEASE_MS
    [visit] = frontier.visit(quota=1)
    frontier.leave(late)
    frontier.check()
    assert frontier.urls() == ["https://a.test/2"]
    frontier.leave(visit)
    frontier.check()
    assert frontier.urls() == ["https://a.test/2"]
    assert frontier.host("a.test").active


def test_clocks_are_stored_under_a_lease_and_leave_the_lease_alone(frontier: World) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(4)])
    visits = frontier.visit()
    clocks = [Clock(visit.host, visit.token, NOW + 100 + i, 200 + i) for i, visit in enumerate(visits)]
    before = {name: (host.next_at, host.lease) for name, host in frontier.hosts().items()}
    with transaction.atomic(using=frontier.using):
        settle(reversed(clocks), using=frontier.using)
        settle([], using=frontier.using)
    for clock, visit in zip(clocks, visits, strict=True):
        host = frontier.host(visit.name)
        assert (host.due_at, host.gap_ms) == (clock.due_at, clock.gap_ms)
        assert (host.next_at, host.lease) == before[visit.name]


def test_a_parked_host_waits_until_it_is_woken(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    [visit] = frontier.visit(quota=1)
    frontier.leave(visit, rows=[], parked=True, reason="robots.txt does not answer")
    frontier.now += 10 * LEASE_MS
    assert frontier.claim().hosts == []
    assert len(frontier.urls()) == 2
    assert frontier.host("a.test").reason == "robots.txt does not answer"
    frontier.check()
    wake(1, frontier.using)
    [visit] = frontier.visit()
    assert len(visit.urls) == 2


def test_urls_can_be_queued_again(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    [visit] = frontier.visit(quota=1)
    queue = visit.urls[0].row >> 32
    frontier.leave(visit)
    with transaction.atomic(using=frontier.using):
        refill([(queue, 6, 5, "/1")], frontier.using)
        refill([], frontier.using)
    frontier.check()
    frontier.now += GAP_MS
    [visit] = frontier.visit()
    assert [(url.ref, url.depth) for url in visit.urls] == [("/2", 1), ("/1", 5)]


def test_queueing_again_in_a_queue_that_does_not_exist_is_refused(frontier: World) -> None:
    with pytest.raises(LookupError, match="1 of 1 queues"), transaction.atomic(using=frontier.using):
        refill([(77, 4, 5, "/1")], frontier.using)


def test_many_hosts_are_given_back_at_once(frontier: World) -> None:
    frontier.add(*[f"https://h{i}.test/{j}" for i in range(50) for j in range(2)])
    visits = frontier.visit(quota=1)
    with transaction.atomic(using=frontier.using):
        frontier.finish(url for visit in visits for url in visit.urls)
        settle(
            [],
            [Release(v.host, v.token, NOW + v.host, v.host, 0, f"'{v.host}\"", v.host % 2 == 0) for v in visits],
            frontier.using,
        )
    frontier.check()
    for host in frontier.hosts().values():
        assert (host.due_at, host.gap_ms, host.reason) == (NOW + host.pk, host.pk, f"'{host.pk}\"")
        assert host.active == bool(host.pk % 2)
