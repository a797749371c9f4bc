"""Hosts that failed again and again: who brings them back, and when."""

import pytest
from django.db import connections, transaction

from frontier.claim import unpark, wake
from frontier.counts import is_live
from frontier.models import Host
from tests.frontier.world import NOW, World

HOUR_MS = 3_600_000


@pytest.fixture
def parked(frontier: World) -> World:
    """A frontier with a.test, on which a URL waits and which is parked for an hour."""
    frontier.add("https://a.test/1", "https://a.test/2")
    [visit] = frontier.visit(quota=1)
    frontier.leave(visit, parked=True, parked_until=NOW + HOUR_MS, reason="connect: refused")
    return frontier


def until(frontier: World) -> int | None:
    return Host.objects.using(frontier.using).get(name="a.test").parked_until


def live(frontier: World) -> bool:
    with connections[frontier.using].cursor() as cursor:
        cursor.execute(f"SELECT {is_live('%s')}", [1, 1])
        return bool(cursor.fetchone()[0])


def test_a_parked_host_is_not_claimed_and_does_not_keep_a_campaign_alive(parked: World) -> None:
    parked.now += HOUR_MS - 1
    assert not unpark(parked.using)
    assert parked.claim().hosts == []
    assert not live(parked)
    assert parked.host("a.test").reason == "connect: refused"
    parked.check()


def test_it_comes_back_by_itself_when_its_time_is_over(parked: World) -> None:
    parked.now += HOUR_MS
    assert unpark(parked.using)
    assert live(parked)
    assert parked.names(parked.claim()) == ["a.test"]
    assert until(parked) is None
    assert not unpark(parked.using)
    parked.check()


def test_a_link_does_not_bring_it_back_and_a_seed_does(parked: World) -> None:
    parked.now += 10_000
    parked.add("https://a.test/3")
    assert parked.claim().hosts == []
    parked.add("https://a.test/4", level=0)
    assert parked.names(parked.claim()) == ["a.test"]
    parked.check()


def test_a_start_brings_it_back_at_once(parked: World) -> None:
    parked.now += 10_000
    wake(1, parked.using)
    assert parked.names(parked.claim()) == ["a.test"]
    assert until(parked) is None


def test_a_start_does_not_shorten_a_wait_that_the_host_asked_for(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    [visit] = frontier.visit(quota=1)
    frontier.leave(visit, due_at=NOW + 60_000, parked=True, parked_until=NOW + HOUR_MS)
    wake(1, frontier.using)
    assert frontier.claim().hosts == []
    frontier.now += 60_000
    assert frontier.names(frontier.claim()) == ["a.test"]


def test_a_parked_host_on_which_nothing_waits_any_more_is_forgotten(frontier: World) -> None:
    frontier.add("https://a.test/1")
    [visit] = frontier.visit()
    frontier.leave(visit, parked=True, parked_until=NOW + HOUR_MS)
    frontier.now += HOUR_MS
    assert unpark(frontier.using)
    assert until(frontier) is None
    assert not frontier.host("a.test").active
    frontier.add("https://a.test/2")
    assert frontier.names(frontier.claim()) == ["a.test"]


def test_a_blocked_host_stays_so_when_its_parking_is_over(parked: World) -> None:
    with transaction.atomic(using=parked.using):
        Host.objects.using(parked.using).filter(name="a.test").update(blocked=True)
    parked.now += HOUR_MS
    unpark(parked.using)
    assert parked.claim().hosts == []
