"""Every fault by name: what the server sends, and what one visit of trawl must make of it."""

import gzip
from dataclasses import dataclass

from crawl.fetch.errors import Kind
from tests.faults import answers as a
from tests.faults.answers import MIB, PAGE, Answer, answer, chunked, chunks, first_line, redirect

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
BINARY = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n"
CUT_BODY = f"Content-Length: {len(PAGE) + 500}"


@dataclass(frozen=True)
class Fault:
    """What is sent, and what is recorded: kind, status, body as received (size alone where it is large), why it is
    not whole, requests of one visit, and where a redirect leads."""

    what: str
    answer: Answer
    kind: Kind | None = None
    status: int = 200
    body: bytes | None = PAGE
    size: int | None = None
    truncated: str | None = None
    asked: int = 1
    leads_to: str = ""
    paused: str = ""  # the reason for which the host is left alone; nothing is recorded then
    second: bytes | None = None  # the body of /plain, asked for next on the same host


def bad(what: str, sent: Answer, status: int = 0, asked: int = 2) -> Fault:
    """Nothing that a browser would show. What libcurl cannot read is asked for twice."""
    return Fault(what, sent, Kind.BAD_HTTP, status, b"", asked=asked)


def lenient(what: str, sent: Answer, body: bytes = PAGE) -> Fault:
    """Refused by libcurl, shown by browsers: the second request is read leniently."""
    return Fault(what, sent, body=body, asked=2)


def cut(what: str, sent: Answer, body: bytes = PAGE) -> Fault:
    return Fault(what, sent, Kind.TRUNCATED, body=body, truncated="disconnect")


def moved(
    what: str, sent: Answer, leads_to: str = "", kind: Kind | None = None, asked: int = 1, truncated: str | None = None
) -> Fault:
    return Fault(what, sent, kind, 301, b"", leads_to=leads_to, asked=asked, truncated=truncated)


def busy(what: str, sent: Answer, paused: str) -> Fault:
    return Fault(what, sent, paused=paused)


LENGTHS = {
    "short-length": Fault(
        "Content-Length smaller than the body", answer("Content-Length: 9", length=False), body=PAGE[:9]
    ),
    "long-length": cut("Content-Length larger than the body (11)", answer(CUT_BODY, length=False)),
    "nul-length": lenient(
        "a NUL behind the Content-Length (12)", answer(b"Content-Length: %d\0" % len(PAGE), length=False)
    ),
    "negative-length": lenient("Content-Length: -5", answer("Content-Length: -5", length=False)),
    "word-length": lenient("Content-Length: many", answer("Content-Length: many", length=False)),
    "plus-length": lenient("Content-Length with a plus sign", answer(f"Content-Length: +{len(PAGE)}", length=False)),
    "empty-length": lenient("Content-Length without a number", answer("Content-Length:", length=False)),
    "unit-length": lenient("Content-Length with a unit", answer(f"Content-Length: {len(PAGE)} bytes", length=False)),
    "huge-length": Fault("Content-Length of 30 digits", answer(f"Content-Length: {'9' * 30}", length=False)),
    "same-lengths": Fault("Content-Length twice, the same", answer(f"Content-Length: {len(PAGE)}")),
    "same-lengths-listed": Fault(
        "Content-Length twice on a line", answer(f"Content-Length: {len(PAGE)}, {len(PAGE)}", length=False)
    ),
    "two-lengths": bad("Content-Length twice, not the same", answer("Content-Length: 9"), 200),
    "two-lengths-listed": bad("two different lengths on a line", answer("Content-Length: 9, 12", length=False), 200),
    "no-length": Fault("no Content-Length: the end of the connection is the end", answer(length=False)),
    "no-body": Fault("200 without a body", answer(body=b""), body=b""),
    "no-body-no-length": Fault("200, and then nothing", answer(body=b"", length=False), body=b""),
}

