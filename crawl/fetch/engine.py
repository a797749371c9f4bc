"""The fetch engine of a worker process: the loop, the writer, and what visits share."""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from crawl.discover import Discovery, discover
from crawl.fetch.addresses import AddressClocks
from crawl.fetch.authorities import CA_FILE
from crawl.fetch.cookies import CookieJars
from crawl.fetch.dial import BadAddresses
from crawl.fetch.errors import Kind
from crawl.fetch.guard import Guard, is_loopback
from crawl.fetch.loop import FetchLoop
from crawl.fetch.proxies import Proxies
from crawl.fetch.resolver import Resolver, fixed_address, is_private
from crawl.fetch.robots import Robots
from crawl.fetch.robots_cache import RobotsCache
from crawl.fetch.robots_fetch import Neighbours, RobotsFetcher
from crawl.fetch.room import Room, allow_many_files
from crawl.fetch.target import Outcome, Target
from crawl.fetch.visit import HostVisit
from crawl.models import Campaign, Worker
from crawl.pages import key_of, places
from crawl.plan import Plan
from crawl.record import Ended, Record, Writer
from crawl.store.archive import Archive
from crawl.store.arrivals import Arrival, ArrivalLogs
from frontier.admission import Link
from frontier.blocks import in_force
from frontier.complete import Clock, Release
from frontier.politeness import now_ms
from frontier.priority import REDIRECT
from frontier.state import hash_seed
from frontier.urls import url_hash
from trawl_project.allocator import share_arenas
from trawl_project.collector import relax

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5
WORKER_ALIVE_MS = 20_000  # a worker that has been silent for longer is taken for dead
# No visit lasts so long by itself: VISIT_SECONDS, a look-up, a robots.txt with redirects, and one request.
MAX_VISIT_SECONDS = 900
ROOM_SECONDS = 1.0
# A server that many hosts share is asked this many times as often as a host, at most.
ADDRESS_SHARE = 10


@dataclass(frozen=True, slots=True)
class Options:
    """How a process fetches; see docs/settings.md."""

    data: Path
    overrides: tuple[tuple[str, str], ...] = ()
    allow_networks: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    name_servers: tuple[str, ...] = ()
    ca_file: str = CA_FILE
    lease_ms: int = 60_000
    capacity: int = 1000


