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

from crawl.fetch.cookies import CookieJars
from crawl.fetch.dial import BadAddresses, Dialling
from crawl.fetch.errors import FINAL_HOST_KINDS, HOST_KINDS, TRANSIENT_KINDS, Kind, tries_of
from crawl.fetch.loop import FetchLoop
from crawl.fetch.misanswer import misanswer
from crawl.fetch.proxies import Proxies
from crawl.fetch.request_headers import withheld
from crawl.fetch.resolver import Resolver
from crawl.fetch.response import REDIRECTS, Request, Response, retry_after_seconds
from crawl.fetch.robots import Robots
from crawl.fetch.target import Outcome, Target, headers_for, is_conditional, origin_of, request_head, twin_of
from crawl.pages import Key
from crawl.plan import Plan
from frontier.claim import Visit
from frontier.complete import Release
from frontier.politeness import Pace, backoff_ms, next_at
from frontier.urls import InvalidURL, canonicalise

VISIT_SECONDS = 30  # after this no further request is begun, so that other hosts get their turn
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_REDIRECTS = 10  # hops on one host that are followed at once
# Visits in a row without an answer, then the host is parked: 6 s for one that never answered, a minute
# for one that did.
MAX_FAILED_FIRST_VISITS = 3
MAX_FAILED_VISITS = 6
MAX_BUSY_VISITS = 10  # the same for 429 and 503, which are answers
BUSY_PER_URL = 3  # 429 and 503 in a row for one URL before another URL of the host is tried
REASON_CHARS = 120
RETRY_FIRST_MS = 5_000
HOST_RETRY_FIRST_MS = 2_000
# A Retry-After beyond a day is shortened to a day: by then the campaign looks again.
MAX_RETRY_AFTER_SECONDS = 86_400
KEEP_CONNECTION_MS = 10_000  # with a longer delay a connection is not kept for the next request
BEHIND_SECONDS = 0.2  # how long a visit waits for a writer that is behind
MAX_CRAWL_DELAY_SECONDS = 10_000_000  # what fits the column, four months


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
    failures: int = 0
    reason: str = ""
    parked: bool = False
    waiting: tuple[Target, Callable[[], None]] | None = None
    fetched: set[Key] = field(default_factory=set)

    def begin(self) -> None:
        """Starts the visit."""
        self.due_at = self.lease.due_at / 1000
        if not self.lease.gap_ms and self.due_at <= self.started:  # never visited, or without a delay: no debt
            self.due_at = 0.0
        self.pace = Pace(self.lease.gap_ms)
        self.failures = self.lease.failures
        self.proceed()

    def proceed(self) -> None:
        """Goes on with the next URL that a request must be made for, or ends."""
        around = self.around
        while self.targets:
            if around.stopping() or time.time() - self.started > VISIT_SECONDS:
                break
            if around.behind():
                around.loop.call_at(time.time() + BEHIND_SECONDS, self.proceed)
                return
            if around.blocked(self.lease.name):
                self.parked, self.reason = True, "blocked"
                break
            if around.halted(self.targets[0].plan.campaign):
                break
            target = self.targets.popleft()
            if target.key in self.fetched or (target.known and not target.known.queued):
                around.record(self, Outcome(target))
                continue
            robots = around.robots(origin_of(target.url.fetch))
            if robots is None:
                self._keep(pace_of(self.lease.delay_ms, target.plan, None))
                around.fetch_robots(self, origin_of(target.url.fetch), target)
                return
            verdict = robots.verdict(target.url.fetch)
            if not verdict.allowed:
                around.record(self, Outcome(target, error=Kind.ROBOTS_DENIED, detail=verdict.rule or ""))
                continue
            self._keep(pace_of(self.lease.delay_ms, target.plan, robots.crawl_delay))
            self.wait(target, partial(self._resolve, target))
            return
        self._end()

    def wait(self, target: Target, then: Callable[[], None]) -> None:
        """Calls `then` when the host is due. A wait that would outlast the visit ends it instead: the host is
        given back with its clock set."""
        if self.due_at - self.started > VISIT_SECONDS:
            self.targets.appendleft(target)
            self._end()
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
        self.due_at, self.reason = max(self.due_at, until), reason
        self._end()

    def _wait_is_over(self) -> None:
        waiting, self.waiting = self.waiting, None
        if waiting:  # None: the worker stops and the visit has ended
            waiting[1]()

    def hurry(self) -> None:
        """The worker stops: ends the visit if it only waits for its time."""
        waiting, self.waiting = self.waiting, None
        if waiting:
            self.targets.appendleft(waiting[0])
            self._end()

    def _resolve(self, target: Target) -> None:
        if self.around.stopping():
            self.targets.appendleft(target)
            self._end()
            return
        if target.plan.cookies:
            target.cookie = self.around.cookies.header(target.plan.campaign, target.url.fetch)
        self.dial(target.url.fetch, target, headers_for(target), lambda r: self._answered(target, r))

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
        self.last_arrival = max(self.last_arrival, response.arrived_at)
        self.due_at = next_at(self.due_at * 1000, self.last_arrival * 1000, self.pace) / 1000

    def _keep(self, pace: Pace) -> None:
        """The pace of the next request; robots.txt or another campaign may have changed it since the last one."""
        self.pace = pace
        if pace.burst == 1:
            self.due_at = max(self.due_at, self.last_arrival + pace.delay / 1000)

    def _answered(self, target: Target, response: Response) -> None:
        self.arrived(response)
        self.fetched.add(target.key)
        cookies = self.around.cookies if target.plan.cookies else None
        if cookies and cookies.take(target.plan.campaign, response.url, response.lines):
            (target.first or target).cookie_came = True
        if response.error in HOST_KINDS or response.error in FINAL_HOST_KINDS:
            self.host_failed(target, response)
        elif response.status in (429, 503):
            self._busy(target, response)
        elif response.status == 421 and not target.again:
            target.fresh = True  # RFC 9110 section 15.5.20
            self._ask_again(target)
        else:
            self.failures, self.reason = 0, ""
            self._judge(target, response)

    def _ask_again(self, target: Target) -> None:
        """Asks for a target once more, in its turn."""
        self.fetched.discard(target.key)
        target.again = True
        self.targets.appendleft(target)
        self.proceed()

    def host_failed(self, target: Target, response: Response) -> None:
        """The host cannot be reached: gives it back for a while, and parks it when that goes on."""
        kind = response.error or Kind.CONNECT
        origin = origin_of(target.url.fetch)
        if kind not in FINAL_HOST_KINDS and self._goes_on_elsewhere(target, response, kind, origin):
            return
        self.failures += 1
        patience = MAX_FAILED_VISITS if self.around.robots(origin) else MAX_FAILED_FIRST_VISITS
        self.parked = kind in FINAL_HOST_KINDS or self.failures >= patience
        outcome = Outcome(target, response, kind, response.detail) if self.parked else None
        wait = asked_ms(response) or backoff_ms(self.failures, HOST_RETRY_FIRST_MS)
        self._pause(target, outcome, f"{kind}: {response.detail}", wait)

    def _goes_on_elsewhere(self, target: Target, response: Response, kind: Kind, origin: str) -> bool:
        """http and https of a name are one host, and one of them may be dead while the other answers.

        Then the URLs of the dead one are set aside: failed, with another try later, when the other is
        known to answer; else they keep their places behind this visit.
        """
        dead = [target, *(other for other in self.targets if origin_of(other.url.fetch) == origin)]
        rest = [other for other in self.targets if origin_of(other.url.fetch) != origin]
        alive = self.around.robots(twin_of(origin)) is not None
        if not (rest or alive):
            return False
        self.targets = deque(rest)
        for one in dead if alive else ():
            outcome = Outcome(one, response if one is target else None, kind, response.detail)
            self._retry_later(outcome)
            self.around.record(self, outcome)
        self.around.loop.submit(self.proceed)
        return True

    def _busy(self, target: Target, response: Response) -> None:
        """The host asks for a pause, and gets it as a whole.

        A URL that meets this BUSY_PER_URL times in a row is set aside, since it may be the only one: the
        next visit begins with another.
        """
        self.failures += 1
        self.parked = self.failures >= MAX_BUSY_VISITS
        asked = asked_ms(response)
        reason = f"HTTP {response.status}" + (f", asked to wait {asked // 1000} s" if asked else "")
        outcome = None
        if self.parked or self.failures % BUSY_PER_URL == 0:
            outcome = Outcome(target, response, Kind.OVERLOADED, reason)
            self._retry_later(outcome)
        self._pause(target, outcome, reason, asked or backoff_ms(self.failures))

    def _pause(self, target: Target, outcome: Outcome | None, reason: str, wait_ms: int) -> None:
        """Ends the visit with a wait. Without an outcome the URL keeps its place."""
        self.reason = reason[:REASON_CHARS]
        self.due_at = max(self.due_at, time.time() + wait_ms / 1000)
        if outcome:
            self.around.record(self, outcome)
        else:
            self.targets.appendleft(target)
        self._end()

    def _retry_later(self, outcome: Outcome) -> None:
        """Plans another try of a URL, if it has not had them all."""
        failures = outcome.target.known.failures if outcome.target.known else 0
        if failures < tries_of(outcome.error):
            outcome.retry_at = int(time.time() * 1000) + backoff_ms(failures + 1, RETRY_FIRST_MS)

    def _judge(self, target: Target, response: Response) -> None:
        outcome = Outcome(target, response, response.error, response.detail)
        outcome.request_head = request_head(target.url.fetch, withheld(headers_for(target)))
        wrong = None if response.error else misanswer(response.status, response.headers, is_conditional(target))
        if wrong:
            outcome.error, outcome.detail = wrong
        if outcome.error in TRANSIENT_KINDS or response.status >= 500:
            self._retry_later(outcome)
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
                outcome.error, outcome.detail = Kind.OUT_OF_SCOPE, f"leads to {follow.fetch}: {verdict.rule}"
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
            self.host_failed(target, failure)
        else:
            self.targets.appendleft(target)
            self.proceed()

    def give_up(self) -> None:
        """Ends a visit that an error has left without a next step."""
        self.reason = "an error in the crawler, see its log"
        self.due_at = max(self.due_at, time.time() + backoff_ms(self.failures + 1) / 1000)
        self.failures += 1
        self._end()

    def _end(self) -> None:
        lease, due_at = self.lease, int(self.due_at * 1000) + 1
        if not self.last_arrival:  # nothing was asked for: its clock is what it was, or later
            due_at = max(due_at, lease.due_at)
        release = Release(
            lease.host,
            lease.token,
            due_at,
            self.pace.delay,
            self.failures,
            self.reason,
            self.parked,
            changed=(self.failures, self.reason) != (lease.failures, lease.reason),
        )
        self.around.finish(self, release)


def pace_of(host_ms: int | None, plan: Plan, crawl_delay: float | None) -> Pace:
    """The pace of a host: what the operator set for it or else for the campaign, but never faster than the host's
    own Crawl-delay (seconds). Only a host of which neither of them says a delay of its own gets bursts."""
    asked = int(min(crawl_delay or 0, MAX_CRAWL_DELAY_SECONDS) * 1000)
    own = plan.delay_ms if host_ms is None else host_ms
    return Pace(max(own, asked), 1 if asked or host_ms is not None else plan.burst)


def asked_ms(response: Response) -> int:
    """The wait (ms) that a Retry-After asks for, shortened to a day; 0 when it asks for none."""
    asked = retry_after_seconds(response.headers.get("retry-after", ""), time.time())
    return int(min(asked, MAX_RETRY_AFTER_SECONDS) * 1000) if asked else 0