STATUS_LINES = {
    "no-reason": Fault("a status line without a reason (14)", answer(status="200")),
    "glued-reason": Fault("HTTP/1.1 200OK", answer(status="200OK")),
    "tab": Fault("a tab in the status line", first_line(b"HTTP/1.1\t200 OK")),
    "small-letters": Fault("http/1.1 200", first_line(b"http/1.1 200 OK")),
    "http10": Fault("HTTP/1.0", first_line(b"HTTP/1.0 200 OK")),
    "icy": Fault("a SHOUTcast status line", first_line(b"ICY 200 OK")),
    "two-spaces": lenient("two spaces in the status line", first_line(b"HTTP/1.1  200 OK")),
    "http12": lenient("HTTP/1.2", first_line(b"HTTP/1.2 200 OK")),
    "http9": lenient("HTTP/9.9 with a status", first_line(b"HTTP/9.9 200 OK")),
    "http1": lenient("HTTP/1", first_line(b"HTTP/1 200 OK")),
    "no-version": lenient("HTTP without a version", first_line(b"HTTP 200 OK")),
    "blank-first": lenient("an empty line before the status line", b"\r\n" + answer()),
    "junk-first": lenient("three bytes before the status line", b"x\r\n" + answer()),
    "status-600": Fault("status 600", answer(status="600 Odd"), status=600),
    "status-999": Fault("status 999", answer(status="999 Odd"), status=999),
    "status-99": bad("status 99", answer(status="99 Odd")),
    "status-1000": bad("status 1000", answer(status="1000 Odd")),
    "status-minus": bad("status -200", answer(status="-200 OK")),
    "status-letters": bad("status 2x0", answer(status="2x0 OK")),
    "http09": bad("a page without a status line", PAGE),
    "garbage": bad("bytes from 0 to 255", bytes(range(256)) * 8),
    "garbage-tls": bad("the beginning of TLS", b"\x16\x03\x01\x02\x00garbage\r\n\r\n"),
    "garbage-version": bad("HTTP/9.9 abc nope", b"HTTP/9.9 abc nope\r\n\r\n"),
    "garbage-status": bad("200 OK, no http", b"200 OK\n\nno http"),
    "garbage-lines": bad("500 empty lines", b"\r\n" * 500),
    "tls-alert": bad("a TLS alert", b"\x15\x03\x01\x00\x02\x02\x28"),
    "ssh": bad("an SSH server", b"SSH-2.0-OpenSSH_9.2\r\n"),
    "h2-preface": bad("HTTP/2 without being asked", b"\0\0\x12\x04\0\0\0\0\0" + bytes(18)),
    "empty": Fault("nothing at all", b"", Kind.DISCONNECT, 0, b""),
    "status-line-cut": Fault("HTT", b"HTT", Kind.DISCONNECT, 0, b""),
    "status-line-alone": cut("a status line and no more", b"HTTP/1.1 200 OK\r\n", b""),
    "interim-then-page": Fault("100 Continue first", b"HTTP/1.1 100 Continue\r\n\r\n" + answer()),
    "many-interim": Fault(
        "103 Early Hints 20 times", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 20 + answer()
    ),
    "interim-flood": bad(
        "100 Continue 20,000 times", b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000 + answer(), 100, asked=1
    ),
    "interim-alone": Fault("100 Continue and no answer", b"HTTP/1.1 100 Continue\r\n\r\n", Kind.DISCONNECT, 100, b""),
    "switching": Fault(
        "101 that nobody asked for",
        answer("Upgrade: websocket", status="101 Switching Protocols", body=b"", length=False),
        Kind.DISCONNECT,
        101,
        b"",
    ),
}

HEADERS = {
    "no-colon": lenient(
        "a header line without a colon (13)", answer(b"PHP Warning  headers already sent in index.php")
    ),
    "nul-header": lenient("a NUL in a header", answer(b"X-Name: a\0b")),
    "carriage-return": lenient("a carriage return in a header", answer(b"X-Name: a\rb")),
    "fold-first": lenient("a folded line before any header", first_line(b"HTTP/1.1 200 OK\r\n folded")),
    "folded": Fault("a folded header", answer("X-Name: a\r\n  b")),
    "space-colon": Fault("a space before the colon", answer("X-Name : a")),
    "latin1-header": Fault("Latin-1 in a header", answer(b"X-Name: caf\xe9")),
    "empty-name": Fault("a header without a name", answer(b": nothing")),
    "bare-lf": Fault("lines that end in LF alone", answer().replace(b"\r\n", b"\n")),
    "no-headers": Fault("no headers", b"HTTP/1.1 200 OK\r\n\r\n" + PAGE),
    "header-cut": cut("the connection ends within a header", b"HTTP/1.1 200 OK\r\nContent-Ty", b""),
    "head-cut": cut("the connection ends between two headers", HEAD, b""),
    "long-header": lenient("a header of 200 KB", answer("X-Name: " + "h" * 200_000)),
    "huge-header": bad("a header of 2 MB", answer("X-Name: " + "h" * 2_000_000), 0),
    "many-headers": Fault("4,000 headers", answer(*["X-Name: a"] * 4_000)),
    "more-headers": lenient("10,000 headers", answer(*["X-Name: a"] * 10_000)),
    "too-many-headers": bad("100,000 headers", answer(*["X-Name: a"] * 100_000), 0),
    "endless-header": bad(
        "headers without end",
        a.stream(b"HTTP/1.1 200 OK\r\n", b"X-Name: " + b"x" * 8000 + b"\r\n", 10_000),
        200,
        asked=1,
    ),
}

