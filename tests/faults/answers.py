"""How odd answers are put together. An answer is bytes, or a function that sends what it likes on a connection.

Bytes are sent as they stand and the connection is closed. A function may return True to keep it open for another
request.
"""

import gzip
import socket
import struct
import time
import zlib
from collections.abc import Callable

import brotli

Answer = bytes | Callable[[socket.socket, str], bool | None]

PAGE = b"<!DOCTYPE html><title>odd</title><p>A page with <a href='/plain'>one link</a>.</p>\n"
DRIP_SECONDS = 0.2  # between two bytes of a drip
HANG_SECONDS = 600  # no test waits that long; the client goes away first
MIB = 1 << 20


def answer(*lines: str | bytes, status: str = "200 OK", body: bytes = PAGE, length: bool = True) -> bytes:
    """A response with `lines` as header lines, which may be bytes that are no proper header at all."""
    head = [f"HTTP/1.1 {status}", "Content-Type: text/html; charset=utf-8", *lines]
    if length:
        head.append(f"Content-Length: {len(body)}")
    encoded = [line if isinstance(line, bytes) else line.encode() for line in [*head, "Connection: close"]]
    return b"\r\n".join(encoded) + b"\r\n\r\n" + body


def first_line(line: bytes) -> bytes:
    """A plain answer with another status line."""
    return line + b"\r\n" + answer().partition(b"\r\n")[2]


def redirect(location: str | bytes, *lines: str, status: str = "301 Moved Permanently", body: bytes = b"") -> bytes:
    target = location if isinstance(location, bytes) else location.encode()
    return answer(b"Location: " + target, *lines, status=status, body=body)


def chunked(body: bytes, *lines: str) -> bytes:
    """An answer whose body is said to be chunked."""
    return answer("Transfer-Encoding: chunked", *lines, body=body, length=False)


def chunks(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return chunked(b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end)


def retry_after(value: str, status: str = "429 Too Many Requests") -> bytes:
    return answer(f"Retry-After: {value}", status=status, body=b"slow down\n")


# --- functions of the connection ------------------------------------------------------------------------------


def drip(fast: bytes, slow: bytes, seconds: float = DRIP_SECONDS) -> Callable[[socket.socket, str], None]:
    """`fast` at once, then `slow` byte by byte, over and over until the client goes."""

    def send(connection: socket.socket, path: str) -> None:
        connection.sendall(fast)
        end = time.monotonic() + HANG_SECONDS
        while time.monotonic() < end:
            for byte in slow:
                connection.sendall(bytes([byte]))
                time.sleep(seconds)

    return send


def stream(head: bytes, block: bytes, times: int) -> Callable[[socket.socket, str], None]:
    """A head, and a block many times over."""

    def send(connection: socket.socket, path: str) -> None:
        connection.sendall(head)
        for _ in range(times):
            connection.sendall(block)

    return send


def slowly(*pieces: bytes) -> Callable[[socket.socket, str], None]:
    """Pieces with a tenth of a second between."""

    def send(connection: socket.socket, path: str) -> None:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.1)

    return send


def hang(connection: socket.socket, path: str) -> None:
    connection.settimeout(HANG_SECONDS)
    connection.recv(1)  # returns when the client closes


def then_hang(data: bytes) -> Callable[[socket.socket, str], None]:
    def send(connection: socket.socket, path: str) -> None:
        connection.sendall(data)
        hang(connection, path)

    return send


def reset(connection: socket.socket, path: str) -> None:
    """An RST instead of an answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def then_reset(data: bytes) -> Callable[[socket.socket, str], None]:
    def send(connection: socket.socket, path: str) -> None:
        connection.sendall(data)
        time.sleep(0.05)  # an RST may overtake what the client has not read yet
        reset(connection, path)

    return send


def self_redirect(connection: socket.socket, path: str) -> None:
    connection.sendall(redirect(path))


def self_redirect_cookie(connection: socket.socket, path: str) -> None:
    connection.sendall(redirect(path, f"Set-Cookie: visit={time.monotonic_ns()}"))


def endless_redirect(connection: socket.socket, path: str) -> None:
    number = int(path.partition("?n=")[2] or 0)
    connection.sendall(redirect(f"{path.partition('?')[0]}?n={number + 1}"))


def redirect_pair(connection: socket.socket, path: str) -> None:
    connection.sendall(redirect(path.partition("?")[0] + ("" if "?" in path else "?back")))


def maze(connection: socket.socket, path: str) -> None:
    deeper = f"<a href='{path}/a'>a</a> <a href='{path}/b'>b</a>"
    connection.sendall(answer(body=f"<!DOCTYPE html><title>maze</title>{deeper}".encode()))


def retry_after_date(connection: socket.socket, path: str) -> None:
    soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 2))
    connection.sendall(retry_after(soon))


# --- one answer that speaks for the next request too ----------------------------------------------------------

FORGED = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\nforged"
SHORT = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nshort"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
NOT_MODIFIED = b"HTTP/1.1 304 Not Modified\r\n\r\n"


def and_forged(head: bytes, wait: float = 0.0) -> Callable[[socket.socket, str], bool]:
    """An answer that is whole, with a forged one for the next request behind it, on a connection that stays open."""

    def send(connection: socket.socket, path: str) -> bool:
        if wait:
            connection.sendall(head)
            time.sleep(wait)
            connection.sendall(FORGED)
        else:
            connection.sendall(head + FORGED)
        return True

    return send


# --- bodies that grow when they are unpacked ------------------------------------------------------------------

_deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
GZIP_MIB = _deflate.compress(b"<p>" + b" " * MIB) + _deflate.flush(zlib.Z_FULL_FLUSH)  # a MiB in about 1 KB, repeatable
GZIP_PAGE = gzip.compress(PAGE)
BROTLI_BOMB = brotli.compress(bytes(16 * MIB), quality=1)
