"""Answers that a machine made up, through the real engine: whatever comes, a visit ends with what is in the table.

TRAWL_TEST_FUZZED_ANSWERS=10000 makes it a long test with other answers each time (about ten minutes).
"""

import gzip
import itertools
import logging
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from crawl.fetch.errors import Kind
from crawl.fetch.limits import MAX_HEADER_BYTES
from crawl.fetch.visit import MAX_BODY_BYTES
from crawl.record import Record
from tests.faults.answers import FORGED, PAGE, Answer, answer, reset
from tests.faults.server import FaultServer, serve
from tests.faults.visiting import VisitingEngine, visiting

FEW = 300
EXAMPLES = int(os.environ.get("TRAWL_TEST_FUZZED_ANSWERS", FEW))

STATUS_LINES = [
    *(b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 200", b"HTTP/1.1"),
    *(b"HTTP/1.1 204 No Content", b"HTTP/1.1 206 Partial", b"HTTP/1.1 301 Moved", b"HTTP/1.1 302 Found"),
    *(b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 404 No", b"HTTP/1.1 421 Misdirected", b"HTTP/1.1 429 Slow"),
    *(
        b"HTTP/1.1 500 Oh",
        b"HTTP/1.1 503 Busy",
        b"HTTP/1.1 101 Switch",
        b"HTTP/1.1 999 Odd",
        b"HTTP/2 200",
        b"HTTP/3 200",
    ),
    *(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", b"HTTP/1.1  200 OK", b"ICY 200 OK", b"http/1.1 200 ok", b""),
    *(b"HTTP/1.1 000 Zero", b"HTTP/1.1 -20 Minus", b"HTTP/1.1 2\xb200 OK", b"HTTP/9.9 200 OK", b"SSH-2.0-x", b"<html>"),
]
NAMES = [
    *(b"Content-Type", b"Content-Length", b"Content-Encoding", b"Transfer-Encoding", b"Location", b"Set-Cookie"),
    *(
        b"Retry-After",
        b"Connection",
        b"ETag",
        b"Last-Modified",
        b"X-Robots-Tag",
        b"Content-Range",
        b"Trailer",
        b"Upgrade",
    ),
    *(b"content-length ", b"", b" folded", b"X-\0", b"X-\xe9", b"Content-Length\t", b"Alt-Svc", b"Cache-Control"),
]
VALUES = [
    *(
        b"0",
        b"5",
        b"83",
        b"-1",
        b"+5",
        b"5, 5",
        b"5, 6",
        b"0x5",
        b"99999999999999999999",
        b"many",
        b"",
        b" ",
        b"\0",
        b"\r",
    ),
    *(b"text/html", b"text/html; charset=\xff", b"text/html; charset=utf-16", b"application/xml", b"\xc3\xa9"),
    *(b"gzip", b"br", b"zstd", b"deflate", b"gzip, gzip", b"identity", b"squeeze", b"gzip, chunked", b"chunked"),
    *(
        b"chunked, chunked",
        b"close",
        b"keep-alive",
        b"/plain",
        b"/fuzzed",
        b"//",
        b"http://[",
        b"http://a.test:25/",
        b"?",
    ),
    *(
        b"http://127.1/",
        b"\xff\xfe",
        b"a=b",
        b"a=b; Domain=test; Path=/; Max-Age=9e9",
        b"bytes 0-4/5",
        b"*",
        b"noindex",
    ),
    *(b"1", b"Thu, 01 Jan 1970 00:00:00 GMT", b"Thu, 99 Foo 99999 99:99:99", b'"x"', b"W/", b"max-age=-1", b'h2=":1"'),
]
CHUNKS = [
    *(
        b"5\r\nhello\r\n",
        b"5;x=y\r\nhello\r\n",
        b"05\r\nhello\r\n",
        b"5\nhello\n",
        b"0\r\n\r\n",
        b"0\r\nX: y\r\n\r\n",
        b"0\r\n",
    ),
    *(
        b"-5\r\nhello\r\n",
        b"zz\r\n",
        b"FFFFFFFFFFFFFFFFFF\r\n",
        b"7fffffffffffffff\r\nx",
        b"5\r\nhel",
        b"5 \r\nhello\r\n",
        b"\r\n",
    ),
]
BODIES = [
    PAGE,
    b"",
    b"hello",
    gzip.compress(PAGE),
    gzip.compress(PAGE)[:-9],
    gzip.compress(bytes(1 << 20)),
    b"\0\xff" * 40,
]
JUNK = [
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b"\0",
    b":",
    b" ",
    b"\r",
    b"\xff",
    b"HTTP/1.1 200 OK\r\n",
    b"x" * 3000,
    b"a: b\r\n" * 200,
]


@dataclass
class Fuzz:
    """An answer: in these pieces on the connection, which then is closed or reset; `robots`: to robots.txt as well."""

    pieces: list[bytes]
    resets: bool = False
    robots: bool = False
    number: int = field(default_factory=itertools.count().__next__, compare=False, repr=False)

    def send(self, connection: socket.socket, path: str) -> None:
        for piece in self.pieces:
            connection.sendall(piece)
        if self.resets:
            reset(connection, path)
        else:
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(1)
            connection.recv(65536)


@st.composite
def answers(draw: st.DrawFn) -> Fuzz:
    """An answer that is right but for a few changes, or put together from what has a meaning."""
    head = [draw(st.sampled_from(STATUS_LINES))]
    for name, value in draw(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=5)):
        head.append(name + b": " + value)
    body = draw(st.sampled_from(BODIES) | st.binary(max_size=60))
    framing = draw(st.sampled_from(["length", "length", "chunks", "end"]))
    if framing == "length":
        head.append(b"Content-Length: %d" % len(body))
    elif framing == "chunks":
        head.append(b"Transfer-Encoding: chunked")
        body = b"".join(draw(st.lists(st.sampled_from(CHUNKS), max_size=5))) + draw(
            st.sampled_from([b"", b"0\r\n\r\n"])
        )
    data = b"\r\n".join(head) + b"\r\n\r\n" + body + draw(st.sampled_from([b"", b"", b"", FORGED, b"more"]))
    for change in draw(st.lists(st.sampled_from([_cut, _cut_out, _insert, _twice, _flip]), max_size=3)):
        data = change(draw, data)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=3)))
    pieces = [data[start:end] for start, end in itertools.pairwise([0, *cuts, len(data)]) if start < end]
    return Fuzz(pieces, draw(st.integers(0, 9)) == 0, draw(st.integers(0, 4)) == 0)


