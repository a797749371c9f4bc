"""Fetching a robots.txt in the course of a visit: redirects, errors, and what then holds.

RFC 9309 section 2.3.1: a 4xx allows everything, a 5xx or no answer denies everything while it lasts, unless rules
that were fetched before are there to go on with. A redirect to another host is followed in that host's own time.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from django.db import DatabaseError

from crawl.fetch.addresses import AddressClocks
from crawl.fetch.arrivals import Asking
from crawl.fetch.decode import decode_body
from crawl.fetch.dial import PATIENCE_SECONDS
from crawl.fetch.errors import FINAL_HOST_KINDS, HOST_KINDS, Kind
from crawl.fetch.limits import Limits
from crawl.fetch.loop import FetchLoop
from crawl.fetch.request_headers import for_url
from crawl.fetch.response import Response
from crawl.fetch.robots import MAX_REDIRECTS, MAX_ROBOTS_BYTES, Robots
from crawl.fetch.robots_cache import RobotsCache, lifetime_seconds
from crawl.fetch.target import Target, origin_of
from crawl.fetch.waits import NOTHING, asked, crawl_delay_ms
from crawl.models import RobotsFile
from crawl.record import Writer
from crawl.rows import RobotsRow
from crawl.store.arrivals import ROBOTS
from frontier.blocks import in_force
from frontier.booking import book, end_booking
from frontier.politeness import now_ms
from frontier.urls import URL, InvalidURL, canonicalise
from trawl_project.version import AGENT

if TYPE_CHECKING:
    from crawl.fetch.visit import HostVisit

log = logging.getLogger(__name__)

# After a booking the request arrives within so long, its turn at the address and the connection included.
FLIGHT_MS = int(PATIENCE_SECONDS + Limits().connect_seconds) * 1000
# A visit whose time is used up with waiting for another host comes back after so long.
ELSEWHERE_SECONDS = 10.0
# The database did not answer: when it is asked again.
DATABASE_MS = 5_000


class Neighbours:
    """The hosts that the robots.txt of others lie on, as the frontier knows them. Asks the database."""

    def is_blocked(self, host: str) -> bool:
        """Whether a domain block covers a host."""
        return bool(in_force().blocked([host]))

    def stored(self, origin: str) -> RobotsFile | None:
        """The robots.txt of an origin that was fetched for its own sake and still holds."""
        return RobotsFile.objects.filter(origin=origin, expires_at__gt=now_ms()).first()

    def book(self, host: str, gap_ms: int) -> int | None:
        """Takes the next request to a host (frontier/booking.py)."""
        return book(host, gap_ms)

    def end_booking(self, host: str, arrived_at: int, until: int) -> None:
        """The request that was booked has arrived."""
        end_booking(host, arrived_at, until)


class RobotsFetcher:
    """Fetches robots.txt files for visits. Its methods are called on the loop's thread."""

    def __init__(
        self,
        loop: FetchLoop,
        writer: Writer,
        cache: RobotsCache,
        stopping: Callable[[], bool],
        neighbours: Neighbours,
    ) -> None:
        self.loop = loop
        self.writer = writer
        self.cache = cache
        self.stopping = stopping
        self.neighbours = neighbours
        # Hosts that the frontier does not know and that the robots.txt of others lie on.
        self.strangers = AddressClocks()
        self.workers = 1  # that are alive: their clocks do not know of each other, so each takes its share

    def fetch(self, visit: "HostVisit", origin: str, target: Target) -> None:
        """Fetches the rules of an origin, then calls visit.robots_done."""
        one = _RobotsFetch(self, visit, origin, target)
        visit.wait(target, lambda: one.ask(f"{origin}/robots.txt", 0))


