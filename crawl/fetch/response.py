"""A request as it goes out and what came back for it."""

from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

from crawl.fetch.errors import BODY_KINDS, Kind

REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(slots=True)
class Request:
    """One GET. `address` is the literal that was checked and will be dialled; `name` the URL's host."""

    url: str
    name: str
    address: str
    headers: list[str]
    max_bytes: int
    proxy: str = ""
    fresh: bool = False  # not on a connection that an earlier request has used
    last: bool = False  # its connection is closed after it
    lenient: bool = False  # to be read by crawl.fetch.lenient


@dataclass(slots=True)
class Response:
    """What came back. Times are seconds of time.time(); the body has its content encoding still on.

    `sent_at`: when the request went out at the earliest; `arrived_at`: when the server had it at the
    latest, as far as can be told from here, which is what politeness counts from; `answered_at`: when its first byte
    came, or the request ended without any.
    """

    url: str
    status: int = 0
    lines: list[bytes] = field(default_factory=list)
    body: bytes = b""
    error: Kind | None = None
    detail: str = ""
    truncated: str | None = None
    address: str = ""
    started_at: float = 0.0
    sent_at: float = 0.0
    arrived_at: float = 0.0
    ended_at: float = 0.0
    answered_at: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    proxy_failure: str = ""  # the request did not get beyond the proxy, and why
    unreadable: bool = False  # libcurl made nothing of it; another reader may
    cut_off: bool = False  # a connection that was there before ended without an answer; a new one may bring one
    odd: str = ""  # what the lenient reader forgave

    def read_headers(self) -> None:
        """Fills `headers` from the raw lines: names in lower case, repeated ones joined by a comma.

        Location is text by UTF-8 where it is valid, as browsers read it; lines without a colon count
        for nothing.
        """
        for line in self.lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not name.strip():
                continue
            key = name.strip().decode("latin-1").lower()
            raw = value.strip()
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError:
                text = raw.decode("latin-1")
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def overlook_body(self) -> None:
        """A redirect whose head is whole leads where it says, whatever became of its body."""
        if self.error in BODY_KINDS and self.status in REDIRECTS and self.headers.get("location"):
            self.error, self.detail = None, ""

    def overlook_end(self) -> None:
        """A body of no told length ends with its connection, with TLS's goodbye or, as browsers have it, without."""
        told = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self.error is Kind.TRUNCATED and not told:
            self.error, self.detail, self.truncated = None, "", None

    @property
    def sent_ms(self) -> int:
        """`sent_at` in ms since 1970: what rows and WARC records date the fetch by."""
        return int(self.sent_at * 1000)

    @property
    def http_version(self) -> str:
        """ "1.0", "1.1" or "2", as the answer says it; empty without an answer."""
        name, _, version = (
            (self.lines[0].split(None, 1) or [b""])[0].decode("latin-1").partition("/") if self.lines else ("",) * 3
        )
        return version if name == "HTTP" else ""

    @property
    def head(self) -> bytes:
        """The status line and headers as received."""
        return b"".join(self.lines)


def retry_after_seconds(value: str, now: float) -> float | None:
    """The wait that a Retry-After header asks for, in seconds, or None when it asks for nothing sensible.

    RFC 9110 section 10.2.3: seconds or an HTTP date. A negative number, a date in the past or
    garbage is no wish at all: the caller falls back to its own back-off, never to zero.
    """
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:12]), 10**9))
    try:
        wanted = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return wanted if wanted > 0 else None
