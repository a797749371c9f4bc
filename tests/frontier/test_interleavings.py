"""Two processes at once, one of them stopped before each of its statements in turn.

What one does while the other stands still must come out as if they had come one after the other: above
all, a URL that is added while its host is found idle must not be left on a host that nobody claims.
"""

from collections.abc import Callable
from itertools import count

import pytest
from django.db import transaction

from frontier import merge as merging
from frontier.claim import Claim, Visit, claim, renew, wake
from frontier.complete import Clock, Release, settle
from frontier.models import DomainBlock
from frontier.rebuild import rebuild
from tests.frontier.world import GAP_MS, LEASE_MS, InThread, World, interleave

Work = Callable[[], object]


def merges_a_url(frontier: World) -> Work:
    """One more URL for the host that the others are busy with, and for its neighbours."""
    frontier.admit("https://a.test/new", "https://0.test/new", "https://z.test/new")
    return frontier.merge


def opens_the_host_for_a_campaign_that_has_nothing_there(frontier: World) -> Work:
    claimed = frontier.claim()
    return lambda: frontier.open(claimed, 1)


def leaves_the_host(frontier: World) -> Work:
    visits = frontier.visit(2)
    rows = [url.row for visit in visits for url in visit.urls]

    def leave() -> None:
        for visit in visits:
            frontier.leave(visit, rows=rows)

    return leave


def blocks_and_unblocks_the_host(frontier: World) -> Work:
    def block() -> None:
        DomainBlock.objects.using(frontier.using).create(domain="a.test").delete()

    return block


def unblocks_the_host_that_is_blocked(frontier: World) -> Work:
    blocks = DomainBlock.objects.using(frontier.using)
    blocks.get_or_create(domain="a.test")
    return lambda: blocks.get(domain="a.test").delete()


def opens_a_host_that_is_blocked(frontier: World) -> Work:
    DomainBlock.objects.using(frontier.using).get_or_create(domain="a.test")
    claimed = frontier.claim()

    def visit() -> None:
        for one in frontier.open(claimed, 1, 2):
            frontier.leave(one)

    return visit


def wakes_the_campaign(frontier: World) -> Work:
    return lambda: wake(1, frontier.using)


def claims_and_visits(frontier: World) -> Work:
    def visit() -> None:
        for one in frontier.visit(1, 2):
            frontier.leave(one)

    return visit


PAIRS = [
    (merges_a_url, opens_the_host_for_a_campaign_that_has_nothing_there),
    (opens_the_host_for_a_campaign_that_has_nothing_there, merges_a_url),
    (merges_a_url, leaves_the_host),
    (leaves_the_host, merges_a_url),
    (merges_a_url, blocks_and_unblocks_the_host),
    (blocks_and_unblocks_the_host, merges_a_url),
    (leaves_the_host, blocks_and_unblocks_the_host),
    (blocks_and_unblocks_the_host, leaves_the_host),
    (claims_and_visits, merges_a_url),
    (merges_a_url, claims_and_visits),
    (claims_and_visits, claims_and_visits),
    (wakes_the_campaign, merges_a_url),
    (opens_a_host_that_is_blocked, unblocks_the_host_that_is_blocked),
    (unblocks_the_host_that_is_blocked, opens_a_host_that_is_blocked),
]


@pytest.mark.parametrize(
    ("first", "second"), PAIRS, ids=[f"{one.__name__} while it {two.__name__}" for two, one in PAIRS]
)
def test_nothing_is_stranded_while_one(frontier: World, first, second) -> None:
    for step in count(1):
        frontier.clear()
        frontier.add("https://a.test/", campaign=2)
        one, two = first(frontier), second(frontier)
        stopped = interleave(frontier.using, one, step, two)
        frontier.merge()
        frontier.check()
        # What is left can all be visited, whoever was first.
        left = set(frontier.urls())
        visited: set[str] = set()
        while True:
            frontier.now += LEASE_MS + GAP_MS
            visits = frontier.visit(1, 2)
            visited |= {f"https://{visit.name}{url.ref}" for visit in visits for url in visit.urls}
            for visit in visits:
                frontier.leave(visit)
            if not visits:
                break
        # Campaign 2 was not among the running ones where its host went idle: it waits to be woken.
        asleep = (
            {"https://a.test/"} if opens_the_host_for_a_campaign_that_has_nothing_there in (first, second) else set()
        )
        assert left - visited <= asleep
        if not stopped:
            break
    assert step > 2


def test_hosts_that_are_found_idle_in_many_threads_keep_their_urls(frontier: World) -> None:
    """Each round adds one URL while the host of the last one is being given back."""
    frontier.add("https://a.test/0")
    for number in range(1, 25):
        [visit] = frontier.visit()
        frontier.admit(f"https://a.test/{number}")
        threads = [InThread(frontier.leave, visit), InThread(frontier.merge)]
        for thread in threads:
            thread.result()
        frontier.check_nothing_is_stranded()
        frontier.now += GAP_MS
    assert frontier.urls() == ["https://a.test/24"]


