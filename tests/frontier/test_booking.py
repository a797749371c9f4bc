"""Requests to a host outside its visits keep its gap, and its visits keep theirs to them."""

import random
from itertools import pairwise

import pytest

from frontier import booking
from frontier.booking import LEAST_MS, LOOK_MS, REQUESTS, VISIT_MS, VISITED_MS, Reservation, Turn, book, end_booking
from frontier.claim import Claim, Visit, claim, renew
from frontier.models import Host
from tests.frontier.world import GAP_MS, LEASE_MS, NOW, World

FLIGHT_MS = 60_000


def booked_until(frontier: World) -> int:
    return Host.objects.using(frontier.using).get(name="b.test").booked_until


def has_turn(reservation: Reservation) -> bool:
    turn = reservation.turn(GAP_MS, FLIGHT_MS)
    assert turn
    return turn.is_mine


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
    end_booking("b.test", NOW - 300, NOW + 700, known.using)
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


def test_the_next_visit_keeps_the_gap_of_the_host_to_a_request_that_was_booked_by_somebody_who_does_not_know_it(
    known: World,
) -> None:
    [visit] = known.visit()
    known.leave(visit, rows=[visit.urls[0].row], due_at=NOW + 60_000, gap_ms=60_000)
    known.now += 60_000
    assert book("b.test", FLIGHT_MS, known.using) == 0
    end_booking("b.test", known.now + 500, known.now + 1_500, known.using)
    known.now += 2_000
    [visit] = known.visit()
    assert visit.due_at == NOW + 60_000 + 500 + 60_000


@pytest.mark.parametrize("ends", [True, False])
def test_a_visit_that_begins_while_it_is_being_booked_is_seen(known: World, monkeypatch, ends: bool) -> None:
    standing = booking.standing
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

    monkeypatch.setattr(booking, "standing", between)
    assert book("b.test", FLIGHT_MS, known.using) in (NOW + GAP_MS, NOW + VISITED_MS)


# --- reservations ------------------------------------------------------------------------------------------


def test_a_stranger_needs_no_turn(frontier: World) -> None:
    assert Reservation("b.test", frontier.using).turn(GAP_MS, FLIGHT_MS) is None


def test_a_reservation_of_a_free_host_is_at_once_and_no_visit_asks_before_it_is_over(known: World) -> None:
    reservation = Reservation("b.test", known.using)
    assert reservation.turn(GAP_MS, FLIGHT_MS) == Turn(NOW, is_mine=True)
    [visit] = known.visit()
    assert visit.due_at == NOW + FLIGHT_MS + REQUESTS * GAP_MS
    known.leave(visit, rows=[], due_at=visit.due_at + 1)
    known.now += 1_000
    reservation.end(NOW + 1_700)
    known.check()
    known.now += 699
    assert known.visit() == []
    known.now += 1
    [visit] = known.visit()
    assert visit.due_at == NOW + 1_700


def test_a_short_booking_is_longer_than_a_visit_waits(known: World) -> None:
    assert Reservation("b.test", known.using).turn(GAP_MS, 5_000)
    assert booked_until(known) == NOW + LEAST_MS


def test_a_host_that_has_asked_for_a_pause_is_not_brought_forward(known: World) -> None:
    reservation = Reservation("b.test", known.using)
    assert has_turn(reservation)
    [visit] = known.visit()
    known.leave(visit, rows=[], due_at=visit.due_at + 90_000)
    reservation.end(NOW + 1_700)
    assert known.host("b.test").due_at == visit.due_at + 90_000


def test_it_gets_its_turn_after_the_visit_that_is_under_way_and_before_the_next_one(known: World) -> None:
    [visit] = known.visit()
    reservation = Reservation("b.test", known.using)
    assert reservation.turn(GAP_MS, FLIGHT_MS) == Turn(NOW + LOOK_MS, is_mine=False)
    known.now += 20_000
    known.leave(visit, rows=[visit.urls[0].row], due_at=known.now + GAP_MS)
    known.now += GAP_MS
    [after] = known.visit()  # comes first to the lease, and knows
    assert after.due_at == NOW + VISIT_MS + FLIGHT_MS + REQUESTS * GAP_MS
    assert reservation.turn(GAP_MS, FLIGHT_MS) == Turn(known.now, is_mine=True)


def test_behind_a_visit_that_takes_long_it_is_made_anew(known: World) -> None:
    [visit] = known.visit()
    reservation = Reservation("b.test", known.using)
    assert not has_turn(reservation)
    known.now += VISIT_MS + 3 * GAP_MS
    renew([visit.token], lease_ms=LEASE_MS, using=known.using)
    assert not has_turn(reservation)
    assert booked_until(known) == known.now + VISIT_MS + FLIGHT_MS + REQUESTS * GAP_MS


