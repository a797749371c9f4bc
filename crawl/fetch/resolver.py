"""Names to addresses: overrides, a cache with a lifetime, and look-ups that never block the fetch loop."""

import ipaddress
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase

from crawl.fetch.guard import is_loopback

# getaddrinfo does not tell a record's own lifetime; five minutes is what browsers settle on.
POSITIVE_SECONDS = 300
NEGATIVE_SECONDS = 30
MAX_ENTRIES = 100_000
THREADS = 16

Done = Callable[[list[str]], None]


class Resolver:
    """Resolves names for one fetch loop. All methods are called on the loop's thread.

    `submit(function)` must run a function on that thread soon; answers come back that way.
    """

    def __init__(self, overrides: Iterable[tuple[str, str]], submit: Callable[[Callable[[], None]], None]) -> None:
        self._overrides = list(overrides)
        self._submit = submit
        self._cache: dict[str, tuple[float, list[str]]] = {}
        self._waiting: dict[str, list[Done]] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="dns")

    def resolve(self, name: str, done: Done) -> None:
        """Calls `done` with the addresses of a host name (without port); an empty list: there are none."""
        known = self._known(name)
        if known is not None:
            done(known)
            return
        waiting = self._waiting.setdefault(name, [])
        waiting.append(done)
        if len(waiting) == 1:  # one look-up in flight per name
            self._pool.submit(self._look_up, name)

    def _known(self, name: str) -> list[str] | None:
        for pattern, address in self._overrides:
            if fnmatchcase(name, pattern):
                return [address]
        literal = name.strip("[]")
        try:
            return [str(ipaddress.ip_address(literal))]
        except ValueError:
            pass
        expires, addresses = self._cache.get(name, (0.0, []))
        return addresses if expires > time.monotonic() else None

    def _look_up(self, name: str) -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        except (OSError, UnicodeError):
            addresses = []
        self._submit(lambda: self._answer(name, addresses))

    def _answer(self, name: str, addresses: list[str]) -> None:
        if len(self._cache) >= MAX_ENTRIES:
            self._cache.clear()
        lifetime = POSITIVE_SECONDS if addresses else NEGATIVE_SECONDS
        self._cache[name] = (time.monotonic() + lifetime, addresses)
        for done in self._waiting.pop(name, ()):
            done(addresses)

    def close(self) -> None:
        """Stops the look-up threads; look-ups under way are given up."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def stays_here(name: str, overrides: Iterable[tuple[str, str]]) -> bool:
    """Whether a host name can only mean this machine, told without a look-up."""
    for pattern, address in overrides:
        if fnmatchcase(name, pattern):
            return is_loopback(address)
    return name == "localhost" or name.endswith(".localhost") or is_loopback(name.strip("[]"))


def parse_override(text: str) -> tuple[str, str]:
    """'*.test=127.0.0.1' as (pattern, address). Raises ValueError that says what is wrong."""
    pattern, _, address = text.strip().partition("=")
    try:
        return pattern.strip().lower(), str(ipaddress.ip_address(address.strip().strip("[]")))
    except ValueError:
        raise ValueError(f"'{text}' is not of the form NAME=ADDRESS, for example *.test=127.0.0.1") from None