class Engine:
    """Fetches for one process. `start` it, give it visits from any thread, `stop` it, `close` it."""

    def __init__(self, options: Options, after_commit: Callable[[int, int], None]) -> None:
        self.options = options
        self.proxies = Proxies(options.proxies)
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self.guard = Guard(options.allow_networks)
        self.loop = self._make_loop()
        if self.proxies:
            self.loop.allow_proxy()
        self.resolver = self._make_resolver()
        self.writer = self._make_writer(after_commit)
        # Names of hosts under visit that a domain block covers. The loop itself asks no database.
        self._blocked: set[str] = set()
        self._halted: set[int] = set()
        self.robots_cache = RobotsCache()
        self._robots_fetcher = RobotsFetcher(
            self.loop, self.writer, self.robots_cache, self.stopping, self._make_neighbours()
        )
        self._room = Room(options.capacity)
        self._after_commit = after_commit
        self._visits: dict[int, HostVisit] = {}
        self._committed: dict[int, Callable[[], None]] = {}
        self._stopping = False
        self._seed = 0
        self._addresses = AddressClocks()
        self.cookies = CookieJars()
        self.bad_addresses = BadAddresses()
        self._workers = 1  # that are alive, this one included

    # --- parts; an engine for another purpose has others (crawl/fetch/single.py) --------------------

    def _make_loop(self) -> FetchLoop:
        return FetchLoop(self.guard, self.options.ca_file)

    def _make_resolver(self) -> Resolver:
        return Resolver(self.options.overrides, self.loop, self.options.name_servers)

    def _make_writer(self, after_commit: Callable[[int, int], None]) -> Writer:
        data = self.options.data
        return Writer(Archive(data / "warc"), ArrivalLogs(data / "arrivals"), after_commit)

    def _make_neighbours(self) -> Neighbours:
        return Neighbours()

    # --- called from any thread --------------------------------------------------------------------

    def start(self) -> None:
        """Starts the threads."""
        allow_many_files()
        self._seed = hash_seed()
        in_force()
        relax()
        share_arenas()
        self.loop.start()
        self.writer.start()
        self.loop.submit(self._heartbeat)
        self.loop.submit(self._make_room)

    def visit(self, visits: Iterable[tuple[HostVisit, Callable[[], None]]]) -> None:
        """Begins visits; each second part is called, on the writer's thread, when its visit is stored."""
        visits = list(visits)
        self._blocked.update(in_force().blocked([visit.lease.name for visit, _ in visits]))
        for visit, committed in visits:
            self._halted -= {target.plan.campaign for target in visit.targets}
            self._committed[id(visit)] = committed
            self.loop.submit(lambda visit=visit: self._begin(visit))  # type: ignore[misc]

    @property
    def visiting(self) -> int:
        """How many visits are under way."""
        return len(self._visits)

    def stop(self) -> None:
        """Lets every visit end after the request it is in; new ones end at once."""
        self._stopping = True
        self.loop.submit(self._hurry)

    def close(self, seconds: float = 90) -> None:
        """Stops, waits for the requests in flight, stores everything, ends the threads."""
        self.stop()
        until = time.monotonic() + seconds
        while self._visits and time.monotonic() < until:
            time.sleep(0.02)
        self.writer.ask(lambda: Worker.objects.filter(name=self.name).delete() and None)
        self.writer.close()
        self.resolver.close()
        self.loop.close()

    # --- on the loop's thread: what visits need ------------------------------------------------------

    def stopping(self) -> bool:
        return self._stopping

    def behind(self) -> bool:
        return self.writer.behind()

    def permits(self, address: str, plan: Plan) -> bool:
        """A campaign that nobody can complain about stays on this machine."""
        return self.guard.permits(address) and (not plan.only_loopback or is_loopback(address))

    def refusal(self, name: str, plan: Plan) -> str:
        address = fixed_address(name, self.options.overrides)
        if address:
            return "" if self.permits(address, plan) else f"{name} is not a public address"
        if plan.only_loopback:
            return f"{name} may be anywhere, and a campaign without a contact stays on this machine"
        return f"{name} is a name of a private network" if is_private(name) else ""

    def turn(self, address: str, host: str, plan: Plan) -> float:
        now = time.time()
        gap_ms = plan.address_delay_ms
        if gap_ms is None:
            gap_ms = 0 if self.guard.opened(address) else plan.delay_ms // ADDRESS_SHARE
        # The clocks of the workers do not know of each other: each takes its share.
        return self._addresses.ask(address, host, gap_ms * self._workers / 1000, now) if gap_ms else now

    def blocked(self, host: str) -> bool:
        return host in self._blocked

    def halted(self, campaign: int) -> bool:
        return campaign in self._halted

    def robots(self, origin: str) -> Robots | None:
        return self.robots_cache.get(origin)

    def fetch_robots(self, visit: HostVisit, origin: str, target: Target) -> None:
        self._robots_fetcher.fetch(visit, origin, target)

    def _begin(self, visit: HostVisit) -> None:
        self._visits[id(visit)] = visit
        visit.begin()

    def _hurry(self) -> None:
        """Ends the visits that only wait, for their time or for an address."""
        self.resolver.give_up()
        for visit in list(self._visits.values()):
            visit.hurry()

    def record(self, visit: HostVisit, outcome: Outcome) -> None:
        target, response = outcome.target, outcome.response
        found, links = Discovery(), []
        if response is not None and 200 <= response.status < 300 and response.lines:
            try:
                found = discover(response, target.url, target.depth, target.plan)
            except Exception as error:  # a page that breaks the parser must not stop its host's visit
                log.exception("cannot read %s", response.url)
                outcome.error, outcome.detail = Kind.INTERNAL, f"{type(error).__name__}: {error}"
            if found.error and not outcome.error:
                outcome.error, outcome.detail = (
                    found.error,
                    f"unpacks to far more than its {len(response.body):,} bytes",
                )
            links = found.links
        elif outcome.redirect:
            links = [Link(outcome.redirect, REDIRECT, target.depth)]
        clock = None
        if response is not None:
            clock = Clock(visit.lease.host, visit.lease.token, int(visit.due_at * 1000) + 1, visit.pace.delay)
        self.writer.record(Record(outcome, found, links, clock))

    def log_arrival(self, log: str, arrival: Arrival) -> None:
        self.writer.log_arrival(log, arrival)

    def if_unknown(self, target: Target, then: HostVisit) -> None:
        target.key = key_of(target.key.queue, url_hash(target.url.canonical, self._seed))

        def look() -> None:
            known = places([target.key])[target.key].exists
            self.loop.submit(then.proceed if known else lambda: then.take_redirect(target))

        if target.key in then.fetched:
            then.proceed()
        else:
            self.writer.ask(look)

    def finish(self, visit: HostVisit, release: Release) -> None:
        if self._visits.pop(id(visit), None) is None:
            return  # given up before
        self._blocked.discard(visit.lease.name)
        back: dict[int, int] = {}
        for target in visit.targets:
            if target.row is not None:
                back[target.plan.run] = back.get(target.plan.run, 0) + 1
        self.writer.end(Ended(release, back, self._committed.pop(id(visit))))

    # --- signs of life -----------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        for visit in [v for v in self._visits.values() if time.time() - v.started > MAX_VISIT_SECONDS]:
            log.error("the visit of %s got lost after an error; its host is given back", visit.lease.name)
            visit.give_up()
        self.robots_cache.retire()
        leases = [visit.lease.token for visit in self._visits.values()]
        visiting = self.visiting
        names = [visit.lease.name for visit in self._visits.values()]
        look_ups = self.resolver.look_ups.as_dict()

        def beat() -> None:
            Worker.objects.update_or_create(
                name=self.name,
                defaults={
                    "seen_at": now_ms(),
                    "capacity": self._room.capacity,
                    "visiting": visiting,
                    "look_ups": look_ups,
                },
            )
            self._blocked.update(in_force().blocked(names))
            idle = Campaign.objects.exclude(status=Campaign.Status.RUNNING)
            self._halted = set(idle.values_list("id", flat=True))
            self._workers = max(1, Worker.objects.filter(seen_at__gt=now_ms() - WORKER_ALIVE_MS).count())
            self._robots_fetcher.workers = self._workers

        self.writer.ask(beat)
        if leases:
            self.writer.renew(leases, self.options.lease_ms)
        self.loop.call_at(time.time() + HEARTBEAT_SECONDS, self._heartbeat)

    def _make_room(self) -> None:
        """Visits that wait for a slow answer make room for others."""
        now = time.time()
        if self._room.changed(visit.asked_at for visit in self._visits.values()) and not self._stopping:
            capacity = self._room.capacity

            def tell() -> None:
                Worker.objects.filter(name=self.name).update(capacity=capacity)
                self._after_commit(1, 0)

            self.writer.ask(tell)
        self.loop.call_at(now + ROOM_SECONDS, self._make_room)


_lock = threading.Lock()
_engine: Engine | None = None


def engine(make: Callable[[], Engine]) -> Engine:
    """The engine of this process, made and started at the first call."""
    global _engine
    with _lock:
        if _engine is None:
            _engine = make()
            _engine.start()
        return _engine


def running_engine() -> Engine | None:
    """The engine of this process if it was started."""
    return _engine


def close_engine() -> None:
    """Ends the engine of this process, if there is one."""
    global _engine
    with _lock:
        if _engine is not None:
            _engine.close()
            _engine = None
