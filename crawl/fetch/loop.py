"""The fetch loop: one libcurl multi handle on one thread, driven by epoll, with timers.

Everything that happens to a transfer or a visit happens on this thread; other threads hand over
functions with `submit`. libcurl costs 0.016 ms of CPU a request (see docs/decisions.md).
"""

import contextlib
import heapq
import itertools
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pycurl

from crawl.fetch.authorities import CA_FILE
from crawl.fetch.errors import UNEXPECTED_EOF, UNREADABLE, Kind, kind_of
from crawl.fetch.guard import Guard
from crawl.fetch.lenient import LenientTransfer, OddOrigins
from crawl.fetch.limits import ARRIVAL_SLACK_SECONDS, MAX_HEADER_BYTES, Limits
from crawl.fetch.proxies import proxy_failure
from crawl.fetch.response import Request, Response

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 4096
# An idle connection is used again for so long; later requests, of any host, close it.
KEEP_SECONDS = 15
CUT_OFF = "the connection, which an earlier request had used, was closed or reset before an answer came"

Done = Callable[[Response], None]


def _nobody(response: Response) -> None:
    """Whom a transfer tells that has told."""


class Dialled(socket.socket):
    """A socket for libcurl, which takes a copy of its descriptor; this one is closed when it is forgotten."""

    def __del__(self) -> None:
        self.close()


class Transfer:
    """One request under way and what has come of it."""

    __slots__ = ("body", "cut_off", "done", "handle", "lines", "overflow", "request", "sent_at", "size", "started")

    def __init__(self, request: Request, done: Done) -> None:
        self.request = request
        self.done = done
        self.handle: Any = None
        self.lines: list[bytes] = []
        self.body: list[bytes] = []
        self.size = 0
        self.overflow = ""
        self.started = time.time()
        self.sent_at = 0.0
        self.cut_off = False

    def sending(self, *_: Any) -> int:
        """The request is about to go out, on a connection that stands. Only once: when a connection that was there
        before ends without an answer, libcurl would send it again by itself and at once, up to five times."""
        if self.sent_at:
            self.cut_off = True
            return int(pycurl.PREREQFUNC_ABORT)
        self.sent_at = time.time()
        return int(pycurl.PREREQFUNC_OK)

    def header(self, line: bytes) -> int | None:
        """Takes a header line; a new status line starts the head anew (after 1xx or a proxy's answer). Trailers
        count for nothing."""
        if self.body:
            return None
        if line.startswith(b"HTTP/"):
            self.lines, self.size = [], 0
        self.size += len(line)
        if self.size > MAX_HEADER_BYTES:
            self.overflow = "headers"
            return 0
        self.lines.append(line)
        return None

    def write(self, data: bytes) -> int | None:
        """Takes a piece of the body; past the cap it keeps what fits and ends the transfer."""
        if not self.body:
            self.size = 0
        room = self.request.max_bytes - self.size
        if len(data) > room:
            self.body.append(data[:room])
            self.overflow = "length"
            return 0
        self.size += len(data)
        self.body.append(data)
        return None

    def forget(self) -> Done:
        """Lets go of what came, and of whom to tell, who is returned: the handle keeps its last transfer while it
        waits for another one, and would keep a whole visit with it."""
        done, self.done = self.done, _nobody
        self.lines, self.body = [], []
        return done

    def head(self, status: int) -> str:
        """How much of the head of an answer (not of an interim one) has come: "", "part" or "whole"."""
        if not self.lines:
            return ""
        return "whole" if (b"\r\n" in self.lines or b"\n" in self.lines) and not 100 <= status < 200 else "part"


