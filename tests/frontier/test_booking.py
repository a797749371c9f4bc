"""Requests to a host outside its visits keep its gap, and its visits keep theirs to them."""

import pytest

from frontier import booking
from frontier.booking import VISITED_MS, book, end_booking
from frontier.claim import Visit
from tests.frontier.world import GAP_MS, NOW, World

FLIGHT_MS = 60_000


@pytest.fixture
def known(frontier: World) -> World:
    frontier.add("https://b.test/1", "https://b.test/2")
    return frontier


def test_a_host_that_nobody_visits_is_unknown(frontier: World) -> None:
    assert book("b.test", FLIGHT_MS, frontier.using) is None


def test_a_host_that_waits_for_its_first_visit_may_be_asked_once_and_is_then_left_alone(known: World) -> None:
    assert book("b.test", FLIGHT_MS, known.using) == 0
    assert book("b.test", FLIGHT_MS, known.using) == NOW + VISITED_MS
    [visit] = known.visit()
    assert visit.due_at == NOW + FLIGHT_MS
    known.leave(visit, rows=[])
    end_booking("b.test", NOW + 700, known.using)
    known.now += GAP_MS
    [visit] = known.visit()
    assert visit.due_at == NOW + GAP_MS


def test_a_host_under_visit_is_not_asked(known: World) -> None:
    known.visit()
    assert book("b.test", FLIGHT_MS, known.using) == NOW + VISITED_MS


@pytest.mark.parametrize("left", [True, False])
def test_the_clock_of_a_host_is_kept_whether_it_is_idle_or_due(known: World, left: bool) -> None:
    [visit] = known.visit()
    known.leave(visit, rows=None if not left else [visit.urls[0].row], due_at=NOW + 90_000)
    assert known.host("b.test").active == left
    assert book("b.test", FLIGHT_MS, known.using) == NOW + 90_000
    known.now += 90_000
    assert book("b.test", FLIGHT_MS, known.using) == 0


def test_a_host_with_a_gap_of_its_own_keeps_it(known: World) -> None:
    [visit] = known.visit()
    known.leave(visit, gap_ms=200_000)
    known.now += GAP_MS
    assert book("b.test", FLIGHT_MS, known.using) == 0
    known.now += 199_999
    assert book("b.test", FLIGHT_MS, known.using) == known.now + VISITED_MS
    known.now += 1
    assert book("b.test", FLIGHT_MS, known.using) == 0


@pytest.mark.parametrize("ends", [True, False])
def test_a_visit_that_begins_while_it_is_being_booked_is_seen(known: World, monkeypatch, ends: bool) -> None:
    standing = booking._standing
    visited: list[Visit] = []

    def between(name, now, using, booked=0):
        if booked:  # the second look; the visit was opened before the booking was stored
            [visit] = visited
            if ends:
                known.leave(visit, rows=[visit.urls[0].row], due_at=NOW + GAP_MS)
            return standing(name, now, using, booked)
        found = standing(name, now, using, booked)
        visited.extend(known.visit())
        return found

    monkeypatch.setattr(booking, "_standing", between)
    assert book("b.test", FLIGHT_MS, known.using) in (NOW + GAP_MS, NOW + VISITED_MS)
