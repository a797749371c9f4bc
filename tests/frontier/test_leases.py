"""Leases: what a worker holds comes back when it is not heard of, and not before."""

from itertools import count

import pytest
from django.db import connections

from frontier import claim as claims
from frontier.claim import free_all_leases, leased, renew
from frontier.complete import Clock, settle
from frontier.models import Lease
from tests.frontier.world import GAP_MS, LEASE_MS, NOW, Killed, World, die, due_key


@pytest.mark.parametrize("opened", [True, False], ids=["during a visit", "before the message arrives"])
def test_a_lease_that_runs_out_brings_the_host_back_after_its_gap(frontier: World, opened: bool) -> None:
    frontier.add("https://a.test/")
    frontier.set_host("a.test", gap_ms=7_000)
    claimed = frontier.claim()
    if opened:
        frontier.open(claimed)
    frontier.now += LEASE_MS - 1
    assert frontier.claim().hosts == []
    frontier.now += 1
    assert frontier.claim().hosts == []
    assert frontier.host("a.test").due_at == NOW + LEASE_MS + 7_000
    frontier.check()
    frontier.now += 6_999
    assert frontier.claim().hosts == []
    frontier.now += 1
    [visit] = frontier.visit()
    assert visit.due_at == frontier.now
    assert [url.ref for url in visit.urls] == ["/"]


def test_a_lost_lease_does_not_shorten_a_longer_wait(frontier: World) -> None:
    frontier.add("https://a.test/")
    [visit] = frontier.visit()
    far = NOW + 10 * LEASE_MS
    settle([Clock(visit.host, visit.token, far, GAP_MS)], using=frontier.using)
    frontier.now += LEASE_MS
    assert frontier.claim().hosts == []
    frontier.now = far - 1
    assert frontier.claim().hosts == []
    frontier.now = far
    [again] = frontier.visit()
    assert again.due_at == far


def test_a_free_host_keeps_its_clock_when_it_is_claimed(frontier: World) -> None:
    frontier.add("https://a.test/")
    frontier.set_host("a.test", due_at=NOW - 500, gap_ms=7_000)
    [visit] = frontier.visit()
    assert visit.due_at == NOW - 500


def test_a_lease_that_is_renewed_does_not_run_out(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    kept, lost = frontier.claim(limit=1), frontier.claim(limit=1)
    frontier.open(kept)
    frontier.open(lost)
    frontier.now += LEASE_MS - 1
    renew([kept.token], lease_ms=LEASE_MS, using=frontier.using)
    renew([], lease_ms=LEASE_MS, using=frontier.using)
    frontier.now += LEASE_MS - 1
    assert frontier.claim().hosts == lost.hosts
    frontier.now += 1
    assert frontier.claim().hosts == kept.hosts


@pytest.mark.parametrize("taken_back", [True, False])
def test_a_lost_lease_cannot_be_renewed(frontier: World, taken_back: bool) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    late = frontier.claim(limit=1)
    frontier.open(late)
    frontier.now += LEASE_MS
    if taken_back:
        frontier.visit()
    before = frontier.hosts()
    frontier.now += 1_000
    renew([late.token, late.token + 1_000], lease_ms=LEASE_MS, using=frontier.using)
    assert frontier.hosts() == before
    assert late.hosts[0] in frontier.claim().hosts or taken_back


def test_leases_are_counted_until_they_run_out(frontier: World) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(5)])
    assert leased(frontier.using) == 0
    frontier.claim(limit=3)
    frontier.now += 1_000
    [visit] = frontier.visit(limit=1)
    assert leased(frontier.using) == 4
    frontier.leave(visit)
    assert leased(frontier.using) == 3
    frontier.now += LEASE_MS - 1_000
    assert leased(frontier.using) == 0


def test_all_leases_can_be_given_back_at_a_start(frontier: World) -> None:
    frontier.add(*[f"https://{name}.test/" for name in "abcd"])
    for name, gap in {"a": 1_000, "b": 30_000}.items():
        frontier.set_host(f"{name}.test", gap_ms=gap, due_at=NOW - 1_000)
    visits = frontier.visit(limit=2) + frontier.visit(limit=0)
    assert sorted(visit.name for visit in visits) == ["a.test", "b.test"]
    frontier.claim(limit=1)  # its message is not yet there
    frontier.visit(limit=1)
    [far] = [visit for visit in visits if visit.name == "a.test"]
    settle([Clock(far.host, far.token, NOW + 90_000, 1_000)], using=frontier.using)
    frontier.now += 10

    assert free_all_leases(frontier.using) == 4
    assert free_all_leases(frontier.using) == 0
    assert not Lease.objects.using(frontier.using).exists()

    frontier.check()
    due = {name: host.due_at for name, host in frontier.hosts().items()}
    assert due == {"a.test": NOW + 90_000, "b.test": NOW + 30_010, "c.test": NOW + 10, "d.test": NOW + 10}
    assert frontier.names(frontier.claim()) == ["c.test", "d.test"]


