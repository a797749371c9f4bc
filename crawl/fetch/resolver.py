"""Names to addresses: overrides, a cache, and look-ups by c-ares that never block the fetch loop.

c-ares asks on a thread of its own, thousands of names at a time, so that a name nobody answers for holds up no other
name. It reads /etc/hosts and /etc/resolv.conf and notices when they change; localhost is this machine (RFC 6761).
"""

import ipaddress
import logging
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple, Protocol

import pycares
from pycares import errno

from crawl.fetch.guard import is_loopback

log = logging.getLogger(__name__)

# A record's own lifetime holds within these bounds: names with one of 0 are else looked up for every visit, and one of
# years would outlive a move.
LEAST_SECONDS, MOST_SECONDS = 30.0, 3600.0
NO_NAME_SECONDS = 60.0  # that there is no such name
FAILED_SECONDS = 10.0  # that its name servers failed
MAX_ENTRIES = 100_000
# A name has so long. c-ares sends a query up to five times, each time with twice the patience, which it learns from
# how fast the server answers: at 250 ms, its least, for 8 s, with a slow server for a minute and more.
LIMIT_SECONDS = 10.0
TIMEOUT_SECONDS, TRIES = 2.0, 5
PROBE_SECONDS = 5.0  # that a name server has to show that it is there
# c-ares has a cache of its own, of which pycares can only say that it be emptied; it has no bound but the lifetimes.
FLUSH_LOOK_UPS = 20_000

# Nobody answered: either the name's own servers keep silent, or all of ours do.
_NO_SERVER = 26  # ARES_ENOSERVER, which pycares has no name for: none is configured
_UNHEARD = frozenset({errno.ARES_ETIMEOUT, errno.ARES_ECONNREFUSED, _NO_SERVER})
_NO_SUCH_NAME = frozenset({errno.ARES_ENOTFOUND, errno.ARES_ENODATA, errno.ARES_ENONAME})
_WHY = {
    errno.ARES_ENOTFOUND: "no such name",
    errno.ARES_ENONAME: "no such name",
    errno.ARES_ENODATA: "the name has no address",
    errno.ARES_ESERVFAIL: "the name server could not find out (SERVFAIL)",
    errno.ARES_EREFUSED: "the name server refused to answer (REFUSED)",
    errno.ARES_EBADNAME: "not a name that can be looked up",
    errno.ARES_EBADRESP: "the name server's answer cannot be read",
}
# No public name ends so: multicast DNS (RFC 6762), home networks (RFC 8375), ICANN's own choice, and what routers and
# offices use.
PRIVATE_DOMAINS = (".local", ".home.arpa", ".internal", ".localdomain", ".lan", ".home", ".corp", ".intranet")
NOT_ANSWERED = "the look-up was not answered in time"


class Resolved(NamedTuple):
    """What came of a look-up: addresses in the order to try them in, or why there are none.

    `deaf`: no name server answers at all, which says nothing about the name.
    """

    addresses: list[str]
    detail: str = ""
    deaf: bool = False


Done = Callable[[Resolved], None]


class Loop(Protocol):
    """The fetch loop, as far as a resolver needs it."""

    def submit(self, function: Callable[[], None]) -> None:
        """Runs a function on the loop's thread, soon and in order. Called from any thread."""

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        """Runs a function at a time of time.time()."""


@dataclass(slots=True)
class LookUps:
    """The look-ups of a process in numbers. `failed`: without an address; `unanswered` of them: nobody answered."""

    asked: int = 0
    cached: int = 0
    failed: int = 0
    unanswered: int = 0
    under_way: int = 0
    seconds: float = 0.0
    slowest: float = 0.0

    def as_dict(self) -> dict[str, int | float]:
        """For JSON, with the mean time in milliseconds."""
        numbers = asdict(self)
        seconds, slowest = numbers.pop("seconds"), numbers.pop("slowest")
        over = self.asked - self.under_way
        return {
            **numbers,
            "mean_ms": round(1000 * seconds / over, 1) if over else 0.0,
            "slowest_ms": round(1000 * slowest, 1),
        }


