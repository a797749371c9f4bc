"""One URL through the engine of a crawl: what it shows is what a crawl would do. Nothing is stored.

Visits, clocks, robots.txt, guard, loop and discovery are those of a crawl. In place of the writer stands one that only
notes what it is given, and in place of the queues a few dictionaries: a URL is known if it was asked for before, and
a host has the clock that its last visit left. Hosts that the frontier knows are asked in their turn, between the visits
of a crawl (`InTurn`). Redirects to other hosts, which a crawl queues, are followed here, each in a visit of its own.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from django.db import connections

from crawl.fetch.engine import Engine, Options
from crawl.fetch.loop import FetchLoop
from crawl.fetch.resolver import Resolver
from crawl.fetch.response import Response
from crawl.fetch.robots_fetch import FLIGHT_MS, Neighbours
from crawl.fetch.target import Known, Outcome, Target
from crawl.fetch.visit import MAX_BODY_BYTES, HostVisit
from crawl.fetch.waits import why_so_slow
from crawl.fetch.watched import Notes, Step, WatchedLoop, WatchedResolver
from crawl.models import RobotsFile
from crawl.pages import key_of
from crawl.plan import Plan
from crawl.record import Ended, Record, Writer
from crawl.rows import RobotsRow
from crawl.store.archive import Archive
from crawl.store.arrivals import ArrivalLogs
from frontier.blocks import covering
from frontier.booking import Reservation, Standing, Turn, standing
from frontier.claim import Visit
from frontier.complete import Release
from frontier.politeness import now_ms
from frontier.urls import URL, url_hash

MAX_HOSTS = 10  # in a row, by redirects
# A longer wait, by a Crawl-delay for example, is told and not waited for.
MAX_WAIT_SECONDS = 600.0
LOOK_SECONDS = 0.1
END_SECONDS = 1.0  # before the end of its wait a visit is begun: it waits for the exact moment itself


class SingleFetch(Engine):
    """Fetches one URL. `turns`: the frontier beside it. `tell`: called again and again meanwhile, on the caller's
    thread, with what is being done."""

    def __init__(
        self,
        options: Options,
        turns: "Strangers | None" = None,
        tell: Callable[[str], None] = lambda doing: None,
    ) -> None:
        self.notes = Notes()
        self.turns = turns or Strangers()
        self.is_blocked = self.turns.is_blocked
        self._tell = tell
        self._asked: set[str] = set()  # canonical URLs
        self._clocks: dict[str, Release] = {}
        self._follow = True
        self._ended = threading.Event()
        self._visit: WatchedVisit | None = None
        self._noting = _Noting()
        super().__init__(options, lambda hosts, links: None)

    def fetch(self, url: URL, plan: Plan, *, known: Known | None = None, depth: int = 0, follow: bool = True) -> None:
        """Fetches a URL, and what it redirects to; `notes.hops` then holds what came of it.

        `known`: what is known of the page, to be asked for by it; `depth`: its own; `follow`: redirects.
        """
        self._follow = follow
        self.loop.start()
        target = Target(url, key_of(1, url_hash(url.canonical, 0)), plan, depth, known=known)
        for _ in range(MAX_HOSTS):
            self._visit_host(target)
            after = self.next_host()
            if after is None or not follow:
                break
            target = Target(after, key_of(1, url_hash(after.canonical, 0)), plan, depth)

    def next_host(self) -> URL | None:
        """Where the last answer redirects to, if that is another host and was not asked for before."""
        last = self.notes.hops[-1]
        redirect = last.record.outcome.redirect if last.record else None
        return redirect if redirect and redirect.canonical not in self._asked else None

    def close(self, seconds: float = 0) -> None:
        """Ends the threads at once."""
        self._stopping = True
        self.resolver.close()
        if self.loop.is_alive():
            self.loop.close()

    # --- visits, from the caller's thread --------------------------------------------------------------------

    def _visit_host(self, target: Target) -> None:
        """Visits the host of a URL, again and again for as long as nothing but its pace ends the visit."""
        name = target.url.host
        if self.is_blocked(name):
            self._blocked.add(name)
        targets = deque([target])
        while targets:
            visit = self._visit = WatchedVisit(self._open(name), targets, self)
            visit.due_at = visit.lease.due_at / 1000
            if visit.due_at - time.time() > MAX_WAIT_SECONDS:
                break
            self._committed[id(visit)] = self._ended.set
            if visit.due_at > time.time():
                self.notes.has_to_wait()
            self._wait_for(visit, visit.due_at - END_SECONDS)
            self._ended.clear()
            self.loop.submit(lambda visit=visit: self._begin(visit))  # type: ignore[misc]
            while not self._ended.wait(LOOK_SECONDS):
                self._look()
            targets = visit.targets
            if visit.is_held_up:
                break
        self.turns.end(name, int(visit.due_at * 1000) + 1)
        if targets:
            self.notes.hop(targets[0], visit)

    def _open(self, name: str) -> Visit:
        """The visit as a crawl would open it."""
        last, known = self._clocks.get(name), self.turns.standing(name)
        due_at, gap_ms, reason = (last.due_at, last.gap_ms, last.reason) if last else (0, 0, "")
        if known is None:
            return Visit(1, name, 1, due_at, gap_ms, None, 0, reason, [])
        if known.free_at > due_at:
            due_at, reason = known.free_at, known.reason
        return Visit(known.host, name, 1, due_at, max(gap_ms, known.gap_ms), known.delay_ms, 0, reason, [])

    def _wait_for(self, visit: HostVisit, until: float) -> None:
        while time.time() < until:
            self._tell(f"waits {until + END_SECONDS - time.time():.0f} s: {self.pace_of(visit)}")
            time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        if self.notes.failure:
            raise self.notes.failure
        if not self.loop.is_alive():
            raise RuntimeError("the fetch loop has ended")
        self._tell(self.notes.doing)

    # --- what a visit needs, on the loop's thread ---------------------------------------------------------------

    def permits(self, address: str, plan: Plan) -> bool:
        is_permitted = super().permits(address, plan)
        reason = ""
        if not is_permitted:
            reason = self.guard.refusal(address) or "without a contact nothing beyond this machine is asked"
        self.notes.look_up(address).addresses[address] = reason
        return is_permitted

    def fetch_robots(self, visit: HostVisit, origin: str, target: Target) -> None:
        assert isinstance(visit, WatchedVisit)
        visit.asks_robots = True
        super().fetch_robots(visit, origin, target)

    def record(self, visit: HostVisit, outcome: Outcome) -> None:
        super().record(visit, outcome)
        self.notes.hop(outcome.target, visit).record = self._noting.noted[-1]

    def if_unknown(self, target: Target, then: HostVisit) -> None:
        target.key = key_of(1, url_hash(target.url.canonical, 0))
        if target.url.canonical in self._asked or not self._follow:
            then.proceed()
        else:
            then.take_redirect(target)

    def finish(self, visit: HostVisit, release: Release) -> None:
        self._clocks[visit.lease.name] = release
        super().finish(visit, release)

    def asks(self, target: Target) -> None:
        """A page is asked for."""
        self._asked.add(target.url.canonical)

    # --- parts -------------------------------------------------------------------------------------------------

    def _make_loop(self) -> FetchLoop:
        return WatchedLoop(self.guard, self.options.ca_file, self.notes, lambda: self.pace_of(self._visit))

    def _make_resolver(self) -> Resolver:
        resolver = WatchedResolver(self.options.overrides, self.loop, self.options.name_servers)
        resolver.notes = self.notes
        return resolver

    def _make_writer(self, after_commit: Callable[[int, int], None]) -> Writer:
        return self._noting

    def _make_neighbours(self) -> Neighbours:
        return self.turns

    @staticmethod
    def pace_of(visit: HostVisit | None) -> str:
        """Why a host is not asked at once."""
        if isinstance(visit, WatchedVisit) and visit.let_pass:
            return f"a crawl is visiting {visit.lease.name}"
        if visit and visit.lease.reason and not visit.last_arrival:
            return visit.lease.reason
        if visit is None or visit.manners is None:
            return "the host's pace"
        plan, crawl_delay = visit.manners
        slow = why_so_slow(visit.lease.delay_ms, plan, crawl_delay, visit.pace, visit.bad_in_row > 1)
        return slow or f"delay of {visit.pace.delay / 1000:g} s"


class WatchedVisit(HostVisit):
    """The visit of a crawl, which notes what it asks for."""

    around: SingleFetch
    asks_robots = False
    let_pass = False  # before the request that is under way, a crawl had its turn
    queued_at = 0.0

    @property
    def is_held_up(self) -> bool:
        """Whether something else than the host's pace has ended it: a crawl would come back later."""
        return bool(self.reason)

    def dial(
        self,
        url: str,
        target: Target,
        headers: list[str],
        done: Callable[[Response], None],
        max_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        notes = self.around.notes
        step = Step(url, self.asks_robots)
        notes.hop(target, self).steps.append(step)
        if not self.asks_robots:
            self.around.asks(target)

        def answered(response: Response) -> None:
            step.error, step.detail = response.error, response.detail
            done(response)

        super().dial(url, target, headers, answered, max_bytes)

    def robots_done(self, target: Target, failure: Response | None) -> None:
        self.asks_robots = False
        if failure:
            step = self.around.notes.step
            step.error, step.detail = failure.error, failure.detail
        super().robots_done(target, failure)

    def wait(self, target: Target, then: Callable[[], None]) -> None:
        """Each request is sent in the host's turn."""
        self.let_pass, self.queued_at = False, time.time()
        self._take_turn(target, then)

    def _take_turn(self, target: Target, then: Callable[[], None]) -> None:
        turns, name, now = self.around.turns, self.lease.name, time.time()
        turn = turns.turn(name, self.pace.delay, int(self.due_at * 1000))
        if turn and not turn.is_mine:
            self.let_pass = True
            self.around.notes.has_to_wait()
            self.around.notes.doing = f"waits for its turn: {self.around.pace_of(self)}"
            if now - self.queued_at > MAX_WAIT_SECONDS:
                self.put_off(target, now, self.around.pace_of(self))
            else:
                super().wait_until(turn.at / 1000, target, lambda: self._take_turn(target, then))
            return
        if turn:
            self.due_at = max(self.due_at, turn.at / 1000)
        super().wait(target, then)

    def wait_until(self, at: float, target: Target, then: Callable[[], None]) -> None:
        self.around.notes.doing = f"waits {at - time.time():.1f} s: {self.around.pace_of(self)}"
        super().wait_until(at, target, then)


class _Noting(Writer):
    """Stands where the writer stands. It is never started, and writes nothing."""

    def __init__(self) -> None:
        super().__init__(Archive(Path()), ArrivalLogs(Path()), lambda hosts, links: None)
        self.noted: list[Record] = []

    def record(self, record: Record) -> None:
        self.noted.append(record)

    def end(self, ended: Ended) -> None:
        ended.committed()

    def save_robots(self, row: RobotsRow) -> None:
        """The rules are in the cache of the engine."""

    def ask(self, job: Callable[[], None]) -> None:
        job()


class Strangers(Neighbours):
    """Hosts that no frontier knows: there is none, or it has nothing to do with the fetch."""

    def is_blocked(self, host: str) -> bool:
        return False

    def stored(self, origin: str) -> RobotsFile | None:
        return None

    def book(self, host: str, gap_ms: int) -> int | None:
        return None

    def standing(self, host: str) -> Standing | None:
        """How the frontier sees a host."""
        return None

    def turn(self, host: str, gap_ms: int, not_before: int) -> Turn | None:
        """Takes a host's turn (frontier/booking.py)."""
        return None

    def end(self, host: str, until: int) -> None:
        """No further request is sent; the host may be asked again at a time (ms since 1970)."""


class InTurn(Strangers):
    """Hosts as the frontier knows them. `with_blocks`: whether domain blocks hold.

    Called on two threads, one at a time. None keeps its connection.
    """

    def __init__(self, with_blocks: bool) -> None:
        self._reservations: dict[str, Reservation] = {}
        self._is_blocked = cache(lambda host: with_blocks and bool(covering([host])))

    def is_blocked(self, host: str) -> bool:
        with _connected():
            return self._is_blocked(host)

    def stored(self, origin: str) -> RobotsFile | None:
        with _connected():
            return Neighbours.stored(self, origin)

    def book(self, host: str, gap_ms: int) -> int | None:
        turn = self.turn(host, gap_ms - FLIGHT_MS, 0)
        return turn and (0 if turn.is_mine and turn.at <= now_ms() else turn.at)

    def end_booking(self, host: str, arrived_at: int, until: int) -> None:
        with _connected():
            found = standing(host, now_ms())
        self.end(host, max(until, arrived_at + (found.gap_ms if found else 0)))

    def standing(self, host: str) -> Standing | None:
        with _connected():
            found = self._reservation(host).standing(now_ms())
        return found

    def turn(self, host: str, gap_ms: int, not_before: int) -> Turn | None:
        with _connected():
            return self._reservation(host).turn(gap_ms, FLIGHT_MS, not_before)

    def end(self, host: str, until: int) -> None:
        with _connected():
            self._reservation(host).end(until)

    def _reservation(self, host: str) -> Reservation:
        return self._reservations.setdefault(host, Reservation(host))


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    finally:
        connections["default"].close()
