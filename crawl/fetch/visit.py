"""One visit: one host, its URLs in turn, with the due gap between the arrivals of two requests.

A visit lives on the fetch loop's thread and is a chain of callbacks: robots.txt first, then for each
URL its verdict, the wait until the host is due, the address, the request, and what follows from the
answer. It ends when its URLs or its time are used up, when the host asks for a pause or does not
answer, or when the worker stops; URLs it did not get to stay in their queue.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

from crawl.fetch import failing
from crawl.fetch.arrivals import A_PAGE, Asking, log_request
from crawl.fetch.cookies import CookieJars
from crawl.fetch.dial import BadAddresses, Dialling
from crawl.fetch.errors import FINAL_HOST_KINDS, HOST_KINDS, SILENT_KINDS, TRANSIENT_KINDS, Kind
from crawl.fetch.loop import FetchLoop
from crawl.fetch.misanswer import misanswer
from crawl.fetch.proxies import Proxies
from crawl.fetch.request_headers import withheld
from crawl.fetch.resolver import Resolver
from crawl.fetch.response import REDIRECTS, Request, Response
from crawl.fetch.robots import Robots
from crawl.fetch.target import Outcome, Target, headers_for, is_conditional, origin_of, request_head
from crawl.fetch.waits import BLOCKED, REASON_CHARS, SERVER_ERRORS, adapts, own_ms, pace_of, why_so_slow
from crawl.pages import Key
from crawl.plan import Plan
from crawl.store.arrivals import Arrival
from frontier.claim import Visit
from frontier.complete import Release
from frontier.politeness import ADAPTIVE_MAX_MS, Pace, adapted_ms, backoff_ms, next_at, slowed_ms
from frontier.urls import InvalidURL, canonicalise

VISIT_SECONDS = 30  # after this no further request is begun, so that other hosts get their turn
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_REDIRECTS = 10  # hops on one host that are followed at once
KEEP_CONNECTION_MS = 10_000  # with a longer delay a connection is not kept for the next request
BEHIND_SECONDS = 0.2  # how long a visit waits for a writer that is behind

NO_PACE = Pace(0)


class Surroundings(Protocol):
    """What a visit needs of the engine. All of it is called on the loop's thread."""

    loop: FetchLoop
    resolver: Resolver
    cookies: CookieJars
    bad_addresses: BadAddresses
    proxies: Proxies

    def stopping(self) -> bool:
        """Whether the worker is to end."""

    def behind(self) -> bool:
        """Whether the writer has so much to do that fetching must wait."""

    def permits(self, address: str, plan: Plan) -> bool:
        """Whether an address may be dialled for a campaign."""

    def refusal(self, name: str, plan: Plan) -> str:
        """Why a name may not be handed to a proxy, which would look it up; empty where it may."""

    def turn(self, address: str, host: str, plan: Plan) -> float:
        """When the host may send its next request to an address (time.time()): now, or else ask again then."""

    def blocked(self, host: str) -> bool:
        """Whether a domain block covers the host."""

    def halted(self, campaign: int) -> bool:
        """Whether a campaign was paused or stopped since the visit began."""

    def robots(self, origin: str) -> Robots | None:
        """The rules of an origin, or None when they must be fetched."""

    def fetch_robots(self, visit: "HostVisit", origin: str, target: Target) -> None:
        """Fetches them; calls visit.robots_done."""

    def record(self, visit: "HostVisit", outcome: Outcome) -> None:
        """Hands an outcome on: discovery, store, database."""

    def log_arrival(self, log: str, arrival: Arrival) -> None:
        """Hands a line of an arrival log (Plan.arrival_log) on."""

    def if_unknown(self, target: Target, then: "HostVisit") -> None:
        """Calls then.take_redirect(target) or then.proceed(), by whether the page was fetched before.

        Sets the target's key first.
        """

    def finish(self, visit: "HostVisit", release: Release) -> None:
        """Takes a visit's end."""