def _span(draw: st.DrawFn, data: bytes) -> tuple[int, int]:
    start = draw(st.integers(0, len(data)))
    return start, draw(st.integers(start, min(len(data), start + 40)))


def _cut(draw: st.DrawFn, data: bytes) -> bytes:
    return data[: draw(st.integers(0, len(data)))]


def _cut_out(draw: st.DrawFn, data: bytes) -> bytes:
    start, end = _span(draw, data)
    return data[:start] + data[end:]


def _insert(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.sampled_from(JUNK) | st.binary(max_size=9)) + data[at:]


def _twice(draw: st.DrawFn, data: bytes) -> bytes:
    start, end = _span(draw, data)
    return data[:end] + data[start:end] + data[end:]


def _flip(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, max(0, len(data) - 1)))
    return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]


class FuzzServer(FaultServer):
    """Answers /fuzzed, and robots.txt where it is told so, on hosts fN.test; the rest is sound."""

    now: Fuzz

    def reply(self, host: str, path: str) -> Answer:
        send: Callable[[socket.socket, str], None] = self.now.send
        if host.startswith("f") and (path == "/fuzzed" or (path == "/robots.txt" and self.now.robots)):
            return send
        return super().reply(host, path)


class Errors(logging.Handler):
    """What was logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(self.format(record))


@dataclass
class World:
    """A server, an engine, and the log of both."""

    server: FuzzServer
    engine: VisitingEngine
    errors: Errors

    def visit(self, fuzz: Fuzz) -> tuple[list[Record], list[Record], str]:
        """Visits a host with the answer and, beside it, a sound one. Records of both, and why the first waits."""
        self.server.now = fuzz
        kept = self.engine.kept
        kept.records.clear()
        kept.ended.clear()
        port = self.server.port
        fuzzed, sound = f"f{fuzz.number}.test:{port}", f"s{fuzz.number}.test:{port}"
        visit = self.engine.begin([f"http://{fuzzed}/fuzzed", f"http://{fuzzed}/plain"])
        self.engine.begin([f"http://{sound}/plain"])
        kept.wait(2, 20)
        reason = self.engine.release_of(visit).reason
        return self.engine.records_of(fuzzed), self.engine.records_of(sound), reason


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    errors, server = Errors(), FuzzServer()
    logging.getLogger("crawl").addHandler(errors)
    try:
        with serve(server), visiting(tmp_path_factory.mktemp("data")) as engine:
            yield World(server, engine, errors)
    finally:
        logging.getLogger("crawl").removeHandler(errors)


@pytest.mark.timeout(300 + EXAMPLES)  # seconds
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES == FEW,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@example(Fuzz([answer()]))
@example(Fuzz([]))
@example(Fuzz([answer(b"no colon")], robots=True))
@given(answers())
def test_whatever_comes_is_recorded_as_something_of_the_table_and_harms_nobody(world: World, fuzz: Fuzz) -> None:
    records, sound, reason = world.visit(fuzz)
    assert world.errors.told == []
    assert records or reason, "nothing was recorded, and nothing says why"
    for record in records:
        _check(record)
    # What is sent a moment after an answer, unasked, may be taken for the next answer of the same host.
    whole = len(fuzz.pieces) < 2
    after = [record for record in records if whole and record.outcome.target.url.fetch.endswith("/plain")]
    for record in (*after, *sound):
        outcome = record.outcome
        if outcome.error is Kind.ROBOTS_DENIED and fuzz.robots:
            continue
        assert outcome.response
        assert (outcome.error, outcome.response.status, outcome.response.body) == (None, 200, PAGE)
    assert sound


def _check(record: Record) -> None:
    """What holds for every outcome."""
    outcome, response = record.outcome, record.outcome.response
    assert outcome.error is None or outcome.error in Kind
    assert outcome.error is not Kind.INTERNAL, outcome.detail
    assert bool(outcome.detail) == bool(outcome.error)
    if response is None:
        assert outcome.error is Kind.ROBOTS_DENIED
        return
    assert 0 <= response.status <= 999
    assert outcome.error or response.status >= 200
    assert len(response.body) <= MAX_BODY_BYTES
    assert sum(map(len, response.lines)) <= MAX_HEADER_BYTES
    assert 0 < response.started_at <= response.sent_at <= response.ended_at
