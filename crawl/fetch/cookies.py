"""The cookies of a campaign: a jar for each of its hosts, in the memory of the worker that visits them.

By RFC 6265, but narrower: a cookie goes to the very host, port included, that set it, whatever its Domain says.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

MAX_COOKIES = 50  # of a host; the least a browser must keep (RFC 6265 section 6.1)
MAX_COOKIE_BYTES = 4096  # name and value; the same source
MAX_HEADER_BYTES = 8000  # of a Cookie header; Apache refuses header lines of more than 8190
MAX_JARS = 20_000
_UNSAFE = frozenset(map(chr, (*range(32), 127)))


@dataclass(slots=True)
class Cookie:
    """`expires`: seconds of time.time(), None: when the worker ends."""

    value: str
    path: str
    secure: bool
    expires: float | None


Jar = dict[tuple[str, str], Cookie]  # by name and path


class CookieJars:
    """The jars of a worker. All of it happens on the fetch loop's thread."""

    def __init__(self) -> None:
        self._jars: OrderedDict[tuple[int, str], Jar] = OrderedDict()

    def header(self, campaign: int, url: str) -> str:
        """The value of the Cookie header for a URL; empty when there is none to send."""
        parts = urlsplit(url)
        jar = self._jars.get((campaign, parts.netloc))
        if not jar:
            return ""
        self._jars.move_to_end((campaign, parts.netloc))
        now = time.time()
        for key in [key for key, cookie in jar.items() if cookie.expires is not None and cookie.expires <= now]:
            del jar[key]
        # Longer paths first (RFC 6265 section 5.4).
        pairs, size = [], 0
        for (name, _), cookie in sorted(jar.items(), key=lambda item: -len(item[1].path)):
            pair = f"{name}={cookie.value}"
            if (cookie.secure and parts.scheme != "https") or not _covers(cookie.path, parts.path or "/"):
                continue
            size += len(pair) + 2
            if size > MAX_HEADER_BYTES:
                break
            pairs.append(pair)
        return "; ".join(pairs)

    def take(self, campaign: int, url: str, lines: Iterable[bytes]) -> bool:
        """Takes the Set-Cookie lines of an answer's head; whether one of them is new or has another value."""
        changed = False
        for line in lines:
            if line[:11].lower() == b"set-cookie:":
                changed |= self._set(campaign, url, line[11:].decode("utf-8", "replace").strip())
        return changed

    def _set(self, campaign: int, url: str, text: str) -> bool:
        parts = urlsplit(url)
        host = parts.netloc
        parsed = parse_cookie(text, parts.scheme, host, parts.path or "/")
        if parsed is None:
            return False
        name, cookie = parsed
        jar = self._jars.setdefault((campaign, host), {})
        self._jars.move_to_end((campaign, host))
        if len(self._jars) > MAX_JARS:
            self._jars.popitem(last=False)
        key = name, cookie.path
        before = jar.pop(key, None)
        if cookie.expires is not None and cookie.expires <= time.time():  # how a site deletes one
            return False
        jar[key] = cookie
        if len(jar) > MAX_COOKIES:
            del jar[next(iter(jar))]
        return before is None or before.value != cookie.value


def parse_cookie(text: str, scheme: str, host: str, path: str) -> tuple[str, Cookie] | None:
    """Name and cookie of a Set-Cookie value received for a URL; None: not to be kept (RFC 6265 section 5.2)."""
    pair, *attributes = text.split(";")
    name, equals, value = (part.strip() for part in pair.partition("="))
    if not equals or not name or _UNSAFE & set(text) or len(name) + len(value) > MAX_COOKIE_BYTES:
        return None
    cookie = Cookie(value, path.rpartition("/")[0] or "/", False, None)
    max_age: float | None = None
    for attribute in attributes:
        key, _, given = (part.strip() for part in attribute.partition("="))
        match key.lower():
            case "secure":
                cookie.secure = True
            case "path" if given.startswith("/"):
                cookie.path = given
            case "domain" if given and not _belongs(host, given.lstrip(".").lower()):
                return None
            case "max-age" if given.lstrip("-").isdecimal():
                max_age = time.time() + min(int(given[:12]), 10**9)
            case "expires":
                cookie.expires = _moment(given)
    if max_age is not None:
        cookie.expires = max_age
    if cookie.secure and scheme != "https":
        return None
    return name, cookie


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _belongs(host: str, domain: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return name == domain or name.endswith(f".{domain}")


def _covers(prefix: str, path: str) -> bool:
    return path == prefix or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")
