"""One request of a visit on its way out: its name looked up, its addresses checked, and dialled in turn.

A name may have several addresses. They are dialled in the order of the answer, the next one only when no connection
came about: nothing can have been asked for then, so a dead address costs its host nothing. Addresses that failed go
last for a while, so that the next request begins with one that works.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from crawl.fetch.errors import Kind
from crawl.fetch.proxies import Proxy
from crawl.fetch.resolver import Resolved
from crawl.fetch.response import Request, Response
from crawl.fetch.target import Target

if TYPE_CHECKING:
    from crawl.fetch.visit import HostVisit

PATIENCE_SECONDS = 5.0  # how long a visit waits for its turn at an address
# A dead address takes up to 15 s to be told as such, and a visit must not be spent on a list of them.
MAX_DIALLED = 4
DIALLING_SECONDS = 30.0  # after this no further address is tried for the same request
BAD_SECONDS = 300.0
DEAF_SECONDS = 30.0  # for how long hosts are left alone when no name server answers
MAX_BAD = 20_000

# No connection: no server can have seen a request.
NOT_SENT = frozenset({Kind.CONNECT, Kind.TIMEOUT_CONNECT})


class BadAddresses:
    """Addresses, with their ports, to which no connection came about lately."""

    def __init__(self) -> None:
        self._until: OrderedDict[tuple[str, int], float] = OrderedDict()

    def add(self, address: str, port: int) -> None:
        """Remembers an address for BAD_SECONDS."""
        self._until[address, port] = time.monotonic() + BAD_SECONDS
        self._until.move_to_end((address, port))
        if len(self._until) > MAX_BAD:
            self._until.popitem(last=False)

    def last(self, addresses: Iterable[str], port: int) -> list[str]:
        """The addresses in their order, the bad ones after the others."""
        if not self._until:
            return list(addresses)
        now = time.monotonic()
        return sorted(addresses, key=lambda address: self._until.get((address, port), 0.0) > now)


class Dialling:
    """One request and the addresses that it may be sent to. All of it happens on the loop's thread."""

    __slots__ = ("_began", "_done", "_left", "_request", "_target", "_visit")

    def __init__(self, visit: "HostVisit", target: Target, request: Request, done: Callable[[Response], None]) -> None:
        self._visit = visit
        self._target = target
        self._request = request
        self._done = done
        self._left: list[str] = []
        self._began = 0.0

    def begin(self) -> None:
        """Looks the name up, or leaves that to the proxy; `done` gets whatever comes of the request."""
        around = self._visit.around
        if around.proxies:
            self._through_proxy()
        else:
            self._request.lenient = self._request.url in around.loop.odd_origins
            around.resolver.resolve(self._request.name, self._resolved)

    def _through_proxy(self) -> None:
        """The proxy looks names up; what a name tells by itself is checked here all the same."""
        visit, request = self._visit, self._request
        around = visit.around
        if refusal := around.refusal(request.name, self._target.plan):
            self._fail(Kind.BLOCKED_ADDRESS, refusal)
            return
        proxy = around.proxies.choose(visit.lease.name)
        if proxy is None or around.stopping():
            visit.put_off(self._target, time.time() + around.proxies.seconds_left(), "no proxy answers")
            return
        request.proxy = proxy.url
        around.loop.fetch(request, partial(self._proxied, proxy))

    def _proxied(self, proxy: Proxy, response: Response) -> None:
        proxies = self._visit.around.proxies
        if response.proxy_failure:
            proxies.failed(proxy, response.proxy_failure)
            self._through_proxy()
            return
        proxies.works(proxy)
        if response.cut_off:
            self._ask_again(response, self._through_proxy)
        else:
            self._done(response)

    def _resolved(self, resolved: Resolved) -> None:
        around = self._visit.around
        if resolved.deaf:
            seconds, reason = (0.0, "") if around.stopping() else (DEAF_SECONDS, resolved.detail)
            self._visit.put_off(self._target, time.time() + seconds, reason)
            return
        if not resolved.addresses:
            self._fail(Kind.DNS, resolved.detail)
            return
        allowed = [address for address in resolved.addresses if around.permits(address, self._target.plan)]
        if not allowed:
            self._fail(Kind.BLOCKED_ADDRESS, f"{resolved.addresses[0]} is not a public address")
            return
        self._began = time.time()
        if len(allowed) > 1:
            allowed = around.bad_addresses.last(allowed, port_of(self._request.url))[:MAX_DIALLED]
        self._left = allowed
        self._next()

    def _fail(self, kind: Kind, detail: str) -> None:
        now = time.time()
        failed = Response(self._request.url, started_at=now, sent_at=now, arrived_at=now, ended_at=now)
        failed.error, failed.detail = kind, detail
        self._done(failed)

    def _next(self) -> None:
        self._request.address = self._left.pop(0)
        self._in_turn()

    def _in_turn(self) -> None:
        """Dials the address when it may be asked. A host that would have to wait long for other hosts on it is given
        back: it has a place in the row."""
        visit, address = self._visit, self._request.address
        at = visit.around.turn(address, visit.lease.name, self._target.plan)
        if visit.around.stopping() or at - time.time() > PATIENCE_SECONDS:
            visit.put_off(self._target, at, f"its turn at {address}, which serves other hosts")
        elif at > time.time():
            visit.wait_until(at, self._target, self._in_turn)
        else:
            visit.around.loop.fetch(self._request, self._dialled)

    def _dialled(self, response: Response) -> None:
        if response.error in NOT_SENT:
            self._visit.around.bad_addresses.add(self._request.address, port_of(self._request.url))
            if self._left and time.time() - self._began < DIALLING_SECONDS:
                self._next()
                return
        if response.unreadable and not self._request.lenient:
            self._visit.around.loop.odd_origins.remember(response.url)
            self._request.lenient = True  # read by us this time
            self._ask_again(response, self._in_turn)
        elif response.cut_off:
            self._ask_again(response, self._in_turn)
        else:
            self._done(response)

    def _ask_again(self, response: Response, ask: Callable[[], None]) -> None:
        """Asks once more, on a new connection, when the host is due again: the server has had a request."""
        self._visit.arrived(response)
        self._request.fresh = True
        self._visit.wait(self._target, ask)


def port_of(url: str) -> int:
    """The port of an absolute URL, its scheme's own where none is written."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
