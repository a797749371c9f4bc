"""Fetches what libcurl cannot read: one GET on a connection of its own, read by http1.Reader.

libcurl stays the way for everything else; a host comes here when it gave an answer that libcurl refused.
Sockets are non-blocking and driven by the fetch loop, so a server that holds one holds up nothing else.
Guard, checked address, time limits, caps and TLS verification are those of the loop.
"""

import errno
import logging
import os
import select
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Protocol
from urllib.parse import urlsplit

from crawl.fetch.errors import Kind
from crawl.fetch.guard import Guard
from crawl.fetch.http1 import BadHTTP, Reader
from crawl.fetch.limits import ARRIVAL_SLACK_SECONDS, Limits
from crawl.fetch.response import Request, Response
from crawl.fetch.target import origin_of, request_head

# Answers in a row that needed no leniency, then the host is asked by libcurl again.
PATIENCE = 3
MAX_ODD_ORIGINS = 10_000
TICK_SECONDS = 0.5
_RECEIVE_BYTES = 128 * 1024
_PIECES_AT_ONCE = 16  # then the other transfers have their turn

log = logging.getLogger(__name__)


class OddOrigins:
    """The origins that need leniency, and how many plain answers in a row are left until they no longer do."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, int] = OrderedDict()

    def __contains__(self, url: str) -> bool:
        return bool(self._left) and origin_of(url) in self._left

    def remember(self, url: str) -> None:
        """libcurl could not read an answer of its origin."""
        origin = origin_of(url)
        self._left[origin] = PATIENCE
        self._left.move_to_end(origin)
        if len(self._left) > MAX_ODD_ORIGINS:
            self._left.popitem(last=False)

    def note(self, response: Response) -> None:
        """Takes what the lenient reader made of an answer."""
        origin = origin_of(response.url)
        if origin not in self._left:
            return
        self._left[origin] = PATIENCE if response.odd and not response.error else self._left[origin] - 1
        if not self._left[origin]:
            del self._left[origin]


class Surroundings(Protocol):
    """What a transfer needs of the fetch loop. All of it is called on the loop's thread."""

    limits: Limits
    guard: Guard
    ca_file: str

    def watch(self, descriptor: int, events: int, ready: Callable[[], None]) -> None:
        """Calls `ready` whenever one of the events has come up; replaces an earlier watch."""

    def unwatch(self, descriptor: int) -> None:
        """Ends a watch."""

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        """Calls a function at a time of time.time()."""


