"""A server of odd HTTP answers on the loopback: the bytes go out as they stand here.

`/odd/NAME` answers ODD[NAME]; `/` links to every name; anything else is a plain page, robots.txt a 404.
An answer is bytes, sent before the connection is closed, or a function of (connection, path) that sends
what it likes. To add one, add it to ODD. shared/cases.md lists what crawlers met in the wild.

    with serve() as odd:                          python tests/oddserver.py --port 8001
        ...fetch odd.url + "odd/reset"...
"""

import argparse
import contextlib
import gzip
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

Answer = bytes | Callable[[socket.socket, str], None]

PAGE = b"<!DOCTYPE html><title>odd</title><p>A page with <a href='/plain'>one link</a>.</p>\n"
DRIP_SECONDS = 0.2  # between two bytes of a drip
HANG_SECONDS = 600  # no test waits that long; the client goes away first


def answer(*lines: str | bytes, status: str = "200 OK", body: bytes = PAGE, length: bool = True) -> bytes:
    """A response with `lines` as header lines, which may be bytes that are no proper header at all."""
    head = [f"HTTP/1.1 {status}", "Content-Type: text/html; charset=utf-8", *lines]
    if length:
        head.append(f"Content-Length: {len(body)}")
    encoded = [line if isinstance(line, bytes) else line.encode() for line in [*head, "Connection: close"]]
    return b"\r\n".join(encoded) + b"\r\n\r\n" + body


def redirect(location: str | bytes, *lines: str, status: str = "301 Moved Permanently") -> bytes:
    target = location if isinstance(location, bytes) else location.encode()
    return answer(b"Location: " + target, *lines, status=status, body=b"")


