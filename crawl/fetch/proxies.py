"""The operator's proxies: which one a host's requests go through, and what happens when one does not answer."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

import xxhash

log = logging.getLogger(__name__)

# A proxy that failed is left alone for so long, doubled with each failure in a row.
ASIDE_SECONDS = 5.0
MAX_ASIDE_SECONDS = 300.0
# socks5h: the proxy looks the name up, as an http proxy does. socks5 would make libcurl do it, past our resolver.
SCHEMES = ("http", "socks5h")

# Codes of libcurl; pycurl has no name for the second.
_RECEIVE_ERROR, _PROXY_ERROR = 56, 97


@dataclass(slots=True)
class Proxy:
    """`url` may hold a password, `name` does not."""

    url: str
    name: str
    failures: int = 0  # in a row
    until: float = 0.0  # time.monotonic(): when it is tried again


class Proxies:
    """The proxies of a worker; false when there are none. Belongs to the fetch loop's thread."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._proxies = [Proxy(url, name_of(url)) for url in dict.fromkeys(urls)]

    def __bool__(self) -> bool:
        return bool(self._proxies)

    def choose(self, host: str) -> Proxy | None:
        """The proxy of a host: always the same one while it works (rendezvous hashing); None when none works."""
        now = time.monotonic()
        able = [proxy for proxy in self._proxies if proxy.until <= now]
        return max(able, key=lambda proxy: xxhash.xxh3_64_intdigest(f"{proxy.name}\n{host}".encode()), default=None)

    def failed(self, proxy: Proxy, reason: str) -> None:
        """Puts a proxy aside. Requests that were under way when it failed count as one failure."""
        now = time.monotonic()
        if proxy.until > now:
            return
        seconds = min(ASIDE_SECONDS * 2**proxy.failures, MAX_ASIDE_SECONDS)
        proxy.failures = min(proxy.failures + 1, 30)
        proxy.until = now + seconds
        log.warning("the proxy %s is left alone for %.0f s: %s", proxy.name, seconds, reason)

    def works(self, proxy: Proxy) -> None:
        """Something came back through it."""
        proxy.failures = 0

    def seconds_left(self) -> float:
        """How long until one of them is tried again."""
        return max(0.0, min(proxy.until for proxy in self._proxies) - time.monotonic())


def parse_proxy(text: str) -> str:
    """A proxy as the operator wrote it. Raises ValueError that says what is wrong and never shows a password."""
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("a proxy is written http://HOST:PORT or socks5h://HOST:PORT") from None
    if parts.scheme not in SCHEMES:
        raise ValueError(f"a proxy begins with {' or '.join(f'{scheme}://' for scheme in SCHEMES)}")
    if not host or not port or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"a proxy is written {parts.scheme}://HOST:PORT, or {parts.scheme}://USER:PASSWORD@HOST:PORT")
    return text.strip()


def name_of(url: str) -> str:
    """A proxy's URL without user and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].rstrip('/')}"


def proxy_failure(code: int, message: str, connected: bool, connect_status: int, status: int) -> str:
    """Why a request failed at the proxy itself, empty when it did not: what lies behind it is the site's doing.

    `code` and `message` of libcurl; `connected`: a connection to the proxy stood; `connect_status`: what it
    answered to CONNECT. 502 and 504 are about the site (RFC 9110 section 15.6).
    """
    if 407 in (connect_status, status):
        return "it wants another user or password (407)"
    if not code:
        return ""
    if not connected:
        return "no connection"
    if code == _PROXY_ERROR and "cannot complete" not in message.lower():
        return message
    if code == _RECEIVE_ERROR and "CONNECT" in message:
        return message
    return ""
