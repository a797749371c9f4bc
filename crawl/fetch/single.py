"""One URL through the engine of a crawl: what it shows is what a crawl would do. Nothing is stored.

Visits, clocks, robots.txt, guard, loop and discovery are those of a crawl. In place of the writer stands one that only
notes what it is given, and in place of the frontier a few dictionaries: a URL is known if it was asked for before, and
a host has the clock that its last visit left. Redirects to other hosts, which a crawl queues, are followed here, each
in a visit of its own.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from crawl.fetch.engine import Engine, Options
from crawl.fetch.loop import FetchLoop
from crawl.fetch.resolver import Resolver
from crawl.fetch.response import Response
from crawl.fetch.robots_fetch import Neighbours
from crawl.fetch.target import Known, Outcome, Target
from crawl.fetch.visit import MAX_BODY_BYTES, HostVisit
from crawl.fetch.waits import why_so_slow
from crawl.fetch.watched import Notes, Step, WatchedLoop, WatchedResolver
from crawl.pages import key_of
from crawl.plan import Plan
from crawl.record import Ended, Record, Writer
from crawl.rows import RobotsRow
from crawl.store.archive import Archive
from crawl.store.arrivals import ArrivalLogs
from frontier.claim import Visit
from frontier.complete import Release
from frontier.urls import URL, url_hash

MAX_HOSTS = 10  # in a row, by redirects
# A longer wait, by a Crawl-delay for example, is told and not waited for.
MAX_WAIT_SECONDS = 600.0
LOOK_SECONDS = 0.1
END_SECONDS = 1.0  # before the end of its wait a visit is begun: it waits for the exact moment itself


class SingleFetch(Engine):
    """Fetches one URL. `blocked`: whether a domain block covers a host. `tell`: called again and again meanwhile, on
    the caller's thread, with what is being done."""

    def __init__(
        self,
        options: Options,
        blocked: Callable[[str], bool] = lambda host: False,
        tell: Callable[[str], None] = lambda doing: None,
    ) -> None:
        self.notes = Notes()
        self.is_blocked = blocked
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
            clock = self._clocks.get(name)
            due_at, gap_ms = (clock.due_at, clock.gap_ms) if clock else (0, 0)
            visit = WatchedVisit(Visit(1, name, 1, due_at, gap_ms, None, 0, "", []), targets, self)
            self._visit = visit
            self._committed[id(visit)] = self._ended.set
            self._wait_for(visit, due_at / 1000 - END_SECONDS)
            self._ended.clear()
            self.loop.submit(lambda visit=visit: self._begin(visit))  # type: ignore[misc]
            while not self._ended.wait(LOOK_SECONDS):
                self._look()
            targets = visit.targets
            if visit.is_held_up or visit.due_at - time.time() > MAX_WAIT_SECONDS:
                break
        if targets:
            self.notes.hop(targets[0], visit)

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
        return _Strangers(self.is_blocked)

    @staticmethod
    def pace_of(visit: HostVisit | None) -> str:
        """Why a host is not asked at once."""
        if visit is None or visit.manners is None:
            return "the host's pace"
        plan, crawl_delay = visit.manners
        slow = why_so_slow(visit.lease.delay_ms, plan, crawl_delay, visit.pace, visit.bad_in_row > 1)
        return slow or f"delay of {visit.pace.delay / 1000:g} s"


class WatchedVisit(HostVisit):
    """The visit of a crawl, which notes what it asks for."""

    around: SingleFetch
    asks_robots = False

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


class _Strangers(Neighbours):
    """Hosts that no frontier knows."""

    def __init__(self, is_blocked: Callable[[str], bool]) -> None:
        self._is_blocked = is_blocked

    def is_blocked(self, host: str) -> bool:
        return self._is_blocked(host)

    def stored(self, origin: str) -> None:
        return None

    def book(self, host: str, gap_ms: int) -> None:
        return None
