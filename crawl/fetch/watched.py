"""The fetch loop and the resolver of a crawl, and with them what a person who debugs a site wants to see."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pycurl

from crawl.fetch.errors import Kind
from crawl.fetch.guard import Guard
from crawl.fetch.loop import Done, FetchLoop, Transfer
from crawl.fetch.proxies import name_of
from crawl.fetch.request_headers import SECRET_HEADERS
from crawl.fetch.resolver import Done as Found
from crawl.fetch.resolver import Resolved, Resolver
from crawl.fetch.response import Request, Response
from crawl.fetch.target import Target, origin_of, request_head
from crawl.record import Record

if TYPE_CHECKING:
    from crawl.fetch.visit import HostVisit

_TLS = re.compile(r"SSL connection using (\S+) / (\S+)")


@dataclass(slots=True)
class LookUp:
    """A name and its addresses, each with the reason why it may not be dialled, '' where it may."""

    name: str
    ms: float = 0.0
    addresses: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Tls:
    """A secure connection; of the server's certificate what libcurl tells."""

    version: str
    cipher: str
    certificate: dict[str, str]


@dataclass(slots=True)
class Attempt:
    """One request to one address. Times in ms; `waited_ms`: what manners demanded before it."""

    request: Request
    waited_ms: float
    waited_for: str
    response: Response | None = None
    error: Kind | None = None  # of this attempt; the response's own may come to say what follows from it
    detail: str = ""
    sent: list[bytes] = field(default_factory=list)  # heads as they went out; the last is the request's
    text: list[str] = field(default_factory=list)  # what libcurl says of its doings
    tls: Tls | None = None
    ms: dict[str, float] = field(default_factory=dict)
    is_new: bool = True  # on a connection of its own

    @property
    def request_lines(self) -> list[str]:
        """The head of the request as it was sent, without its secrets."""
        head = self.sent[-1].decode("utf-8", "replace") if self.sent else ""
        return [_without_secret(line) for line in head.split("\r\n") if line]

    @property
    def proxy(self) -> str:
        """The proxy it went through, without its password."""
        return name_of(self.request.proxy) if self.request.proxy else ""


@dataclass(slots=True)
class Step:
    """A URL that a visit asked for: for the page itself or for the robots.txt that speaks of it."""

    url: str
    is_robots: bool
    look_up: LookUp | None = None
    attempts: list[Attempt] = field(default_factory=list)
    error: Kind | None = None
    detail: str = ""


@dataclass(slots=True)
class Hop:
    """A URL of the chain, what was asked for on its behalf, and what a crawl would have stored.

    No `record`: the URL would have kept its place in its queue. `visit`: the one that dealt with it last.
    """

    target: Target
    visit: "HostVisit"
    steps: list[Step] = field(default_factory=list)
    record: Record | None = None

    @property
    def response(self) -> Response | None:
        """The answer, for as far as there is one."""
        pages = [step for step in self.steps if not step.is_robots]
        attempts = pages[-1].attempts if pages else []
        return attempts[-1].response if attempts else None


class Notes:
    """What is noted while a URL is fetched, one request at a time; all of it on the fetch loop's thread."""

    def __init__(self) -> None:
        self.hops: list[Hop] = []
        self.doing = ""  # for a progress line
        self.failure: Exception | None = None
        self._ready = 0.0  # time.time(): nothing but manners held up the next request from here on
        self._tls: dict[tuple[str, str], Tls] = {}

    def hop(self, target: Target, visit: "HostVisit") -> Hop:
        """The hop of a target; one that was dealt with and comes again, with its cookie, is another."""
        if not self.hops or self.hops[-1].target is not target or self.hops[-1].record:
            self.hops.append(Hop(target, visit))
        self.hops[-1].visit = visit
        return self.hops[-1]

    @property
    def step(self) -> Step:
        """The one that is under way."""
        return self.hops[-1].steps[-1]

    def look_up(self, name: str) -> LookUp:
        """The look-up of the step, begun if it was not."""
        if self.step.look_up is None:
            self.step.look_up = LookUp(name)
        return self.step.look_up

    def looked_up(self, began: float) -> None:
        """A look-up has ended."""
        now = time.time()
        if self.step.look_up:
            self.step.look_up.ms = (now - began) * 1000
        if self._ready:
            self._ready += now - began

    def attempt(self, request: Request, reason: str) -> Attempt:
        """A request that goes out."""
        waited = max(0.0, time.time() - self._ready) * 1000 if self._ready else 0.0
        attempt = Attempt(replace(request), waited, reason)  # the visit may send it once more, elsewhere
        self.step.attempts.append(attempt)
        self.doing = f"asks {request.address or 'the proxy'} for {request.url}"
        return attempt

    def has_to_wait(self) -> None:
        """The first request is ready, and waits."""
        self._ready = self._ready or time.time()

    def answered(self, attempt: Attempt, response: Response) -> None:
        """What came of it."""
        self._ready = response.ended_at
        attempt.response, attempt.error, attempt.detail = response, response.error, response.detail
        place = origin_of(attempt.request.url), response.address
        if attempt.tls:
            self._tls[place] = attempt.tls
        elif not attempt.is_new:
            attempt.tls = self._tls.get(place)

    def debug(self, kind: int, data: bytes) -> None:
        """Takes what libcurl reports of a transfer."""
        if kind == pycurl.INFOTYPE_HEADER_OUT:
            self.step.attempts[-1].sent.append(data)
        elif kind == pycurl.INFOTYPE_TEXT:
            self.step.attempts[-1].text.append(data.decode("utf-8", "replace"))


