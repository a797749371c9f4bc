"""Headers and credentials that an operator adds to a campaign's requests: what is allowed, and where they go."""

import base64
import re
from collections.abc import Iterable, Mapping

from frontier.urls import InvalidURL, canonicalise

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2
MAX_HEADER_BYTES = 4096  # of one line
MAX_HEADERS = 50

_CONNECTION = "it belongs to the connection, which trawl looks after"
_REFUSED = {
    **dict.fromkeys(
        ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "http2-settings"),
        _CONNECTION,
    ),
    "host": "it follows from the URL",
    "content-length": "a request of trawl has no body",
    "content-type": "a request of trawl has no body",
    "accept-encoding": "trawl names the encodings that it can undo",
    "user-agent": "it says who crawls; name a contact instead (--contact)",
    "cookie": "cookies are kept for each host (--cookies)",
    "authorization": "it must go to the hosts alone that it is for (--auth)",
    "range": "trawl asks for whole pages",
    **dict.fromkeys(
        ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range"),
        "trawl asks by what it knows of a page",
    ),
}
SECRET_HEADERS = ("authorization", "cookie", "proxy-authorization")
_WITHHELD = tuple(f"{name}:" for name in SECRET_HEADERS)


def parse_header(text: str) -> str:
    """A header as it is sent, "Name: value". Raises ValueError that says what is wrong."""
    name, colon, value = text.partition(":")
    value = value.strip(" \t")
    if not colon or not _TOKEN.fullmatch(name):
        raise ValueError(f"{text!r} is not a header like 'Name: value'")
    if not value:
        raise ValueError(f"the header {name} has no value")
    if not (value.isascii() and value.replace("\t", " ").isprintable()):
        raise ValueError(f"the value of the header {name} must be plain ASCII, without line breaks")
    if len(name) + len(value) > MAX_HEADER_BYTES:
        raise ValueError(f"the header {name} is longer than {MAX_HEADER_BYTES} bytes")
    reason = _REFUSED.get(name.lower()) or (_CONNECTION if name.lower().startswith("proxy-") else "")
    if reason:
        raise ValueError(f"the header {name} cannot be set: {reason}")
    return f"{name}: {value}"


def parse_headers(text: str) -> tuple[str, ...]:
    """Headers, one a line; empty lines count for nothing. Raises ValueError."""
    headers = tuple(parse_header(line.strip()) for line in text.split("\n") if line.strip())
    if len(headers) > MAX_HEADERS:
        raise ValueError(f"more than {MAX_HEADERS} headers")
    return headers


def merged(defaults: Iterable[str], added: Iterable[str]) -> list[str]:
    """The default headers, those left out that are among the added ones, and these."""
    added = list(added)
    names = {line.partition(":")[0].lower() for line in added}
    return [*(line for line in defaults if line.partition(":")[0].lower() not in names), *added]


def parse_origin(text: str) -> str:
    """The origin that credentials are for: `https://host` for a bare host. Raises ValueError."""
    try:
        url = canonicalise(text if "://" in text else f"https://{text}").fetch
    except InvalidURL as error:
        raise ValueError(f"'{text}' is not a host or an origin: {error}") from None
    slash = url.index("/", 8)
    if url[slash:] != "/":
        raise ValueError(f"'{text}' is more than a host: credentials are for the whole of it")
    return url[:slash]


def parse_auth(text: str) -> tuple[str, str, str]:
    """Origin, user and password of HOST=USER:PASSWORD. Raises ValueError, whose message never has the password."""
    host, equals, pair = text.partition("=")
    user, colon, password = pair.partition(":")
    if not (host and equals and user and colon):
        raise ValueError("credentials are written HOST=USER:PASSWORD (for http: http://HOST=USER:PASSWORD)")
    check_credential(user, password)
    return parse_origin(host), user, password


def check_credential(user: str, password: str) -> None:
    """Refuses what basic authentication cannot send (RFC 7617 section 2). Raises ValueError."""
    if ":" in user:
        raise ValueError("a user name cannot hold a colon")
    if not (user + password).isprintable():
        raise ValueError("a user name or password cannot hold control characters")


def basic(user: str, password: str) -> str:
    """The header line of basic authentication, in UTF-8 (RFC 7617)."""
    return f"Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def for_url(url: str, headers: Iterable[str], credentials: Mapping[str, str]) -> list[str]:
    """What goes with a request that is not for a page, such as robots.txt: added headers, the origin's credentials."""
    lines = [line for line in headers if not line.lower().startswith("accept:")]
    if credentials and (line := credentials.get(url[: url.index("/", 8)])):
        lines.append(line)
    return lines


def withheld(headers: Iterable[str]) -> list[str]:
    """Headers as they may be stored: that credentials and cookies were sent, but not which."""
    return [f"{line.partition(':')[0]}: (withheld)" if line.lower().startswith(_WITHHELD) else line for line in headers]
