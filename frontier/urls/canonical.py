"""A link as written -> the URL to request and the identity it is known by.

Parsing is the WHATWG URL standard's, by can_ada; the identity adds the normalisation of RFC 3986, section
6.2.2, and an order for query parameters.
"""

from __future__ import annotations

import re
from functools import lru_cache
from string import ascii_letters, digits, hexdigits
from typing import NamedTuple

import can_ada

from .diagnosis import C0_AND_SPACE, explain, quote
from .ports import BAD_PORTS
from .rules import NO_RULES, Rules, keep_parameter, rewrite_path, without_www

MAX_URL_CHARS = 8192
MAX_HOST_CHARS = 253  # RFC 1035 section 2.3.4: 255 octets on the wire
MAX_LABEL_CHARS = 63

_ORIGINS = ("http://", "https://")

# Letters, digits, hyphen and underscore. WHATWG lets a few more through (`!"$&'()*+,;=` and such), which no
# resolver answers for; links with them are templates and typos ("http://{{host}}/", "http://a.com,").
_LABEL = re.compile(r"[a-z0-9_-]+")

_UNRESERVED = ascii_letters + digits + "-._~"
_KEPT = _UNRESERVED + "!$'()*+,;=:@/?&"  # RFC 3986: pchar, "/" and "?"

# Every escape and every character that does not stand for itself -> its normal form. A lone "%" must become
# "%25": left alone, it could join what follows into a new escape ("%4%31" -> "%41" -> "A").
_NORMAL_FORM = {chr(code): f"%{code:02X}" for code in range(128) if chr(code) not in _KEPT} | {
    f"%{high}{low}": chr(code) if chr(code) in _UNRESERVED else f"%{code:02X}"
    for high in hexdigits
    for low in hexdigits
    for code in [int(high + low, 16)]
}
# What may follow "%" in a normal escape: upper-case hex of anything that is not unreserved.
_NORMAL_HEX = "[0189A-F][0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-DF]"
# One class with look-behinds, not alternatives: sre then skips ahead by the class, twice as fast.
_ABNORMAL = re.compile(rf"[^{re.escape(_KEPT)}](?!(?<=%)(?:{_NORMAL_HEX}))(?:(?<=%)[{hexdigits}]{{2}})?")
# As _ABNORMAL, and "&": without a match, only a "?" at the end keeps a URL from being its own identity.
_NEEDS_WORK = re.compile(rf"[^{re.escape(_KEPT[:-1])}](?!(?<=%)(?:{_NORMAL_HEX}))").search


class InvalidURL(ValueError):
    """Not a URL that can be crawled; the message says why in plain words."""


class URL(NamedTuple):
    """A link after parsing."""

    fetch: str
    """What to request: as first seen, WHATWG-serialised, without fragment and user information."""
    canonical: str
    """The identity: equal for all spellings of one URL, and a URL itself."""
    host: str
    """"host" or "host:port" of the canonical form, the scheme's default port left out."""


def canonicalise(url: str, base: str | None = None, rules: Rules = NO_RULES) -> URL:
    """Parse a link as written, resolve it against `base`, and find its identity under the site's `rules`.

    Raises InvalidURL, and nothing else, for any string that is no http or https URL with a host which could
    exist, names a port that belongs to another protocol, is longer than MAX_URL_CHARS in any of its forms, or
    holds a NUL; also for such a `base`.
    Idempotent: both `canonical` and `fetch` lead to the same `canonical`.
    """
    if len(url) > MAX_URL_CHARS:
        raise _too_long(url)
    if "\0" in url and "\0" in url.strip(C0_AND_SPACE):
        raise InvalidURL("it contains a NUL character")
    against = None if base is None else _parsed_base(base)
    try:
        parsed = can_ada.parse(url) if against is None else against + url
    except (ValueError, TypeError):  # TypeError: a lone surrogate does not pass into C++
        raise InvalidURL(explain(url, has_base=base is not None)) from None
    fetch = parsed.href
    if not fetch.startswith(_ORIGINS):
        raise InvalidURL(f"scheme {quote(parsed.protocol[:-1])} is not http or https")
    if "@" in fetch and parsed.has_credentials():
        parsed.username = parsed.password = ""
        fetch = parsed.href
    if "#" in fetch:
        fetch = fetch[: fetch.index("#")]
    if len(fetch) > MAX_URL_CHARS:
        raise _too_long(fetch)
    netloc = parsed.host
    host = _checked_host(netloc)
    if rules is NO_RULES and host == netloc and not _NEEDS_WORK(fetch) and fetch[-1] != "?":
        return URL(fetch, fetch, host)
    return _identified(fetch, host, rules)