class WatchedLoop(FetchLoop):
    """The fetch loop of a crawl, which notes what its requests do. `reason()` says why they wait."""

    def __init__(self, guard: Guard, ca_file: str, notes: Notes, reason: Callable[[], str]) -> None:
        super().__init__(guard, ca_file)
        self._notes = notes
        self._reason = reason

    def fetch(self, request: Request, done: Done) -> None:
        attempt = self._notes.attempt(request, self._reason())
        if request.lenient:
            attempt.sent.append(request_head(request.url, [*request.headers, "Connection: close"]))

        def answered(response: Response) -> None:
            attempt.ms = attempt.ms or _times(response)
            self._notes.answered(attempt, response)
            done(response)

        super().fetch(request, answered)

    def _new_handle(self) -> Any:
        handle = super()._new_handle()
        handle.setopt(pycurl.OPT_CERTINFO, 1)
        handle.setopt(pycurl.VERBOSE, 1)
        handle.setopt(pycurl.DEBUGFUNCTION, self._notes.debug)
        return handle

    def _response(self, transfer: Transfer, code: int, message: str) -> Response:
        response = super()._response(transfer, code, message)
        attempt, handle = self._notes.step.attempts[-1], transfer.handle
        attempt.ms = _times_of(handle)
        attempt.is_new = handle.getinfo(pycurl.NUM_CONNECTS) > 0
        attempt.tls = _tls_of(handle, attempt.text)
        return response

    def _guarded(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - handed to the thread that waits, which would wait for ever
            self._notes.failure = error


class WatchedResolver(Resolver):
    """The resolver of a crawl, which notes what it finds."""

    notes: Notes

    def resolve(self, name: str, done: Found) -> None:
        self.notes.look_up(name)
        self.notes.doing = f"looks up {name}"
        began = time.time()

        def found(resolved: Resolved) -> None:
            self.notes.looked_up(began)
            done(resolved)

        super().resolve(name, found)


def _times(response: Response) -> dict[str, float]:
    """The times (ms) of a request that libcurl did not send."""
    return {"total": (response.ended_at - response.started_at) * 1000}


def _times_of(handle: Any) -> dict[str, float]:
    """The times (ms) of a transfer: how long each part of it took."""
    connect, tls = handle.getinfo(pycurl.CONNECT_TIME), handle.getinfo(pycurl.APPCONNECT_TIME)
    sent, first = handle.getinfo(pycurl.PRETRANSFER_TIME), handle.getinfo(pycurl.STARTTRANSFER_TIME)
    times = {"connect": connect, "tls": tls - connect if tls else 0.0, "first_byte": max(0.0, first - sent)}
    return {name: 1000 * seconds for name, seconds in times.items() if seconds} | {
        "total": 1000 * handle.getinfo(pycurl.TOTAL_TIME)
    }


def _tls_of(handle: Any, text: list[str]) -> Tls | None:
    found = next((match for line in text if (match := _TLS.search(line))), None)
    if found is None:
        return None
    chain = handle.getinfo(pycurl.INFO_CERTINFO)
    return Tls(found[1], found[2], dict(pair for pair in chain[0] if len(pair) == 2) if chain else {})


def _without_secret(line: str) -> str:
    name, colon, _ = line.partition(":")
    return f"{name}: (withheld)" if colon and name.strip().lower() in SECRET_HEADERS else line
