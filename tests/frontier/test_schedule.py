"""The order of claims: whoever is due longest goes first, urgent URLs go a little before, and nobody starves."""

from itertools import count

import numpy as np
import pytest
from django.db import connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontier.models import DueHost, Host
from frontier.priority import LAST
from frontier.schedule import HOST_BITS, MOST_PUT_OFF_MS, put_due
from tests.frontier.world import GAP_MS, NOW, World, due_key

# A due time, some seconds around now, and the best level that waits.
places = st.tuples(st.integers(NOW - 40_000, NOW), st.integers(0, LAST))


def put(frontier: World, due: list[tuple[int, int]]) -> list[int]:
    """Hosts with these clocks and levels, given back before any is due; returns their ids in the order in which
    they are claimed one by one."""
    frontier.now = NOW - 40_000
    hosts = range(1, len(due) + 1)
    Host.objects.using(frontier.using).bulk_create([Host(id=pk, name=f"h{pk}.test", active=True) for pk in hosts])
    rows = np.array([(pk, due_at, GAP_MS, level) for pk, (due_at, level) in zip(hosts, due, strict=True)])
    with transaction.atomic(using=frontier.using), connections[frontier.using].cursor() as cursor:
        put_due(cursor, frontier.using, rows.T)
    frontier.check()
    frontier.now = NOW
    return [claimed for _ in due for claimed in frontier.claim(limit=1).hosts]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(due=st.lists(places, min_size=1, max_size=8))
def test_hosts_are_claimed_by_the_second_and_a_second_later_for_each_level(frontier: World, due) -> None:
    frontier.clear()
    order = put(frontier, due)
    assert order == sorted(order, key=lambda pk: due_key(pk, *due[pk - 1]))
    assert len(order) == len(due)


def test_a_host_with_a_burst_to_its_credit_goes_behind_those_that_wait(frontier: World) -> None:
    """Its clock lies in the past, and so long as it is so it may be asked at once; but not before others."""
    for number in range(3):
        frontier.add(f"https://h{number}.test/")
        frontier.add(f"https://h{number}.test/1")
    [first] = frontier.visit(limit=1, quota=1)
    frontier.now += 2_000
    frontier.leave(first, due_at=NOW - 50_000)
    assert frontier.host(first.name).due_at == NOW - 50_000
    order = [visit for _ in range(3) for visit in frontier.visit(limit=1)]
    assert [visit.name for visit in order][-1] == first.name
    assert order[-1].due_at == NOW - 50_000


@given(one=places, other=places, hosts=st.permutations([1, (1 << HOST_BITS) - 1]))
def test_whoever_is_due_longer_than_any_level_puts_off_goes_first(one, other, hosts) -> None:
    if one[0] + MOST_PUT_OFF_MS < other[0]:
        assert due_key(hosts[0], *one) < due_key(hosts[1], *other)
    if one[0] <= other[0] and one[1] < other[1]:
        assert due_key(hosts[0], *one) < due_key(hosts[1], *other)
    # Nobody is put off by more than that.
    assert 0 <= (due_key(hosts[0], *one) >> HOST_BITS) - one[0] // 1000 <= MOST_PUT_OFF_MS // 1000


@pytest.mark.parametrize(("better", "worse"), [(0, 1), (0, LAST), (4, 9), (13, 14)])
def test_of_two_hosts_due_in_the_same_moment_the_one_with_the_better_url_is_first(
    frontier: World, better: int, worse: int
) -> None:
    frontier.admit("https://worse.test/", level=worse)
    frontier.admit("https://worse.test/worst", level=LAST)
    frontier.admit("https://better.test/last", level=LAST)
    frontier.admit("https://better.test/", level=better)
    frontier.merge()
    assert [visit.name for _ in range(2) for visit in frontier.visit(limit=1)] == ["better.test", "worse.test"]


def test_the_better_of_two_campaigns_counts(frontier: World) -> None:
    frontier.add("https://one.test/", level=8)
    for campaign, level in ((2, 9), (1, 3)):
        frontier.admit("https://both.test/", campaign=campaign, level=level)
    frontier.merge()
    assert [visit.name for _ in range(2) for visit in frontier.visit(limit=1)] == ["both.test", "one.test"]


@pytest.mark.parametrize(
    ("longer_ms", "first"), [(MOST_PUT_OFF_MS + 1, "old.test"), (LAST * 1_000 - 1_000, "urgent.test")]
)
def test_a_host_that_has_waited_long_goes_first_whatever_waits_on_it(
    frontier: World, longer_ms: int, first: str
) -> None:
    frontier.add("https://old.test/", level=LAST)
    frontier.now += longer_ms
    frontier.add("https://urgent.test/", level=0)
    assert [visit.name for visit in frontier.visit(limit=1)] == [first]


def test_a_url_that_is_held_makes_no_host_urgent(frontier: World) -> None:
    frontier.add("https://held.test/", level=15)
    assert not frontier.host("held.test").active
    frontier.add("https://held.test/free", level=9)
    host = frontier.host("held.test")
    assert host.key == due_key(host.pk, NOW, 9)


# --- nobody starves --------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    waiting=st.lists(places, min_size=1, max_size=20),
    limit=st.integers(1, 4),
    arrivals=st.lists(st.integers(0, 6), min_size=1, max_size=30),
    step_ms=st.integers(100, 3_000),
)
def test_by_its_key_every_host_is_claimed_after_a_bounded_number_of_claims(waiting, limit, arrivals, step_ms) -> None:
    """Whatever arrives, with the best of levels: from the moment that its second is over nobody gets before it."""
    numbers, now = count(1), NOW
    due = {due_key(next(numbers), *place) for place in waiting}
    bound: dict[int, int] = {}
    for claims in count():
        if not due:
            break
        if claims < len(arrivals):
            due |= {due_key(next(numbers), now, 0) for _ in range(arrivals[claims])}
        for place, key in enumerate(sorted(due)):
            if key >> HOST_BITS < now // 1000:
                # This is fixed at the first sight and must hold, though more hosts keep arriving.
                bound.setdefault(key, claims + place // limit)
        for key in sorted(due)[:limit]:
            due.remove(key)
            assert claims <= bound.get(key, claims)
        now += step_ms


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    levels=st.lists(st.integers(6, LAST), min_size=3, max_size=6),
    limit=st.integers(1, 3),
    more=st.integers(0, 2),
    gap_ms=st.sampled_from([1, 900, 5_000]),
)
def test_no_host_starves_beside_new_and_urgent_ones(frontier: World, levels, limit, more, gap_ms) -> None:
    """More hosts become due than are claimed, all the time and with better URLs, and hosts come back as well."""
    frontier.clear()
    for number, level in enumerate(levels):
        frontier.admit(f"https://old{number}.test/", level=level)
    frontier.merge()
    left = {host.pk for host in frontier.hosts().values()}
    # Those that become due until the last of them is put off no longer: the old ones, new ones, and those that return.
    seconds = MOST_PUT_OFF_MS // 1000 + 1
    bound = (len(levels) + seconds * (limit + more) + seconds * limit) // limit + 1
    for claims in range(bound):
        new = [f"new{claims}-{number}.test" for number in range(limit + more)]
        frontier.admit(*(f"https://{name}/{path}" for name in new for path in (1, 2)), level=0)
        frontier.merge()
        for visit in frontier.visit(limit=limit, quota=1):
            left.discard(visit.host)
            frontier.leave(visit, due_at=frontier.now + gap_ms, gap_ms=gap_ms)
        if not left:
            break
        frontier.now += 1_000
    assert not left
    assert DueHost.objects.using(frontier.using).exists()
    frontier.check()