class Resolver:
    """Resolves names for one fetch loop. All methods are called on the loop's thread.

    `name_servers` are asked instead of the system's, each an ADDRESS or ADDRESS:PORT.
    """

    def __init__(
        self,
        overrides: Iterable[tuple[str, str]],
        loop: Loop,
        name_servers: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.look_ups = LookUps()
        self.deaf = False  # no name server answered when last asked
        self._overrides = list(overrides)
        self._loop = loop
        self._clock = clock
        self._cache: OrderedDict[str, tuple[float, Resolved]] = OrderedDict()
        self._waiting: dict[str, tuple[float, list[Done]]] = {}  # since when, and who
        self._in_doubt: dict[str, None] = {}  # in the order in which they came into doubt
        self._probes = 0
        self._servers = list(name_servers) or None
        self._channels: dict[bool, pycares.Channel] = {}
        self._closed = False

    def resolve(self, name: str, done: Done) -> None:
        """Calls `done` with what a host name (without port) leads to."""
        known = self._known(name)
        if known is not None:
            done(known)
        elif name in self._waiting:  # one look-up in flight per name
            self._waiting[name][1].append(done)
        else:
            waiting = self._waiting[name] = self._clock(), [done]
            self._loop.call_at(time.time() + LIMIT_SECONDS, lambda: self._overdue(name, waiting))
            self._look_up(name)

    def give_up(self) -> None:
        """Ends the look-ups under way without an answer, for a worker that stops."""
        for name in list(self._waiting):
            self._tell(name, Resolved([], "the worker stops", deaf=True), 0.0)

    def close(self) -> None:
        """Ends the threads of c-ares."""
        self._closed = True
        for channel in self._channels.values():
            channel.close()

    def _known(self, name: str) -> Resolved | None:
        expires, known = self._cache.get(name, (0.0, None))
        if known and expires > self._clock():
            self.look_ups.cached += 1
            return known
        if address := _pinned(name, self._overrides):
            return Resolved([address])
        if name.endswith(".invalid"):  # RFC 6761 section 6.4: never asked for
            return Resolved([], "no such name")
        return None

    def _channel(self, name: str) -> pycares.Channel:
        """The domains of resolv.conf's `search` are tried for names of one word only, as in an intranet."""
        search = "." not in name
        if search not in self._channels:
            flags = 0 if search else pycares.ARES_FLAG_NOSEARCH
            channel = pycares.Channel(timeout=TIMEOUT_SECONDS, tries=TRIES, flags=flags, servers=self._servers)
            self._channels[search] = channel
        return self._channels[search]

    def _look_up(self, name: str) -> None:
        self.look_ups.asked += 1
        self.look_ups.under_way += 1
        if self.look_ups.asked % FLUSH_LOOK_UPS == 0:
            for channel in self._channels.values():
                channel.reinit()
        answered = partial(self._hand_over, partial(self._answered, name))
        try:
            self._channel(name).getaddrinfo(name, None, type=socket.SOCK_STREAM, callback=answered)
        except (pycares.AresError, UnicodeError, ValueError):  # nothing that the wire could carry
            self._loop.submit(partial(self._answered, name, None, errno.ARES_EBADNAME))

    def _hand_over(self, taker: Callable[[Any, int | None], None], result: Any, error: int | None) -> None:
        """Takes an answer on the thread of c-ares."""
        if not self._closed:
            self._loop.submit(partial(taker, result, error))

    def _answered(self, name: str, result: Any, error: int | None) -> None:
        if error in _UNHEARD:
            if name in self._waiting and name not in self._in_doubt:
                self._doubt(name)
            return
        self._note(deaf=False)
        if error is None:
            self._tell(name, *_read(result))
        else:
            detail = _WHY.get(error) or str(errno.strerror(error))
            self._tell(name, Resolved([], detail), NO_NAME_SECONDS if error in _NO_SUCH_NAME else FAILED_SECONDS)

    def _overdue(self, name: str, waiting: tuple[float, list[Done]]) -> None:
        if self._waiting.get(name) is waiting and name not in self._in_doubt:
            self._doubt(name)

    def _doubt(self, name: str) -> None:
        """Nobody has answered. Whether it is the name or our name servers, a question that every one of them can
        answer tells: that for the servers of the root."""
        self._in_doubt[name] = None
        if len(self._in_doubt) > 1:
            return
        self._probes += 1
        probed = partial(self._probed, self._probes)
        self._loop.call_at(time.time() + PROBE_SECONDS, partial(probed, None, errno.ARES_ETIMEOUT))
        try:
            answered = partial(self._hand_over, probed)
            self._channel("a.root").query(".", pycares.QUERY_TYPE_NS, callback=answered)
        except pycares.AresError:
            self._loop.submit(partial(probed, None, _NO_SERVER))

    def _probed(self, number: int, result: Any, error: int | None) -> None:
        if number != self._probes or not self._in_doubt:  # its time was over, or its answer had come
            return
        deaf = error in _UNHEARD
        self._note(deaf)
        names, self._in_doubt = self._in_doubt, {}
        for name in names:
            self.look_ups.unanswered += name in self._waiting
            answer = Resolved([], "no name server answers" if deaf else NOT_ANSWERED, deaf)
            self._tell(name, answer, 0.0 if deaf else FAILED_SECONDS)

    def _note(self, deaf: bool) -> None:
        if deaf and not self.deaf:
            servers = ", ".join(self._channel("a.root").servers) or "none is configured"
            log.error("no name server answers (%s); hosts wait until one does", servers)
        elif self.deaf and not deaf:
            log.warning("a name server answers again")
        self.deaf = deaf

    def _tell(self, name: str, resolved: Resolved, lifetime: float) -> None:
        if name not in self._waiting:  # given up meanwhile
            return
        since, waiting = self._waiting.pop(name)
        now = self._clock()
        took = now - since
        figures = self.look_ups
        figures.under_way -= 1
        figures.seconds += took
        figures.slowest = max(figures.slowest, took)
        figures.failed += not resolved.addresses
        self._cache[name] = now + lifetime, resolved
        self._cache.move_to_end(name)
        if len(self._cache) > MAX_ENTRIES:
            self._cache.popitem(last=False)
        for done in waiting:
            done(resolved)


def _read(result: Any) -> tuple[Resolved, float]:
    """The addresses of an answer, in the order of RFC 6724, and for how long they hold."""
    found = [node.addr[0] for node in result.nodes]
    addresses = list(dict.fromkeys(one.decode() if isinstance(one, bytes) else str(one) for one in found))
    if not addresses:
        return Resolved([], "the name has no address"), NO_NAME_SECONDS
    shortest = min(node.ttl for node in result.nodes)
    return Resolved(addresses), min(MOST_SECONDS, max(LEAST_SECONDS, shortest))


def fixed_address(name: str, overrides: Iterable[tuple[str, str]]) -> str:
    """The address of a host name that can be told without a look-up: pinned, written out, or localhost; else empty."""
    if address := _pinned(name, overrides):
        return address
    is_here = f".{name.removesuffix('.')}".endswith(".localhost")  # RFC 6761 section 6.3
    return "127.0.0.1" if is_here else ""


def _pinned(name: str, overrides: Iterable[tuple[str, str]]) -> str:
    """The address of a host name that is pinned or written out; else empty."""
    name = name.strip("[]").removesuffix(".")
    for pattern, address in overrides:
        if fnmatchcase(name, pattern):
            return address
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return ""


def stays_here(name: str, overrides: Iterable[tuple[str, str]]) -> bool:
    """Whether a host name can only mean this machine, told without a look-up."""
    return is_loopback(fixed_address(name, overrides))


def is_private(name: str) -> bool:
    """Whether a host name can only mean something in the network of whoever looks it up."""
    name = name.removesuffix(".")
    return "." not in name or name.endswith(PRIVATE_DOMAINS)


def parse_override(text: str) -> tuple[str, str]:
    """'*.test=127.0.0.1' as (pattern, address). Raises ValueError that says what is wrong."""
    pattern, _, address = text.strip().partition("=")
    try:
        if not pattern.strip():
            raise ValueError
        return pattern.strip().lower(), str(ipaddress.ip_address(address.strip().strip("[]")))
    except ValueError:
        raise ValueError(f"'{text}' is not of the form NAME=ADDRESS, for example *.test=127.0.0.1") from None


def parse_name_server(text: str) -> str:
    """A name server as ADDRESS or ADDRESS:PORT, '[...]' around an IPv6 address with a port. Raises ValueError."""
    address, port = text.strip(), ""
    if address.startswith("[") or address.count(":") == 1:
        address, _, port = address.rpartition(":") if not address.endswith("]") else (address, "", "")
    try:
        parsed = ipaddress.ip_address(address.strip("[]"))
        number = int(port or 53)
        if not 0 < number < 65_536:
            raise ValueError
    except ValueError:
        raise ValueError(f"'{text}' is not the address of a name server, like 127.0.0.1 or 127.0.0.1:5353") from None
    return f"[{parsed}]:{number}" if parsed.version == 6 else f"{parsed}:{number}"