class _RobotsFetch:
    """One robots.txt on its way, through its redirects."""

    def __init__(self, around: RobotsFetcher, visit: "HostVisit", origin: str, target: Target) -> None:
        self.around = around
        self.visit = visit
        self.origin = origin
        self.target = target
        self.foreign = ""  # the host of the latest request, where it was another one
        self.booked = False  # on that host's row
        self.broken_off: bytes | None = None  # what came of a file at the first try

    # --- requests --------------------------------------------------------------------------------------

    def ask(self, url: str, hops: int) -> None:
        """Asks the host of the visit itself, which is due; it counts as a request like any other."""
        self.foreign = ""
        self._dial(url, hops, 0)

    def _dial(self, url: str, hops: int, gap_ms: int) -> None:
        visit = self.visit
        if self.around.stopping():
            visit.robots_done(self.target, None)
            return
        headers = [
            f"User-Agent: {self.target.plan.user_agent}",
            "Accept: text/plain,*/*;q=0.5",
            "Accept-Encoding: gzip",
            *for_url(url, self.target.plan.headers, self.target.plan.credentials),
        ]
        visit.asking(Asking(ROBOTS, self.foreign, gap_ms))
        visit.dial(url, self.target, headers, lambda r: self._answered(url, hops, gap_ms, r), MAX_ROBOTS_BYTES + 1)

    def _answered(self, url: str, hops: int, gap_ms: int, response: Response) -> None:
        self.visit.arrived(response)
        if self.foreign and self.booked:
            wish = asked(response) if response.status == 429 or response.status >= 500 else NOTHING
            host, arrived_at = self.foreign, int(response.arrived_at * 1000)
            until = max(arrived_at + gap_ms, now_ms() + wish.ms)
            self.around.writer.ask(lambda: self.around.neighbours.end_booking(host, arrived_at, until))
        location = response.headers.get("location", "").strip()
        if response.status in (301, 302, 303, 307, 308) and location and hops < MAX_REDIRECTS:
            try:
                follow = canonicalise(location, url)
            except InvalidURL:
                follow = None
            if follow:
                self._follow(follow, hops + 1)
                return
        self._judge(response)

    def _follow(self, url: URL, hops: int) -> None:
        if refusal := self.target.plan.scope.ports.refusal(url.host):
            self._fail(f"robots.txt is on {url.host}: {refusal}")
        elif url.host == self.visit.lease.name:
            self.visit.wait(self.target, lambda: self.ask(url.fetch, hops))
        else:
            self._ask_elsewhere(url, hops)

    # --- on another host -------------------------------------------------------------------------------

    def _ask_elsewhere(self, url: URL, hops: int) -> None:
        """Takes the file from the database when it is that host's own robots.txt and was fetched for its sake; else
        asks for it in that host's time."""
        origin = origin_of(url.fetch)
        rules = self.around.cache.get(origin)
        gap_ms = max(self.target.plan.delay_ms, crawl_delay_ms(rules.crawl_delay if rules else None))
        submit, neighbours = self.around.loop.submit, self.around.neighbours

        def look() -> None:
            try:
                if neighbours.is_blocked(url.host):
                    submit(lambda: self._fail(f"robots.txt is on {url.host}, which is blocked"))
                    return
                row = neighbours.stored(origin) if url.fetch == f"{origin}/robots.txt" else None
                if row:
                    status, body, expires = row.status, bytes(row.body), row.expires_at
                    submit(lambda: self._take(status, body, expires / 1000))
                    return
                at = neighbours.book(url.host, FLIGHT_MS + gap_ms)
            except (DatabaseError, OSError) as error:
                log.warning("the database did not answer: %s", error)
                at = now_ms() + DATABASE_MS
            submit(lambda: self._booked(url, hops, gap_ms, at))

        self.around.writer.ask(look)

    def _booked(self, url: URL, hops: int, gap_ms: int, at: int | None) -> None:
        now = time.time()
        if at is None:  # nobody visits it; the clock is this process's own
            gap = gap_ms * self.around.workers / 1000
            free = self.around.strangers.ask(url.host, self.visit.lease.name, gap, now) if gap else now
        else:
            free = at / 1000

        if free > now and self.visit.is_over():
            free = max(free, now + ELSEWHERE_SECONDS)
        if free - now > PATIENCE_SECONDS:
            self.visit.put_off(self.target, free, f"its robots.txt is on {url.host}, which has its own pace")
        elif free > now:
            self.visit.wait_until(free, self.target, lambda: self._ask_elsewhere(url, hops))
        else:
            self.foreign, self.booked = url.host, at is not None
            self._dial(url.fetch, hops, gap_ms)

    # --- what came of it -------------------------------------------------------------------------------

    def _judge(self, response: Response) -> None:
        kind, status = response.error, response.status
        if status == 429 or status >= 500:
            self._fail(f"robots.txt answers {status}", response)
        elif kind and response.truncated and (status >= 300 or kind is Kind.TOO_LARGE):
            self._take_response(response)  # the status alone tells, or the rules up to the cap hold
        elif kind and response.truncated == "disconnect" and status >= 200 and response.body:
            self._broken_off(response)
        elif kind and (self.foreign or kind not in (*HOST_KINDS, *FINAL_HOST_KINDS)):
            self._fail(f"robots.txt{f' on {self.foreign}' if self.foreign else ''}: {kind}", response)
        elif kind:
            self.visit.robots_done(self.target, response)
        else:
            self._take_response(response)

    def _broken_off(self, response: Response) -> None:
        """The rules that are missing may forbid what the others allow, so the file is asked for once more. What ends at
        the same place again is whole, and has only a wrong Content-Length or no last chunk."""
        if self.broken_off is None:
            self.broken_off = response.body
            self.visit.wait(self.target, lambda: self.ask(f"{self.origin}/robots.txt", 0))
        elif self.broken_off == response.body:
            self._take_response(response)
        else:
            self._fail("robots.txt breaks off", response)

    def _fail(self, detail: str, response: Response | None = None) -> None:
        """There is a file that cannot be read now. The rules that were read before hold on, unless the host asks for
        a pause; without any the host is closed for now."""
        if not (response and asked(response).ms) and self.around.cache.go_on_with_old(self.origin):
            self.visit.robots_done(self.target, None)
            return
        if response is None:
            now = time.time()
            response = Response(f"{self.origin}/robots.txt", started_at=now, sent_at=now, arrived_at=now, ended_at=now)
        response.error, response.detail = Kind.ROBOTS_UNREACHABLE, detail
        self.visit.robots_done(self.target, response)

    def _take_response(self, response: Response) -> None:
        body = decode_body(response.body, response.headers.get("content-encoding"), MAX_ROBOTS_BYTES).body
        robots = Robots.from_status(response.status, body, AGENT)
        held = lifetime_seconds(response.headers.get("cache-control", ""), crawl_delay_ms(robots.crawl_delay) / 1000)
        self._take(response.status, body, time.time() + held, robots)

    def _take(self, status: int, body: bytes, expires: float, robots: Robots | None = None) -> None:
        """Rules that hold for the origin that was asked first, whoever served them."""
        self.around.cache.keep(self.origin, robots or Robots.from_status(status, body, AGENT), expires)
        self.around.writer.save_robots(RobotsRow(self.origin, status, body, now_ms(), int(expires * 1000)))
        self.visit.robots_done(self.target, None)