@dataclass(slots=True)
class HostVisit:
    """The visit of one leased host."""

    lease: Visit
    targets: deque[Target]
    around: Surroundings
    started: float = field(default_factory=time.time)
    due_at: float = 0.0  # seconds of time.time(): when the next request may arrive
    pace: Pace = NO_PACE
    last_arrival: float = 0.0
    paced_from: float = 0.0  # the last arrival, or what the clock says of that of an earlier visit
    asking_for: Asking = A_PAGE
    asked_at: float = 0.0  # when the request that is under way was begun (time.time()); 0.0: none is
    manners: tuple[Plan, float | None] | None = None  # whose delay and which Crawl-delay (seconds) the pace is by
    adaptive_ms: float = 0.0  # the delay that follows from how the host answers
    bad_in_row: int = 0  # errors of the server
    silent_in_row: int = 0  # requests in vain
    answered: bool = False
    failures: int = 0
    reason: str = ""
    parked: bool = False
    parked_until: float = 0.0  # seconds of time.time(); 0.0: until somebody wakes it
    waiting: tuple[Target, Callable[[], None]] | None = None
    fetched: set[Key] = field(default_factory=set)

    def begin(self) -> None:
        """Starts the visit."""
        self.due_at = self.lease.due_at / 1000
        if not self.lease.gap_ms and self.due_at <= self.started:  # never visited, or without a delay: no debt
            self.due_at = 0.0
        self.pace = Pace(self.lease.gap_ms)
        self.paced_from = (self.lease.due_at - self.lease.gap_ms) / 1000 if self.lease.gap_ms else 0.0
        # The gap of the last visit is what it had come to then; where something else made it so long, that still does.
        self.adaptive_ms = min(self.lease.gap_ms, ADAPTIVE_MAX_MS)
        self.bad_in_row = int(self.lease.reason == SERVER_ERRORS)
        self.failures = self.lease.failures
        self.proceed()

    def proceed(self) -> None:
        """Goes on with the next URL that a request must be made for, or ends."""
        around = self.around
        while self.targets:
            if around.stopping() or self.is_over():
                break
            if around.behind():
                around.loop.call_at(time.time() + BEHIND_SECONDS, self.proceed)
                return
            if around.blocked(self.lease.name):
                self.parked, self.reason = True, BLOCKED
                break
            if around.halted(self.targets[0].plan.campaign):
                break
            target = self.targets.popleft()
            if target.key in self.fetched or (target.known and not target.known.queued):
                around.record(self, Outcome(target))
                continue
            robots = around.robots(origin_of(target.url.fetch))
            if robots is None:
                self._keep(target.plan, None)
                around.fetch_robots(self, origin_of(target.url.fetch), target)
                return
            verdict = robots.verdict(target.url.fetch)
            if not verdict.allowed:
                around.record(self, Outcome(target, error=Kind.ROBOTS_DENIED, detail=verdict.rule or ""))
                continue
            self._keep(target.plan, robots.crawl_delay)
            self.wait(target, partial(self._resolve, target))
            return
        self.end()

    def is_over(self) -> bool:
        """Whether the time of the visit is used up."""
        return time.time() - self.started > VISIT_SECONDS

    def wait(self, target: Target, then: Callable[[], None]) -> None:
        """Calls `then` when the host is due. A wait that would outlast the visit ends it instead: the host is
        given back with its clock set."""
        if self.due_at - self.started > VISIT_SECONDS:
            self.targets.appendleft(target)
            self.end()
        elif self.due_at > time.time():
            self.wait_until(self.due_at, target, then)
        else:
            then()

    def wait_until(self, at: float, target: Target, then: Callable[[], None]) -> None:
        """Calls `then` at a time of time.time(), unless the worker stops before."""
        self.waiting = (target, then)
        self.around.loop.call_at(at, self._wait_is_over)

    def put_off(self, target: Target, until: float, reason: str) -> None:
        """Gives the host back: it waits for its turn somewhere."""
        self.targets.appendleft(target)
        self.due_at, self.reason = max(self.due_at, until), reason[:REASON_CHARS]
        self.end()

    def _wait_is_over(self) -> None:
        waiting, self.waiting = self.waiting, None
        if waiting:  # None: the worker stops and the visit has ended
            waiting[1]()

    def hurry(self) -> None:
        """The worker stops: ends the visit if it only waits for its time."""
        waiting, self.waiting = self.waiting, None
        if waiting:
            self.targets.appendleft(waiting[0])
            self.end()

    def _resolve(self, target: Target) -> None:
        if self.around.stopping():
            self.targets.appendleft(target)
            self.end()
            return
        if target.plan.cookies:
            target.cookie = self.around.cookies.header(target.plan.campaign, target.url.fetch)
        self.asking()
        self.dial(target.url.fetch, target, headers_for(target), lambda r: self._answered(target, r))

    def asking(self, asking_for: Asking = A_PAGE) -> None:
        """A request is begun; until it has arrived the visit may hold its place for long (Room)."""
        self.asking_for = asking_for
        self.asked_at = time.time()

    def dial(
        self,
        url: str,
        target: Target,
        headers: list[str],
        done: Callable[[Response], None],
        max_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """Sends a request for a target after its address was looked up and checked, and in its turn at that address;
        `done` gets what comes of it."""
        request = Request(url, urlsplit(url).hostname or "", "", headers, max_bytes, fresh=target.fresh)
        request.last = self.pace.delay > KEEP_CONNECTION_MS
        Dialling(self, target, request, done).begin()

    def arrived(self, response: Response) -> None:
        """Sets the clock by a request that was made."""
        self.asked_at = 0.0
        if self.manners and self.manners[0].arrival_log:
            log_request(self, response)
        if self.asking_for.host:  # its own clock is its row (frontier/booking.py)
            self.due_at = max(self.due_at, response.arrived_at + self.asking_for.gap_ms / 1000)
            return
        self.last_arrival = self.paced_from = max(self.last_arrival, response.arrived_at)
        self.due_at = next_at(self.due_at * 1000, self.last_arrival * 1000, self.pace) / 1000

    def _keep(self, plan: Plan, crawl_delay: float | None) -> None:
        """The pace of the next request; robots.txt, another campaign or the last answer may have changed it."""
        self.manners = (plan, crawl_delay)
        self.pace = pace = pace_of(self.lease.delay_ms, plan, crawl_delay, self.adaptive_ms)
        if pace.burst == 1:
            self.due_at = max(self.due_at, self.paced_from + pace.delay / 1000)

    def _learn(self, response: Response) -> None:
        """Lets the pace follow how the host answers; an error can only slow it down."""
        bad = response.error in TRANSIENT_KINDS or response.status >= 500
        self.bad_in_row = self.bad_in_row + 1 if bad else 0
        self.silent_in_row = self.silent_in_row + 1 if response.error in SILENT_KINDS else 0
        self.answered = self.answered or not bad
        if self.manners is None or not adapts(self.lease.delay_ms, self.manners[0]):
            return
        answer_ms = (response.answered_at - response.sent_at) * 1000
        self.adaptive_ms = adapted_ms(self.adaptive_ms, answer_ms, not bad and response.status < 400)
        if self.bad_in_row > 1:  # a single one is a broken page
            self.adaptive_ms = slowed_ms(
                self.adaptive_ms, self.pace.delay, own_ms(self.lease.delay_ms, self.manners[0])
            )
        self._keep(*self.manners)

    def _answered(self, target: Target, response: Response) -> None:
        self.arrived(response)
        self.fetched.add(target.key)
        cookies = self.around.cookies if target.plan.cookies else None
        if cookies and cookies.take(target.plan.campaign, response.url, response.lines):
            (target.first or target).cookie_came = True
        if response.error in HOST_KINDS or response.error in FINAL_HOST_KINDS:
            failing.host_failed(self, target, response)
        elif response.status in (429, 503):
            failing.busy(self, target, response)
        elif response.status == 421 and not target.again:
            target.fresh = True  # RFC 9110 section 15.5.20
            self._ask_again(target)
        else:
            self._learn(response)
            if not self.silent_in_row:
                self.failures = 0
            self._judge(target, response)

    def _ask_again(self, target: Target) -> None:
        """Asks for a target once more, in its turn."""
        self.fetched.discard(target.key)
        target.again = True
        self.targets.appendleft(target)
        self.proceed()

    def _judge(self, target: Target, response: Response) -> None:
        outcome = Outcome(target, response, response.error, response.detail)
        outcome.request_head = request_head(target.url.fetch, withheld(headers_for(target)))
        wrong = None if response.error else misanswer(response.status, response.headers, is_conditional(target))
        if wrong:
            outcome.error, outcome.detail = wrong
        if outcome.error in TRANSIENT_KINDS or response.status >= 500:
            failing.retry_later(outcome)
            if self.silent_in_row and failing.silent(self, outcome):
                return
        elif response.status in REDIRECTS and not response.error:
            self._redirected(target, response, outcome)
            return
        self.around.record(self, outcome)
        self.proceed()

    def _redirected(self, target: Target, response: Response, outcome: Outcome) -> None:
        """A redirect on the same host is followed as the visit's next request; any other is a link."""
        follow = None
        location = response.headers.get("location", "").strip()
        if location:
            try:
                follow = canonicalise(location, target.url.fetch, target.plan.rules)
            except InvalidURL as error:
                outcome.error, outcome.detail = Kind.BAD_REDIRECT, f"Location: {error}"
        chain, first = (*target.chain, target.url.canonical), target.first or target
        if follow and follow.canonical == first.url.canonical and first.cookie_came and not first.again:
            if target is not first:
                self.around.record(self, outcome)
            self._ask_again(first)  # now with the cookie that it asked for
            return
        if follow and follow.canonical in chain:
            outcome.error, outcome.detail = Kind.REDIRECT_LOOP, f"leads back to {follow.canonical}"
            if "set-cookie" in response.headers and not target.plan.cookies:
                outcome.detail += " with a cookie, and cookies are off"
        elif follow and len(chain) > MAX_REDIRECTS:
            outcome.error, outcome.detail = Kind.TOO_MANY_REDIRECTS, f"more than {MAX_REDIRECTS} on one host"
        elif follow:
            verdict = target.plan.scope.verdict(follow, target.depth)
            if verdict.allowed:
                outcome.redirect = follow
            else:
                outcome.error, outcome.detail = verdict.kind, f"leads to {follow.fetch}: {verdict.rule}"
        self.around.record(self, outcome)
        if outcome.redirect and outcome.redirect.host == self.lease.name:
            following = Target(outcome.redirect, target.key, target.plan, target.depth, chain=chain, first=first)
            self.around.if_unknown(following, self)
        else:
            self.proceed()

    def take_redirect(self, target: Target) -> None:
        """Goes on with the target of a redirect."""
        self.targets.appendleft(target)
        self.proceed()

    def robots_done(self, target: Target, failure: Response | None) -> None:
        """robots.txt has been fetched, or could not be: then the host counts as not reached."""
        if failure:
            failing.host_failed(self, target, failure)
        else:
            self.targets.appendleft(target)
            self.proceed()

    def give_up(self) -> None:
        """Ends a visit that an error has left without a next step."""
        self.reason = "an error in the crawler, see its log"
        self.due_at = max(self.due_at, time.time() + backoff_ms(self.failures + 1) / 1000)
        self.failures += 1
        self.end()

    def end(self) -> None:
        """Ends the visit: its host is given back with what it still has to do."""
        lease, due_at = self.lease, int(self.due_at * 1000) + 1
        reason = self.reason
        if not self.last_arrival:  # nothing was asked for: its clock is what it was, or later
            due_at = max(due_at, lease.due_at)
            reason = reason or (lease.reason if lease.due_at > time.time() * 1000 else "")
        if self.manners and not reason:
            reason = why_so_slow(lease.delay_ms, *self.manners, self.pace, self.bad_in_row > 1)
        release = Release(
            lease.host,
            lease.token,
            due_at,
            self.pace.delay,
            self.failures,
            reason,
            self.parked,
            changed=(self.failures, reason) != (lease.failures, lease.reason),
            parked_until=int(self.parked_until * 1000),
        )
        self.around.finish(self, release)