class FetchLoop(threading.Thread):
    """The thread that fetches. `start()` it, `submit` work to it, `close()` it."""

    def __init__(self, guard: Guard, ca_file: str = CA_FILE) -> None:
        super().__init__(name="fetch-loop", daemon=True)
        self.guard = guard
        self.ca_file = ca_file
        self.limits = Limits()
        self.odd_origins = OddOrigins()
        self._watches: dict[int, Callable[[], None]] = {}
        self._lenient: set[LenientTransfer] = set()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._socket_changed)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._timer_changed)
        self._multi.setopt(pycurl.M_MAXCONNECTS, MAX_CONNECTIONS)
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._curl_deadline: float | None = None
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = itertools.count()
        self._submitted: deque[Callable[[], None]] = deque()
        self._transfers: dict[Any, Transfer] = {}
        self._spare: list[Any] = []
        self._closing = False

    # --- called from any thread ------------------------------------------------------------------

    def submit(self, function: Callable[[], None]) -> None:
        """Runs a function on the loop's thread, soon and in order."""
        self._submitted.append(function)
        os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        """Ends the loop; transfers under way are dropped. Waits for the thread."""
        self._closing = True
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake_fd, 1)
        self.join()

    # --- called on the loop's thread --------------------------------------------------------------

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        """Runs a function at a time of time.time(), not before it."""
        heapq.heappush(self._timers, (when, next(self._counter), function))

    def fetch(self, request: Request, done: Done) -> None:
        """Sends a request; `done` gets the response, whatever comes of it."""
        if request.lenient:
            self._fetch_leniently(request, done)
            return
        transfer = Transfer(request, done)
        handle = self._spare.pop() if self._spare else self._new_handle()
        try:
            self._set_up(handle, transfer)
        except (pycurl.error, ValueError, TypeError) as error:  # what libcurl does not take as a URL or header
            now = time.time()
            failed = Response(request.url, error=Kind.INTERNAL, detail=f"cannot be asked for: {error}")
            failed.started_at = failed.sent_at = failed.arrived_at = failed.ended_at = now
            done(failed)
            return
        transfer.handle = handle
        self._transfers[handle] = transfer
        self._multi.add_handle(handle)

    def _fetch_leniently(self, request: Request, done: Done) -> None:
        def finished(response: Response) -> None:
            self._lenient.discard(transfer)
            self.odd_origins.note(response)
            self._guarded(lambda: done(response))

        transfer = LenientTransfer(request, self, finished)
        self._lenient.add(transfer)
        transfer.start()

    def watch(self, descriptor: int, events: int, ready: Callable[[], None]) -> None:
        """Calls `ready` whenever one of the events has come up; replaces an earlier watch."""
        if descriptor in self._watches:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
        self._watches[descriptor] = ready

    def unwatch(self, descriptor: int) -> None:
        """Ends a watch."""
        if self._watches.pop(descriptor, None):
            self._epoll.unregister(descriptor)

    def _set_up(self, handle: Any, transfer: Transfer) -> None:
        request = transfer.request
        handle.setopt(pycurl.URL, request.url)
        handle.setopt(pycurl.HTTPHEADER, request.headers)
        handle.setopt(pycurl.HEADERFUNCTION, transfer.header)
        handle.setopt(pycurl.WRITEFUNCTION, transfer.write)
        handle.setopt(pycurl.PREREQFUNCTION, transfer.sending)
        handle.setopt(pycurl.OPENSOCKETFUNCTION, partial(self._open_socket, transfer))
        handle.setopt(pycurl.FRESH_CONNECT, request.fresh)
        handle.setopt(pycurl.FORBID_REUSE, request.last)
        if request.proxy:
            handle.setopt(pycurl.PROXY, request.proxy)
            handle.setopt(pycurl.CONNECT_TO, [])
        else:
            literal = f"[{request.address}]" if ":" in request.address else request.address
            handle.setopt(pycurl.PROXY, "")
            handle.setopt(pycurl.CONNECT_TO, [f"::{literal}:"])

    def _new_handle(self) -> Any:
        handle = pycurl.Curl()
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        handle.setopt(pycurl.FOLLOWLOCATION, 0)
        handle.setopt(pycurl.HTTP_CONTENT_DECODING, 0)  # the WARC file keeps what was sent
        handle.setopt(pycurl.PATH_AS_IS, 1)  # the URL is canonical already
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        handle.setopt(pycurl.HTTP09_ALLOWED, 0)
        handle.setopt(pycurl.MAXAGE_CONN, KEEP_SECONDS)
        handle.setopt(pycurl.HTTP200ALIASES, ["ICY "])  # SHOUTcast, which browsers show
        handle.setopt(pycurl.CONNECTTIMEOUT_MS, self.limits.connect_seconds * 1000)
        handle.setopt(pycurl.TIMEOUT_MS, self.limits.total_seconds * 1000)
        handle.setopt(pycurl.LOW_SPEED_LIMIT, self.limits.slowest_bytes_per_second)
        handle.setopt(pycurl.LOW_SPEED_TIME, self.limits.slow_seconds)
        handle.setopt(pycurl.BUFFERSIZE, 128 * 1024)
        handle.setopt(pycurl.CAINFO, self.ca_file)
        handle.setopt(pycurl.NETRC, 0)
        handle.setopt(pycurl.NOPROXY, "")
        return handle

    def _open_socket(self, transfer: Transfer, purpose: int, address: Any) -> Any:
        """The last look at an address before it is dialled; a proxy's address is the operator's own choice."""
        if transfer.sent_at:
            transfer.cut_off = True  # see Transfer.sending
            return pycurl.SOCKET_BAD
        family, kind, protocol, target = address
        if not self._dialling_proxy and not self.guard.permits(str(target[0])):
            return pycurl.SOCKET_BAD
        opened = Dialled(family, kind, protocol)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    _dialling_proxy = False

    def allow_proxy(self) -> None:
        """From now on every connection goes to a proxy of the operator's."""
        self._dialling_proxy = True

    # --- the loop itself ----------------------------------------------------------------------------

    def run(self) -> None:
        """Runs until `close`; an error in one callback is logged and harms no other."""
        while not self._closing:
            for descriptor, event in self._epoll.poll(self._timeout()):
                if descriptor == self._wake_fd:
                    os.eventfd_read(self._wake_fd)
                    continue
                if descriptor in self._watches:
                    self._guarded(self._watches[descriptor])
                    continue
                flags = pycurl.CSELECT_IN if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) else 0
                flags |= pycurl.CSELECT_OUT if event & select.EPOLLOUT else 0
                self._multi.socket_action(descriptor, flags)
            if self._curl_deadline is not None and self._curl_deadline <= time.monotonic():
                self._curl_deadline = None
                self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            self._finish_transfers()
            self._run_due()
        for transfer in list(self._lenient):
            transfer.drop()
        for handle in list(self._transfers):
            self._multi.remove_handle(handle)
        self._multi.close()
        self._epoll.close()
        os.close(self._wake_fd)

    def _timeout(self) -> float:
        if self._submitted:
            return 0
        wait = 1.0
        if self._curl_deadline is not None:
            wait = min(wait, self._curl_deadline - time.monotonic())
        if self._timers:
            wait = min(wait, self._timers[0][0] - time.time())
        return max(wait, 0)

    def _run_due(self) -> None:
        for _ in range(len(self._submitted)):
            self._guarded(self._submitted.popleft())
        now = time.time()
        while self._timers and self._timers[0][0] <= now:
            self._guarded(heapq.heappop(self._timers)[2])

    def _guarded(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:
            log.exception("error in the fetch loop")

    def _socket_changed(self, what: int, descriptor: int, multi: Any, data: Any) -> None:
        if what == pycurl.POLL_REMOVE:
            with contextlib.suppress(OSError, ValueError):  # libcurl may have closed it already
                self._epoll.unregister(descriptor)
            return
        events = (select.EPOLLIN if what & pycurl.POLL_IN else 0) | (select.EPOLLOUT if what & pycurl.POLL_OUT else 0)
        try:
            self._epoll.modify(descriptor, events)
        except FileNotFoundError:
            self._epoll.register(descriptor, events)

    def _timer_changed(self, milliseconds: int) -> None:
        self._curl_deadline = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000

    def _finish_transfers(self) -> None:
        left = 1
        while left:
            left, good, bad = self._multi.info_read()
            for handle in good:
                self._finish(handle, 0, "")
            for handle, code, message in bad:
                self._finish(handle, code, message)

    def _finish(self, handle: Any, code: int, message: str) -> None:
        transfer = self._transfers.pop(handle)
        response = self._response(transfer, code, message)
        self._multi.remove_handle(handle)
        self._spare.append(handle)
        done = transfer.forget()
        self._guarded(lambda: done(response))

    def _response(self, transfer: Transfer, code: int, message: str) -> Response:
        handle = transfer.handle
        now = time.time()
        sent = handle.getinfo(pycurl.PRETRANSFER_TIME)
        first = handle.getinfo(pycurl.STARTTRANSFER_TIME)
        connect = handle.getinfo(pycurl.CONNECT_TIME)
        total = handle.getinfo(pycurl.TOTAL_TIME)
        started = now - total
        arrived = sent + max(connect, 0.0) + ARRIVAL_SLACK_SECONDS
        response = Response(
            url=transfer.request.url,
            status=handle.getinfo(pycurl.RESPONSE_CODE),
            lines=transfer.lines,
            body=transfer.body[0] if len(transfer.body) == 1 else b"".join(transfer.body),
            address=handle.getinfo(pycurl.PRIMARY_IP) or transfer.request.address,
            started_at=transfer.started,
            sent_at=started + sent,
            arrived_at=started + (min(first, arrived) if first > sent else arrived),
            ended_at=now,
            answered_at=started + first if first > 0 else now,
        )
        if transfer.cut_off:
            response.cut_off, response.error, response.detail = True, Kind.DISCONNECT, CUT_OFF
            response.sent_at, response.arrived_at, response.answered_at = transfer.sent_at, now, now
            return response
        self._judge(response, transfer, code, message, connected=_is_connected(handle))
        if transfer.request.proxy:
            status = handle.getinfo(pycurl.HTTP_CONNECTCODE)
            response.proxy_failure = proxy_failure(code, message, _is_connected(handle), status, response.status)
        response.read_headers()
        if response.error and transfer.head(response.status) == "whole":
            response.overlook_body()
            if UNEXPECTED_EOF in message:
                response.overlook_end()
        return response

    def _judge(self, response: Response, transfer: Transfer, code: int, message: str, *, connected: bool) -> None:
        """Says what went wrong, if anything did."""
        head = transfer.head(response.status)
        if transfer.overflow == "length":
            response.error, response.truncated = Kind.TOO_LARGE, "length"
            response.detail = f"the body is longer than {transfer.request.max_bytes:,} bytes"
        elif transfer.overflow:
            response.error, response.detail = Kind.BAD_HTTP, f"more than {MAX_HEADER_BYTES // 1024} KiB of headers"
        elif code:
            response.error = kind_of(code, message, connected, head, bool(response.body))
            response.detail = message
            response.unreadable = code in UNREADABLE
            if response.error is Kind.TRUNCATED:
                response.truncated = "disconnect"
            elif response.body:
                response.truncated = "time" if code == pycurl.E_OPERATION_TIMEDOUT else "disconnect"
        elif head != "whole":
            if 100 <= response.status < 200:
                response.error, response.detail = Kind.BAD_HTTP, f"no answer but an interim one, {response.status}"
            else:
                response.error, response.truncated = Kind.TRUNCATED, "disconnect"
                response.detail = "the connection ended in the headers"


def _is_connected(handle: Any) -> bool:
    """Whether a connection stood. The times do not tell: PRETRANSFER_TIME is set without one, and CONNECT_TIME is 0 on
    one that was there before."""
    return bool(handle.getinfo(pycurl.LOCAL_PORT) > 0)