def test_a_rebuild_beside_the_workers_forgets_nothing(frontier: World, monkeypatch) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(20)])
    visits = frontier.visit()
    monkeypatch.setattr("frontier.rebuild.CHUNK", 3)

    def admit_and_renew(done: int) -> None:
        frontier.admit(f"https://h{done}.test/", f"https://new{done}.test/")

    with merging.merge_lock(frontier.using):
        rebuild(merging.merger(frontier.using).index, frontier.using, admit_and_renew)
    for visit in visits:
        frontier.leave(visit)
    frontier.merge()
    assert all(url.startswith("https://new") or url == "https://h20.test/" for url in frontier.urls())
    frontier.check()


# --- the end of a lease --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", ["opens", "renews", "leaves"])
@pytest.mark.parametrize("stopped", ["the late one", "the claimer"])
def test_a_host_is_never_with_two_when_a_worker_is_late(frontier: World, late: str, stopped: str) -> None:
    """The clock of the claimer says that the lease is over, the one of the worker that it is not."""
    outcomes = set()
    for step in count(1):
        frontier.clear()
        frontier.add("https://a.test/1", "https://a.test/2")
        held = frontier.claim()
        visits = frontier.open(held, quota=1) if late != "opens" else []
        frontier.now += LEASE_MS // 2
        claims: list[Claim] = []

        def take_it_back(claims: list[Claim] = claims) -> None:
            claims += claim(9, lease_ms=LEASE_MS, using=frontier.using, now=frontier.now + LEASE_MS // 2)

        def be_late(held: Claim = held, visits: list[Visit] = visits) -> None:
            if late == "opens":
                visits += frontier.open(held)
            elif late == "renews":
                renew([held.token], lease_ms=LEASE_MS, using=frontier.using)
            else:
                frontier.leave(visits[0], due_at=frontier.now + 10 * LEASE_MS)

        first, second = (be_late, take_it_back) if stopped == "the late one" else (take_it_back, be_late)
        went_on = interleave(frontier.using, first, step, second)
        frontier.check()
        host = frontier.host("a.test")
        outcomes.add(bool(claims))
        if claims:
            assert host.lease == claims[0].token != held.token
            assert late != "opens" or not visits
        elif late == "leaves":
            assert (host.active, host.lease) == (True, 0)
        elif host.lease:  # it was held or being looked at
            assert host.lease == held.token
        assert frontier.urls()[-1] == "https://a.test/2"
        frontier.check_nothing_is_stranded()
        if not went_on:
            break
    assert outcomes == {True, False}


# --- locks of PostgreSQL -----------------------------------------------------------------------------------------


def ends_a_batch(frontier: World, staying: int) -> Work:
    """What crawl.record does: one of two hosts stays under its lease, the other is given back."""
    frontier.add("https://a.test/1", "https://a.test/2", "https://b.test/1", "https://b.test/2")
    visits = sorted(frontier.visit(quota=1))
    stay, leave = visits[staying], visits[1 - staying]

    def end() -> None:
        with transaction.atomic(using=frontier.using):
            frontier.finish([stay.urls[0], leave.urls[0]])
            settle(
                [Clock(stay.host, stay.token, frontier.now, GAP_MS)],
                [Release(leave.host, leave.token, frontier.now, GAP_MS, 0, "")],
                frontier.using,
            )

    return end


def merges_urls_of_both(frontier: World) -> Work:
    frontier.admit("https://a.test/new", "https://b.test/new")
    return frontier.merge


def wakes_both(frontier: World) -> Work:
    for name in frontier.hosts():
        frontier.set_host(name, active=False)
    return lambda: wake(1, frontier.using)


def renews_both(frontier: World) -> Work:
    leases = [host.lease for host in frontier.hosts().values()]
    return lambda: renew(leases, lease_ms=LEASE_MS, using=frontier.using)


def claims_what_is_not_renewed(frontier: World) -> Work:
    frontier.now += LEASE_MS
    return frontier.claim


def blocks_both(frontier: World) -> Work:
    return lambda: DomainBlock.objects.using(frontier.using).create(domain="test").delete()


ONE_PASS = [merges_urls_of_both, wakes_both, renews_both, claims_what_is_not_renewed, blocks_both]


@pytest.mark.parametrize("other", ONE_PASS, ids=lambda other: other.__name__)
@pytest.mark.parametrize("staying", [0, 1])
def test_a_writer_ends_its_batch_while_another(frontier: World, other, staying: int) -> None:
    for step in count(1):
        frontier.clear()
        end = ends_a_batch(frontier, staying)
        if not interleave(frontier.using, end, step, other(frontier)):
            break
        frontier.check()