def chunks(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return answer("Transfer-Encoding: chunked", body=body + end, length=False)


def drip(connection: socket.socket, fast: bytes, slow: bytes) -> None:
    """`fast` at once, then `slow` byte by byte, over and over until the client goes."""
    connection.sendall(fast)
    end = time.monotonic() + HANG_SECONDS
    while time.monotonic() < end:
        for byte in slow:
            connection.sendall(bytes([byte]))
            time.sleep(DRIP_SECONDS)


def drip_header(connection: socket.socket, path: str) -> None:
    drip(connection, b"HTTP/1.1 200 OK\r\n", b"X-Drip: drop\r\n")


def drip_body(connection: socket.socket, path: str) -> None:
    drip(connection, answer("Content-Length: 1000000", length=False), b"<p>drop</p>\n")


def endless_body(connection: socket.socket, path: str) -> None:
    connection.sendall(answer(length=False))
    while True:
        connection.sendall(b"<p>more</p>\n" * 5000)


def endless_header(connection: socket.socket, path: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"x" * 8000 + b"\r\n")


def gzip_bomb(connection: socket.socket, path: str) -> None:
    """64 KB that unpack to 64 MiB."""
    connection.sendall(answer("Content-Encoding: gzip", body=gzip.compress(bytes(64 << 20))))


def hang(connection: socket.socket, path: str) -> None:
    connection.settimeout(HANG_SECONDS)
    connection.recv(1)  # returns when the client closes


def hang_in_body(connection: socket.socket, path: str) -> None:
    connection.sendall(answer("Content-Length: 1000000", length=False))
    hang(connection, path)


def reset(connection: socket.socket, path: str) -> None:
    """An RST instead of an answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def reset_in_body(connection: socket.socket, path: str) -> None:
    connection.sendall(answer("Content-Length: 1000000", length=False))
    time.sleep(0.05)  # an RST may overtake what the client has not read yet
    reset(connection, path)


def self_redirect(connection: socket.socket, path: str) -> None:
    connection.sendall(redirect(path))


def self_redirect_cookie(connection: socket.socket, path: str) -> None:
    connection.sendall(redirect(path, f"Set-Cookie: visit={time.monotonic_ns()}"))


def endless_redirect(connection: socket.socket, path: str) -> None:
    number = int(path.partition("?n=")[2] or 0)
    connection.sendall(redirect(f"{path.partition('?')[0]}?n={number + 1}"))


def retry_after(value: str, status: str = "429 Too Many Requests") -> bytes:
    return answer(f"Retry-After: {value}", status=status, body=b"slow down\n")


def retry_after_date(connection: socket.socket, path: str) -> None:
    soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 2))
    connection.sendall(retry_after(soon))


ODD: dict[str, Answer] = {
    # lengths
    "short-length": answer("Content-Length: 9", length=False),
    "long-length": answer(f"Content-Length: {len(PAGE) + 500}", length=False),
    "nul-length": answer(b"Content-Length: %d\0" % len(PAGE), length=False),
    "negative-length": answer("Content-Length: -5", length=False),
    "word-length": answer("Content-Length: many", length=False),
    "two-lengths": answer("Content-Length: 9", f"Content-Length: {len(PAGE)}", length=False),
    "no-length": answer(length=False),
    # status lines and headers
    "no-colon": answer(b"PHP Warning  headers already sent in /var/www/index.php on line 3"),
    "no-reason": answer(status="200"),
    "bad-status": answer(status="2x0 OK"),
    "huge-status": answer(status="999 Odd"),
    "http09": PAGE,
    "bare-lf": answer().replace(b"\r\n", b"\n"),
    "latin1-header": answer(b"X-Name: caf\xe9"),
    "empty-header": answer(b": nothing"),
    "empty": b"",
    "garbage": bytes(range(256)) * 8,
    "header-cut": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "continue-first": b"HTTP/1.1 100 Continue\r\n\r\n" + answer(),
    # encodings
    "gzip-label": answer("Content-Encoding: gzip"),
    "gzip-cut": answer("Content-Encoding: gzip", body=gzip.compress(PAGE * 50)[:-20]),
    "gzip-tail": answer("Content-Encoding: gzip", body=gzip.compress(PAGE) + b"tail"),
    "gzip-bomb": gzip_bomb,
    "unknown-encoding": answer("Content-Encoding: squeeze"),
    "chunked": chunks(PAGE[:20], PAGE[20:]),
    "chunk-cut": chunks(PAGE, end=b"400\r\nhalf of it"),
    "chunk-garbage": chunks(PAGE, end=b"zz\r\n"),
    "chunked-and-length": answer(
        "Transfer-Encoding: chunked",
        "Content-Length: 3",
        body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(PAGE), PAGE),
        length=False,
    ),
    # statuses
    "no-authenticate": answer(status="401 Unauthorized", body=PAGE * 2000),
    "retry-seconds": retry_after("2"),
    "retry-date": retry_after_date,
    "retry-negative": retry_after("-30"),
    "retry-garbage": retry_after("soon"),
    "retry-503": retry_after("2", "503 Service Unavailable"),
    "304-unasked": answer(status="304 Not Modified", body=b"", length=False),
    "204-body": answer(status="204 No Content"),
    # redirects
    "location-utf8": redirect("/plain/é?q=ü".encode()),
    "location-latin1": redirect(b"/plain/\xe9"),
    "location-space": redirect("/plain/a b"),
    "location-empty": redirect(""),
    "location-blank": redirect("   "),
    "no-location": answer(status="302 Found"),
    "location-scheme": redirect("file:///etc/passwd"),
    "location-broken": redirect("http://:::broken/"),
    "location-private": redirect("http://169.254.169.254/latest/meta-data/"),
    "self-redirect": self_redirect,
    "self-redirect-cookie": self_redirect_cookie,
    "endless-redirect": endless_redirect,
    # time
    "drip-header": drip_header,
    "drip-body": drip_body,
    "endless-body": endless_body,
    "endless-header": endless_header,
    "hang": hang,
    "hang-in-body": hang_in_body,
    "reset": reset,
    "reset-in-body": reset_in_body,
}


def index() -> bytes:
    links = "".join(f"<li><a href='/odd/{name}'>{name}</a></li>\n" for name in ODD)
    return answer(body=f"<!DOCTYPE html><title>odd answers</title><ul>\n{links}</ul>\n".encode())


class Handler(socketserver.BaseRequestHandler):
    """One request per connection; the answer says so, as far as it says anything."""

    server: "OddServer"

    def handle(self) -> None:
        connection: socket.socket = self.request
        connection.settimeout(30)  # seconds
        request = b""
        while b"\r\n\r\n" not in request:
            received = connection.recv(65536)
            if not received:
                return
            request += received
        path = request.split(b" ", 2)[1].decode("latin-1")
        self.server.log.append((time.monotonic(), path))
        reply = self.reply(path.partition("?")[0])
        if callable(reply):
            reply(connection, path)
        else:
            connection.sendall(reply)
            # Closed at once, unread bytes of the client would turn the end into an RST.
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(1)
            connection.recv(65536)

    def reply(self, path: str) -> Answer:
        if path == "/":
            return index()
        if path.startswith("/odd/"):
            return ODD.get(path.removeprefix("/odd/"), answer(status="404 Not Found", body=b"no such name\n"))
        return answer(status="404 Not Found", body=b"") if path == "/robots.txt" else answer()


class OddServer(socketserver.ThreadingTCPServer):
    """The server; `log` holds (time.monotonic(), path) of each request."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0) -> None:
        self.log: list[tuple[float, str]] = []
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def shutdown_request(self, request: Any) -> None:
        request.close()  # no shutdown() first: it would send a FIN where an RST is meant

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that give up are the point


@contextlib.contextmanager
def serve() -> Iterator[OddServer]:
    with OddServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=8001)
    options = parser.parse_args()
    with OddServer(options.port) as odd, contextlib.suppress(KeyboardInterrupt):
        print(odd.url, flush=True)
        odd.serve_forever()