BODIES = {
    "chunked": Fault("two chunks", chunks(PAGE[:20], PAGE[20:])),
    "chunk-extension": Fault("a chunk with an extension", chunked(b"5;x=y\r\nhello\r\n0\r\n\r\n"), body=b"hello"),
    "chunk-lf": Fault("chunks with LF alone", chunked(b"5\nhello\n0\n\n"), body=b"hello"),
    "chunk-trailer": Fault(
        "a trailer", chunked(b"5\r\nhello\r\n0\r\nLocation: /x\r\n\r\n", "Trailer: Location"), body=b"hello"
    ),
    "chunk-bad-trailer": lenient(
        "a trailer without a colon", chunked(b"5\r\nhello\r\n0\r\nno colon\r\n\r\n"), b"hello"
    ),
    "chunk-cut": cut(
        "the connection ends within a chunk", chunks(PAGE, end=b"400\r\nhalf of it"), PAGE + b"half of it"
    ),
    "chunk-no-end": cut("the last chunk is missing", chunked(b"5\r\nhello\r\n"), b"hello"),
    "chunk-garbage": cut("zz as the size of the second chunk", chunks(PAGE, end=b"zz\r\n")),
    "chunk-no-line-end": cut("no line end behind a chunk", chunked(b"5\r\nhello5\r\nworld0\r\n\r\n"), b"hello"),
    "chunk-first-garbage": bad("zz as the size of the first chunk", chunked(b"zz\r\nbad chunk"), 200, asked=1),
    "chunk-negative": bad("a chunk of -5 bytes", chunked(b"-5\r\nhello\r\n0\r\n\r\n"), 200, asked=1),
    "chunk-huge": bad("a chunk size of 18 digits", chunked(b"F" * 18 + b"\r\nhello"), 200, asked=1),
    "chunked-not": bad("chunked it says, and is not", chunked(PAGE), 200, asked=1),
    "chunked-and-length": Fault(
        "chunked, and a Content-Length",
        chunked(b"%x\r\n%s\r\n0\r\n\r\n" % (len(PAGE), PAGE), "Content-Length: 3"),
    ),
    "unknown-coding": lenient("an unknown transfer coding", answer("Transfer-Encoding: squeeze", length=False)),
    "gzip-label": Fault("gzip it says, and is not (18)", answer("Content-Encoding: gzip")),
    "gzip-cut": Fault(
        "gzip without its end", answer("Content-Encoding: gzip", body=a.GZIP_PAGE[:-20]), body=a.GZIP_PAGE[:-20]
    ),
    "gzip-tail": Fault(
        "bytes behind gzip", answer("Content-Encoding: gzip", body=a.GZIP_PAGE + b"x"), body=a.GZIP_PAGE + b"x"
    ),
    "gzip-bomb": Fault(
        "8 KB that unpack to 8 MiB",
        answer("Content-Encoding: gzip", body=gzip.compress(bytes(8 * MIB))),
        Kind.BOMB,
        size=len(gzip.compress(bytes(8 * MIB))),
    ),
    "gzip-stream-bomb": Fault(
        "4 MB that unpack to 4 GiB",
        a.stream(answer("Content-Encoding: gzip", length=False, body=a.GZIP_HEAD), a.GZIP_MIB, 4096),
        Kind.BOMB,
        size=len(a.GZIP_HEAD) + 4096 * len(a.GZIP_MIB),
    ),
    "brotli-bomb": Fault(
        "brotli that unpacks to 16 MiB",
        answer("Content-Encoding: br", body=a.BROTLI_BOMB),
        Kind.BOMB,
        body=a.BROTLI_BOMB,
    ),
    "unknown-encoding": Fault("an unknown content encoding", answer("Content-Encoding: squeeze")),
    "huge": Fault(
        "256 MiB", a.stream(BINARY + b"\r\n", bytes(MIB), 256), Kind.TOO_LARGE, size=32 * MIB, truncated="length"
    ),
    "huge-lenient": Fault(
        "256 MiB behind a header without a colon",
        a.stream(BINARY + b"no colon\r\n\r\n", bytes(MIB), 256),
        Kind.TOO_LARGE,
        size=32 * MIB,
        truncated="length",
        asked=2,
    ),
    "deep": Fault("100,000 elements deep", answer(body=b"<div>" * 100_000 + b"deep"), size=500_004),
    "many-links": Fault(
        "100,000 links",
        answer(body=b"".join(b"<a href='/m%d'>" % number for number in range(100_000))),
        size=sum(len(b"<a href='/m%d'>" % number) for number in range(100_000)),
    ),
    "nul-page": Fault(
        "NULs, and links that are none",
        answer(body=b"<a href='/\0nul'>\0</a><a href='http://[bad'>b</a><a href='/%zz%'>c</a>" + bytes(range(256))),
        size=325,
    ),
    "mislabelled": Fault("a picture that is said to be HTML", answer(body=b"\0\xff\xd8JFIF" * 3000), size=21_000),
    "maze": Fault("links that lead ever deeper", a.maze, size=93),
}