def test_a_visit_that_was_opened_before_it_was_made_anew_goes_first(known: World) -> None:
    reservation = Reservation("b.test", known.using)
    assert has_turn(reservation)
    [visit] = known.visit()  # begins where the first booking ends
    known.now = visit.due_at - FLIGHT_MS + 1
    assert not has_turn(reservation)
    known.leave(visit, rows=[visit.urls[0].row], due_at=visit.due_at + GAP_MS)
    assert reservation.turn(GAP_MS, FLIGHT_MS) == Turn(visit.due_at + GAP_MS, is_mine=True)


def test_a_visit_whose_worker_has_died_stands_in_nobodys_way_once_its_lease_and_the_gap_are_over(known: World) -> None:
    known.visit()
    reservation = Reservation("b.test", known.using)
    known.now += LEASE_MS - 1
    assert not has_turn(reservation)
    known.now += 1
    assert has_turn(reservation)


def test_the_clock_of_a_host_is_told_and_that_of_the_caller_kept(known: World) -> None:
    [visit] = known.visit()
    known.leave(visit, rows=[visit.urls[0].row], due_at=NOW + 90_000)
    reservation = Reservation("b.test", known.using)
    assert reservation.turn(GAP_MS, FLIGHT_MS) == Turn(NOW + 90_000, is_mine=True)
    assert reservation.turn(GAP_MS, FLIGHT_MS, NOW + 95_000) == Turn(NOW + 95_000, is_mine=True)


def test_two_reservations_go_one_after_the_other(known: World) -> None:
    one, other = Reservation("b.test", known.using), Reservation("b.test", known.using)
    assert has_turn(one)
    assert other.turn(GAP_MS, FLIGHT_MS) == Turn(NOW + LOOK_MS, is_mine=False)
    one.end(NOW + GAP_MS)
    known.now += LOOK_MS
    assert not has_turn(other)
    known.now = NOW + GAP_MS
    assert has_turn(other)


def test_one_that_has_lapsed_leaves_the_booking_of_another(known: World) -> None:
    one, other = Reservation("b.test", known.using), Reservation("b.test", known.using)
    assert has_turn(one)
    known.now += FLIGHT_MS + REQUESTS * GAP_MS
    assert has_turn(other)
    booked = booked_until(known)
    one.end(NOW + GAP_MS)
    assert booked_until(known) == booked


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_between_all_requests_keep_the_gap(frontier: World, seed: int) -> None:
    """Visits, and two that reserve; each takes its next step at a random moment."""
    frontier.add(*[f"https://b.test/{number}" for number in range(100)])
    chance = random.Random(seed)
    worker = Visits(frontier, chance)
    others = [Reserving(frontier, chance) for _ in range(2)]
    for _ in range(600):
        frontier.now += chance.choice([1, 50, 400, 900, 3_000])
        for one in others:
            one.arrive_in_time()
        step = chance.choice([worker.step, worker.step, worker.step, *[one.step for one in others]])
        step()
    assert worker.asked
    assert all(one.asked for one in others)
    asked = sorted(worker.asked + others[0].asked + others[1].asked)
    assert min(after - before for before, after in pairwise(asked)) >= GAP_MS


class Visits:
    """A worker that visits the host again and again."""

    def __init__(self, frontier: World, chance: random.Random) -> None:
        self.frontier, self.chance = frontier, chance
        self.claims: list[Claim] = []
        self.visits: list[Visit] = []
        self.due_at = 0
        self.asked: list[int] = []

    def step(self) -> None:
        frontier = self.frontier
        if not self.visits and not self.claims:
            self.claims = claim(9, lease_ms=10**7, horizon_ms=2_000, using=frontier.using, now=frontier.now)
        elif not self.visits:
            self.visits = frontier.open(self.claims.pop())
            self.due_at = self.visits[0].due_at
        elif self.due_at <= frontier.now and self.chance.random() < 0.7:
            self.asked.append(frontier.now)
            self.due_at = frontier.now + GAP_MS
        elif self.due_at <= frontier.now or self.due_at > frontier.now + 30_000:
            frontier.leave(self.visits.pop(), rows=[], due_at=self.due_at + 1)


class Reserving:
    """Asks the host beside its visits, in one request or several."""

    FLIGHT_MS = 5_000

    def __init__(self, frontier: World, chance: random.Random) -> None:
        self.frontier, self.chance = frontier, chance
        self.reservation: Reservation | None = None
        self.not_before = self.until = 0
        self.asked: list[int] = []

    def step(self) -> None:
        now = self.frontier.now
        if self.until:
            self._arrive()
        elif self.reservation or self.chance.random() < 0.1:
            self.reservation = self.reservation or Reservation("b.test", self.frontier.using)
            turn = self.reservation.turn(GAP_MS, self.FLIGHT_MS, self.not_before)
            if turn and turn.is_mine and turn.at <= now:
                self.until = now + self.FLIGHT_MS

    def arrive_in_time(self) -> None:
        if self.until and self.until < self.frontier.now + 3_000:
            self._arrive()

    def _arrive(self) -> None:
        self.asked.append(self.frontier.now)
        self.until, self.not_before = 0, self.frontier.now + GAP_MS
        if self.chance.random() < 0.5 and self.reservation:
            self.reservation.end(self.not_before)
            self.reservation, self.not_before = None, 0
