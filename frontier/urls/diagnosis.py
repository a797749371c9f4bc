"""Why the URL parser refused a URL, in plain words. The parser itself only says that it did."""

from __future__ import annotations

import re

# The WHATWG parser strips these at both ends ("C0 control or space") …
C0_AND_SPACE = "".join(map(chr, range(0x21)))
# … and removes these everywhere.
_TAB_AND_NEWLINE = dict.fromkeys(map(ord, "\t\n\r"))

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_AUTHORITY_END = re.compile(r"[/\\?#]")
# Also behind the odd spellings that browsers put up with: "http:u:p@h", "http:\\\\u:p@h".
_USERINFO = re.compile(r"^(\s*(?:https?:)?[/\\\s]*)[^/\\?#]*@", re.IGNORECASE)
_MAX_QUOTED_CHARS = 80
_MAX_PORT = 65535


def quote(text: str) -> str:
    """`text` for a message: quoted, escaped, shortened, and without a user name and password."""
    return repr(_shorten(_USERINFO.sub(r"\1", text)))


def explain(url: str, has_base: bool) -> str:
    """What is wrong with a URL that can_ada did not parse (WHATWG URL, section 4.4)."""
    text = url.strip(C0_AND_SPACE).translate(_TAB_AND_NEWLINE)
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "it contains a lone surrogate, which no encoding can carry"
    if not text and not has_base:
        return "it is empty"
    rest = text
    if scheme := _SCHEME.match(text):
        if (name := scheme[1].lower()) not in ("http", "https"):
            return f"scheme {quote(name)} is not http or https"
        rest = text[scheme.end() :]
    elif not has_base:
        return f"{quote(text)} is relative and there is no base to resolve it against"
    authority = _AUTHORITY_END.split(rest.lstrip("/\\"), maxsplit=1)[0]
    return _explain_host(authority.rpartition("@")[2])


def _explain_host(authority: str) -> str:
    if authority.startswith("["):
        address, bracket, port = authority.partition("]")
        if not bracket:
            return f"IPv6 address {quote(address)} has no closing bracket"
        host, port = address + bracket, port.removeprefix(":")
        fault = f"{quote(host)} is not a valid IPv6 address"
    else:
        host, _, port = authority.partition(":")
        fault = f"host {quote(host)} is not a valid name"
    if not host:
        return "no host"
    if port and not (port.isascii() and port.isdigit()):
        return f"port {quote(port)} is not a number"
    # Compared by length first: int() refuses to read thousands of digits.
    digits = port.lstrip("0")
    if digits and (len(digits) > len(str(_MAX_PORT)) or int(digits) > _MAX_PORT):
        return f"port {_shorten(port)} is out of range"
    return fault


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED_CHARS else text[:_MAX_QUOTED_CHARS] + "…"
