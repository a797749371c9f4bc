"""What a visit asks for, how it asks, and what it hands on."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from crawl.fetch.errors import Kind
from crawl.fetch.request_headers import merged
from crawl.fetch.response import Response
from crawl.pages import Key
from crawl.plan import Plan
from crawl.store.kept import Payload
from frontier.urls import URL

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@dataclass(slots=True)
class Known:
    """What earlier fetches of a page left behind. Validators are those that may be sent: valid, of a body that is
    kept."""

    id: int
    queued: bool
    failures: int = 0
    etag: str = ""
    last_modified: str = ""
    digest: str = ""
    payload: Payload | None = None  # where the body is kept, if it still is


@dataclass(slots=True)
class Target:
    """A URL to fetch in a visit. `row` is its place in the back queue; None for a redirect's target."""

    url: URL
    key: Key
    plan: Plan
    depth: int
    row: int | None = None
    known: Known | None = None
    chain: tuple[str, ...] = ()
    first: "Target | None" = None  # where a chain of redirects began
    cookie: str = ""  # what is sent as Cookie
    cookie_came: bool = False  # a new one, with its answer or one further along its chain of redirects
    again: bool = False  # it is asked for a second time at once, and not a third
    fresh: bool = False  # on a connection of its own


@dataclass(slots=True)
class Outcome:
    """What became of a target, on its way to the writer. No response: nothing was asked for."""

    target: Target
    response: Response | None = None
    error: Kind | None = None
    detail: str = ""
    retry_at: int | None = None
    redirect: URL | None = None
    request_head: bytes = b""


def origin_of(url: str) -> str:
    """scheme://host[:port] of an absolute URL."""
    return url[: url.index("/", 8)]


def twin_of(origin: str) -> str:
    """The same name and port by the other scheme."""
    scheme, _, rest = origin.partition("://")
    return f"{'http' if scheme == 'https' else 'https'}://{rest}"


def headers_for(target: Target) -> list[str]:
    """The request headers, with the conditions that let an unchanged page be answered without a body."""
    headers = [
        f"User-Agent: {target.plan.user_agent}",
        f"Accept: {ACCEPT}",
        "Accept-Language: en,*;q=0.5",
        "Accept-Encoding: gzip, deflate, br, zstd",
    ]
    plan = target.plan
    if plan.headers:
        headers = merged(headers, plan.headers)
    if plan.credentials and (line := plan.credentials.get(origin_of(target.url.fetch))):
        headers.append(line)
    if target.cookie:
        headers.append(f"Cookie: {target.cookie}")
    # Both, where both are known (RFC 9110 section 13.1.3): who does not understand the first heeds the second.
    if target.known and target.known.etag:
        headers.append(f"If-None-Match: {target.known.etag}")
    if target.known and target.known.last_modified:
        headers.append(f"If-Modified-Since: {target.known.last_modified}")
    return headers


def is_conditional(target: Target) -> bool:
    """Whether the request for a target says what is known of it."""
    return bool(target.known and (target.known.etag or target.known.last_modified))


def request_head(url: str, headers: list[str]) -> bytes:
    """The request head as libcurl sends it over HTTP/1.1, for the WARC request record."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {parts.netloc}", *headers, "", ""]).encode()