def _identified(fetch: str, host: str, rules: Rules) -> URL:
    scheme, _, rest = fetch.partition("://")
    path, _, query = _ABNORMAL.sub(_normal_form, rest[rest.index("/") :]).partition("?")
    if query:
        parameters = query.split("&")
        if rules.session_ids or rules.tracking:
            parameters = [part for part in parameters if keep_parameter(part, rules)]
        # Sorting is stable, so repeated names keep their order: for many servers the last one wins.
        parameters.sort(key=_parameter_name)
        query = "&".join(parameters)
    if rules is not NO_RULES:
        path = rewrite_path(path, rules)
        if rules.www:
            host = without_www(host)
    # "/a?" and "/a" are one identity: RFC 3986 lets them differ, but servers hand an application the same
    # empty query string for both, and the "?" is mostly what a form or a stripped parameter left behind.
    canonical = f"{scheme}://{host}{path}?{query}" if query else f"{scheme}://{host}{path}"
    if len(canonical) > MAX_URL_CHARS:
        raise _too_long(canonical)
    return URL(fetch, canonical, host)


def _normal_form(match: re.Match[str]) -> str:
    return _NORMAL_FORM[match[0]]


def _parameter_name(parameter: str) -> str:
    return parameter.partition("=")[0]


def _too_long(url: str) -> InvalidURL:
    return InvalidURL(f"it is {len(url)} characters long, over the limit of {MAX_URL_CHARS}")


# A page's links come one after the other with the same base, so a few entries serve every thread.
@lru_cache(maxsize=256)
def _parsed_base(base: str) -> can_ada.URL:
    try:
        return can_ada.parse(canonicalise(base).fetch)
    except InvalidURL as error:
        raise InvalidURL(f"base {quote(base)} is not usable: {error}") from None


@lru_cache(maxsize=16384)
def _checked_host(netloc: str) -> str:
    """The canonical "host" or "host:port" for a serialised one; raises InvalidURL if no such host can be."""
    if netloc.startswith("["):
        name, bracket, port = netloc.partition("]")
        name, port = name + bracket, port.removeprefix(":")
    else:
        name, _, port = netloc.partition(":")
        # "a.test." is the absolute spelling of "a.test" (RFC 1034 section 3.1): the same address and, unless
        # a server compares the Host header byte by byte, the same site.
        name = name.removesuffix(".")
        _check_name(name)
    if port == "0":
        raise InvalidURL("port 0 is out of range")
    if port in BAD_PORTS:
        raise InvalidURL(f"port {port} is not a web port")
    return f"{name}:{port}" if port else name


def _check_name(name: str) -> None:
    if len(name) > MAX_HOST_CHARS:
        raise InvalidURL(f"host {quote(name)} is longer than {MAX_HOST_CHARS} characters")
    for label in name.split("."):
        if len(label) > MAX_LABEL_CHARS:
            raise InvalidURL(f"host {quote(name)} has a label longer than {MAX_LABEL_CHARS} characters")
        if not _LABEL.fullmatch(label):
            raise InvalidURL(f"host {quote(name)} is not a valid name")
    # The identity must be a URL that parses to itself, whatever the parser's IDNA tables hold.
    if not can_ada.can_parse(f"http://{name}/") or can_ada.parse(f"http://{name}/").hostname != name:
        raise InvalidURL(f"host {quote(name)} is not a valid name")