class LenientTransfer:
    """One request under way. `start` it; `done` gets the response, whatever comes of it."""

    def __init__(self, request: Request, loop: Surroundings, done: Callable[[Response], None]) -> None:
        self.request = request
        self.reader = Reader(request.max_bytes)
        self._loop = loop
        self._done: Callable[[Response], None] | None = done
        self._socket: socket.socket | None = None
        self._step: Callable[[], None] = self._connected
        self._unsent = request_head(request.url, [*request.headers, "Connection: close"])
        self._started = self._window = time.time()
        self._stood = self._sent = self._first = 0.0  # connection, request, first byte (time.time())
        self._received = self._received_before = 0  # bytes, in all and when the window began

    def start(self) -> None:
        """Dials the address of the request."""
        self._guarded(self._dial)
        self._tick()

    def drop(self) -> None:
        """Ends it without a word to anyone."""
        self._done = None
        self._close()

    def _guarded(self, step: Callable[[], None]) -> None:
        if self._done is None:
            return
        try:
            step()
        except (BlockingIOError, ssl.SSLWantReadError):
            self._watch(select.EPOLLIN)
        except ssl.SSLWantWriteError:
            self._watch(select.EPOLLOUT)
        except BadHTTP as error:
            self._finish(Kind.BAD_HTTP, str(error))
        except ssl.SSLError as error:
            self._finish(self._broken(Kind.TLS), getattr(error, "verify_message", "") or str(error))
        except OSError as error:
            self._finish(self._broken(Kind.CONNECT), error.strerror or str(error))
        except Exception as error:  # what came must never take the loop down
            log.exception("cannot read the answer of %s", self.request.url)
            self._finish(Kind.INTERNAL, f"{type(error).__name__}: {error}")

    def _broken(self, before: Kind) -> Kind:
        """The kind of a connection that broke: `before` if that was before the request went out."""
        if not self._sent:
            return before
        return Kind.TRUNCATED if self.reader.lines else Kind.DISCONNECT

    def _watch(self, events: int) -> None:
        if self._socket is not None and self._done is not None:
            self._loop.watch(self._socket.fileno(), events, lambda: self._guarded(self._step))

    # --- the steps, each called whenever the socket is ready -----------------------------------------

    def _dial(self) -> None:
        address = self.request.address
        if not self._loop.guard.permits(address):
            self._finish(Kind.BLOCKED_ADDRESS, f"{address} is not a public address")
            return
        parts = urlsplit(self.request.url)
        self._socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self._socket.connect_ex((address, parts.port or (443 if parts.scheme == "https" else 80)))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        self._watch(select.EPOLLOUT)

    def _connected(self) -> None:
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._stood = time.time()
        if self.request.url.startswith("https:"):
            self._socket = _tls(self._loop.ca_file).wrap_socket(
                self._socket, do_handshake_on_connect=False, server_hostname=self.request.name.strip("[]")
            )
            self._step = self._shake_hands
        else:
            self._step = self._send
        self._step()

    def _shake_hands(self) -> None:
        assert isinstance(self._socket, ssl.SSLSocket)
        self._socket.do_handshake()
        self._step = self._send
        self._watch(select.EPOLLOUT)

    def _send(self) -> None:
        assert self._socket is not None
        self._sent = self._sent or time.time()
        self._unsent = self._unsent[self._socket.send(self._unsent) :]
        if self._unsent:
            self._watch(select.EPOLLOUT)
        else:
            self._step = self._receive
            self._watch(select.EPOLLIN)

    def _receive(self) -> None:
        assert self._socket is not None
        for _ in range(_PIECES_AT_ONCE):
            data = self._take()
            if not data:
                self.reader.end()
                kind = Kind.TRUNCATED if self.reader.truncated else None
                self._finish(kind if self.reader.lines else Kind.DISCONNECT, self.reader.truncated or "no answer")
                return
            self._first = self._first or time.time()
            self._received += len(data)
            self.reader.feed(data)
            if self.reader.done:
                self._finish(Kind.TRUNCATED if self.reader.truncated else None, self.reader.truncated)
                return
        # TLS may hold bytes that epoll knows nothing of.
        self._loop.call_at(0, lambda: self._guarded(self._step))

    def _take(self) -> bytes:
        assert self._socket is not None
        try:
            return self._socket.recv(_RECEIVE_BYTES)
        except ssl.SSLEOFError:  # closed without a goodbye, as many servers do; the length tells what is missing
            return b""

    # --- the end -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Looks at the clock."""
        if self._done is None:
            return
        limits, now = self._loop.limits, time.time()
        if now - self._started >= limits.total_seconds:
            self._finish(Kind.TIMEOUT_TOTAL if self._stood else Kind.TIMEOUT_CONNECT, "the time is over")
        elif not self._stood and now - self._started >= limits.connect_seconds:
            self._finish(Kind.TIMEOUT_CONNECT, f"no connection within {limits.connect_seconds} s")
        elif now - self._window >= limits.slow_seconds and self._stood:
            if self._received - self._received_before < limits.slowest_bytes_per_second * limits.slow_seconds:
                kind = Kind.TOO_SLOW if self._received else Kind.TIMEOUT_TOTAL
                self._finish(kind, f"fewer than {limits.slowest_bytes_per_second} bytes a second")
            self._window, self._received_before = now, self._received
        self._loop.call_at(now + TICK_SECONDS, self._tick)

    def _finish(self, kind: Kind | None, detail: str) -> None:
        done, self._done = self._done, None
        self._close()
        if done is None:
            return
        now, reader = time.time(), self.reader
        response = Response(self.request.url, reader.status, reader.lines, reader.body, kind, detail if kind else "")
        response.odd = reader.odd
        response.address = self.request.address
        response.started_at, response.ended_at = self._started, now
        response.sent_at = self._sent or now
        late = self._sent + (self._stood - self._started) + ARRIVAL_SLACK_SECONDS
        response.arrived_at = min(self._first or now, late) if self._sent else now
        if reader.overflow:
            response.error, response.truncated = Kind.TOO_LARGE, "length"
            response.detail = f"the body is longer than {self.request.max_bytes:,} bytes"
        elif kind not in (None, Kind.BAD_HTTP) and reader.lines:
            timed_out = kind in (Kind.TIMEOUT_TOTAL, Kind.TOO_SLOW)
            response.truncated = "time" if timed_out else "disconnect"
        response.read_headers()
        if reader.whole_head:
            response.overlook_body()
        done(response)

    def _close(self) -> None:
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None


@cache
def _tls(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)