STATUSES = {
    "no-authenticate": Fault(
        "401 without WWW-Authenticate, with a large body (19)",
        answer(status="401 Unauthorized", body=PAGE * 2000),
        status=401,
        size=len(PAGE) * 2000,
    ),
    "500": Fault("500", answer(status="500 Internal Server Error"), status=500),
    "204-body": Fault("204 with a body", answer(status="204 No Content"), status=204, body=b""),
    "304-body": Fault(
        "304 with a body, unasked", answer(status="304 Not Modified"), kind=Kind.BAD_HTTP, status=304, body=b""
    ),
    "205-body": Fault("205 with a body", answer(status="205 Reset Content"), status=205),
    "retry-seconds": busy("429, Retry-After: 2 (15)", a.retry_after("2"), "HTTP 429, asked to wait 2 s"),
    "retry-date": busy("429, Retry-After as a date (15)", a.retry_after_date, "HTTP 429, asked to wait"),
    "retry-negative": busy("429, Retry-After: -30 (15)", a.retry_after("-30"), "HTTP 429"),
    "retry-garbage": busy("429, Retry-After: soon (15)", a.retry_after("soon"), "HTTP 429"),
    "retry-503": busy(
        "503, Retry-After: 2", a.retry_after("2", "503 Service Unavailable"), "HTTP 503, asked to wait 2 s"
    ),
}

REDIRECTS = {
    "location-utf8": moved(
        "Location in raw UTF-8 (21)", redirect("/plain/é?q=ü".encode()), "/plain/%C3%A9?q=%C3%BC", asked=2
    ),
    "location-latin1": moved("Location in Latin-1", redirect(b"/plain/\xe9"), "/plain/%C3%A9", asked=2),
    "location-space": moved("a space in Location", redirect("/plain/a b"), "/plain/a%20b", asked=2),
    "location-long": moved("a Location of 60,000 bytes", redirect("/" + "a" * 60_000), kind=Kind.BAD_REDIRECT),
    "location-too-long": Fault(
        "a Location of 300,000 bytes", redirect("/" + "a" * 300_000), Kind.BAD_HTTP, 0, b"", asked=2
    ),
    "location-nul": moved("a NUL in Location", redirect(b"/pl\0ain"), "/plain", asked=3),
    "location-empty": moved("an empty Location (22)", redirect("")),
    "location-blank": moved("a blank Location (22)", redirect("   ")),
    "no-location": Fault("302 without Location", answer(status="302 Found"), status=302),
    "two-locations": Fault(
        "two different Locations",
        answer("Location: /plain", "Location: /other", status="301 Moved", body=b""),
        Kind.BAD_HTTP,
        301,
        b"",
        asked=2,
    ),
    "location-file": moved("Location: file:///etc/passwd", redirect("file:///etc/passwd"), kind=Kind.BAD_REDIRECT),
    "location-script": moved("Location: javascript:alert(1)", redirect("javascript:alert(1)"), kind=Kind.BAD_REDIRECT),
    "location-broken": moved("Location: http://:::broken/", redirect("http://:::broken/"), kind=Kind.BAD_REDIRECT),
    "location-bracket": moved("Location: http://[::1", redirect("http://[::1"), kind=Kind.BAD_REDIRECT),
    "location-slashes": moved("Location: //", redirect("//"), kind=Kind.BAD_REDIRECT),
    "location-port": moved("Location: http://a.test:99999/", redirect("http://a.test:99999/"), kind=Kind.BAD_REDIRECT),
    "location-inside": moved("Location at an address that is not public", redirect("http://169.254.169.254/latest/")),
    "redirect-cut": moved(
        "a redirect whose body is cut",
        answer("Location: /plain", CUT_BODY, status="301 Moved", body=b"", length=False),
        "/plain",
        asked=2,
        truncated="disconnect",
    ),
    "redirect-to-huge": moved("a redirect to 256 MiB", redirect("/fault/huge"), "/fault/huge", asked=2),
    "self-redirect": moved("301 to itself (23)", a.self_redirect, kind=Kind.REDIRECT_LOOP),
    "self-redirect-cookie": moved(
        "301 to itself with a new cookie (23)", a.self_redirect_cookie, kind=Kind.REDIRECT_LOOP
    ),
    "redirect-pair": moved("two that lead to each other", a.redirect_pair, kind=Kind.REDIRECT_LOOP, asked=2),
    "endless-redirect": moved("redirects without end", a.endless_redirect, kind=Kind.TOO_MANY_REDIRECTS, asked=11),
}