def test_only_the_leases_that_are_over_are_taken_back(frontier: World) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(8)])
    claims = []
    for _ in range(4):
        claims.append(frontier.claim(limit=2))
        frontier.now += 1_000
    first, second, third, last = claims
    frontier.open(second)
    renew([third.token], lease_ms=LEASE_MS, using=frontier.using)
    gaps = {name: 500 * host.pk for name, host in frontier.hosts().items()}
    for name, gap in gaps.items():
        frontier.set_host(name, gap_ms=gap)
    frontier.now = NOW + LEASE_MS + 3_000

    assert frontier.claim(horizon_ms=-1).hosts == []

    frontier.check()
    over, alive = first.hosts + last.hosts, second.hosts + third.hosts
    for name, host in frontier.hosts().items():
        assert (host.lease == 0) == (host.pk in over)
        assert (host.lease in (second.token, third.token)) == (host.pk in alive)
        if host.pk in over:
            assert (host.due_at, host.gap_ms) == (frontier.now + gaps[name], gaps[name])
            assert host.key == due_key(host.pk, host.due_at, 0)
    assert leased(frontier.using) == 4
    assert sorted(frontier.claim(horizon_ms=8 * 500).hosts) == sorted(over)


def test_a_lease_that_is_over_and_holds_nothing_goes_as_well(frontier: World) -> None:
    frontier.add("https://a.test/")
    [visit] = frontier.visit()
    frontier.leave(visit)
    assert Lease.objects.using(frontier.using).count() == 1
    frontier.now += LEASE_MS
    frontier.claim()
    assert not Lease.objects.using(frontier.using).exists()


def test_leases_go_on_where_their_numbers_come_round(frontier: World) -> None:
    """Of a token, 32 bits are in the key of each of its hosts."""
    frontier.add(*[f"https://h{i}.test/" for i in range(4)])
    number_leases_from(frontier, (1 << 32) - 2)
    try:
        claims = [frontier.claim(limit=1) for _ in range(4)]
        assert [one.token - (1 << 32) for one in claims] == [-2, -1, 0, 1]
        assert [[visit.host for visit in frontier.open(one)] for one in claims] == [one.hosts for one in claims]
        frontier.now += LEASE_MS
        assert len(frontier.claim().hosts) == 4
    finally:
        number_leases_from(frontier, 1_000)


def number_leases_from(frontier: World, first: int) -> None:
    with connections[frontier.using].cursor() as cursor:
        if frontier.using == "default":
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'frontier_lease'")
            cursor.execute("INSERT INTO sqlite_sequence(name, seq) VALUES ('frontier_lease', %s)", [first - 1])
        else:
            cursor.execute(f"ALTER TABLE frontier_lease ALTER COLUMN id RESTART WITH {first}")


# --- crashes -------------------------------------------------------------------------------------------------

CLAIM_STEPS = [(claims, "take_back", True), (claims, "put_leased", False), (claims, "put_leased", True)]


@pytest.mark.parametrize(("owner", "name", "after"), CLAIM_STEPS, ids=lambda value: getattr(value, "__name__", value))
def test_a_claim_that_dies_before_its_commit_leaves_everything_as_it_was(frontier: World, owner, name, after) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(4)])
    frontier.claim(limit=1)
    frontier.now += LEASE_MS  # that one is taken back by the next claim
    before = frontier.hosts()
    with pytest.MonkeyPatch.context() as patch:
        die(patch, owner, name, after=after)
        with pytest.raises(Killed):
            frontier.claim()
    assert frontier.hosts() == before
    frontier.check()
    assert len(frontier.claim().hosts) == 4
    frontier.check()


def test_a_claim_that_dies_at_any_statement_leaves_everything_as_it_was(frontier: World) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(4)])
    frontier.claim(limit=1)
    frontier.now += LEASE_MS
    before = frontier.hosts()
    for call in count(1):
        statements = count(1)

        def die_at(execute, sql, params, many, context, call=call, statements=statements):
            if not sql.startswith("PRAGMA") and next(statements) == call:
                raise Killed
            return execute(sql, params, many, context)

        try:
            with connections[frontier.using].execute_wrapper(die_at):
                claimed = frontier.claim()
        except Killed:
            assert frontier.hosts() == before
            frontier.check()
        else:
            assert len(claimed.hosts) == 4
            break
    assert call > 5


def test_an_opening_that_dies_before_its_commit_can_be_done_again(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/", campaign=2)
    frontier.add("https://a.test/", campaign=1)
    claimed = frontier.claim()
    before = frontier.hosts()
    with pytest.MonkeyPatch.context() as patch:
        die(patch, claims, "rest", after=True)  # b.test becomes idle
        with pytest.raises(Killed):
            frontier.open(claimed)
    assert frontier.hosts() == before
    assert [visit.name for visit in frontier.open(claimed)] == ["a.test"]
    frontier.check()