TIME = {
    "hang": Fault("no answer", a.hang, Kind.TIMEOUT_TOTAL, 0, b""),
    "hang-in-head": Fault("half a head, then nothing", a.then_hang(HEAD), Kind.TOO_SLOW, body=b""),
    "hang-in-body": Fault(
        "half a body, then nothing",
        a.then_hang(answer("Content-Length: 1000000", length=False)),
        Kind.TOO_SLOW,
        truncated="time",
    ),
    "drip-header": Fault(
        "headers in drips", a.drip(b"HTTP/1.1 200 OK\r\n", b"X-Drip: drop\r\n"), Kind.TOO_SLOW, body=b""
    ),
    "drip-body": Fault(
        "a body in drips",
        a.drip(answer("Content-Length: 1000000", length=False), b"<p>drop</p>\n"),
        Kind.TOO_SLOW,
        body=None,
        truncated="time",
    ),
    "drip-lenient": Fault(
        "a body in drips behind a header without a colon",
        a.drip(answer("no colon", "Content-Length: 1000000", length=False), b"<p>drop</p>\n"),
        Kind.TOO_SLOW,
        body=None,
        truncated="time",
        asked=2,
    ),
    "slow-without-end": Fault(
        "enough bytes a second, for ever",
        a.drip(answer("Content-Length: 1000000", length=False), b"<p>drop</p>\n", 0.005),
        Kind.TIMEOUT_TOTAL,
        body=None,
        truncated="time",
    ),
    "late-but-whole": Fault("a head in three pieces", a.slowly(HEAD, b"X-Name: a\r\n\r\n", PAGE)),
    "reset": Fault("a reset instead of an answer", a.reset, Kind.DISCONNECT, 0, b""),
    "reset-in-head": Fault("a reset within the head", a.then_reset(HEAD), Kind.DISCONNECT, body=b""),
    "reset-in-body": cut("a reset within the body", a.then_reset(answer("Content-Length: 1000000", length=False))),
}

SMUGGLED = {
    "forged-at-once": Fault("a second answer behind the first", a.and_forged(a.SHORT), body=b"short", second=PAGE),
    "forged-204": Fault("a second answer behind a 204", a.and_forged(a.NO_CONTENT), status=204, body=b"", second=PAGE),
    "forged-304": Fault(
        "a second answer behind a 304",
        a.and_forged(a.NOT_MODIFIED),
        kind=Kind.BAD_HTTP,
        status=304,
        body=b"",
        second=PAGE,
    ),
}

FAULTS: dict[str, Fault] = {
    **LENGTHS,
    **STATUS_LINES,
    **HEADERS,
    **BODIES,
    **STATUSES,
    **REDIRECTS,
    **TIME,
    **SMUGGLED,
}

# robots.txt of hosts with these names (robots-NAME.test).
ROBOTS: dict[str, Answer] = {
    "robots-503": answer(status="503 Service Unavailable"),
    "robots-hang": a.hang,
    "robots-reset": a.reset,
    "robots-drip": a.drip(answer("Content-Length: 1000000", body=b"# rules\n", length=False), b"#\n"),
    "robots-interim": b"HTTP/1.1 101 Switching\r\nContent-Length: 9\r\n\r\n" + PAGE,
    "robots-head-cut": HEAD,
    "robots-no-body": answer(CUT_BODY, body=b"", length=False),
    "robots-closed": answer("Content-Type: text/plain", body=b"User-agent: *\nDisallow: /\n"),
    "robots-odd": answer(b"no colon", body=b"User-agent: *\nDisallow: /\n"),
}
