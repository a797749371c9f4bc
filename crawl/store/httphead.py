"""The head of a response as it is stored: every reader can parse it, and it is true for the stored body.

What the network sent and what is kept differ in two ways: libcurl has undone the transfer coding, and
archives only know HTTP/1 heads. Lines are changed only where one of these makes them false or unreadable;
what is changed stays there under a name that begins with `X-Crawler-`.
"""

import re
from http import HTTPStatus
from typing import NamedTuple

_STATUS_LINE = re.compile(rb"(?i)HTTP/([0-9](?:\.[0-9])?)[ \t]+([0-9]{3})(?:[ \t].*)?")
_REASONS = {status.value: status.phrase for status in HTTPStatus}
# The protocol ids of the WARC-Protocol proposal (iipc/warc-specifications issue 42), which are those of ALPN.
_PROTOCOLS = {b"2": "h2", b"2.0": "h2", b"3": "h3", b"3.0": "h3"}


class StoredHead(NamedTuple):
    head: bytes
    """Status line and headers, lines ended by CRLF, with the empty line."""
    status: int
    """0 when the status line cannot be read."""
    protocol: str | None
    """"h2" or "h3" where the written status line had to say HTTP/1.1, else None."""


def stored_head(raw: bytes, body_length: int, truncated: bool = False) -> StoredHead:
    """Rewrites a received response head for a body of `body_length` bytes stored without transfer coding.

    A truncated body and a 304 keep their Content-Length: there it tells the length of what was not stored
    (RFC 9110, 8.6).
    """
    first, *rest = [line.rstrip(b"\r") for line in raw.split(b"\n")]
    status_line, status, protocol = _readable_status_line(first)
    keep_length = truncated or status == HTTPStatus.NOT_MODIFIED
    lines = [status_line]
    if not status and first.strip():
        lines.append(b"X-Crawler-Bad-Header: " + first.strip())
    lines += _true_headers(rest, None if keep_length else b"%d" % body_length)
    return StoredHead(b"\r\n".join(lines) + b"\r\n\r\n", status, protocol)


def _readable_status_line(line: bytes) -> tuple[bytes, int, str | None]:
    """warcio stops at a status line that is not HTTP/1.0 or HTTP/1.1, and with it the rest of the file."""
    match = _STATUS_LINE.fullmatch(line.strip())
    if match is None:
        return b"HTTP/1.1 000 Unreadable status line", 0, None
    version, status = match[1], int(match[2])
    if version in (b"1.0", b"1.1"):
        return line.strip(), status, None
    reason = _REASONS.get(status, "")
    return f"HTTP/1.1 {status:03d} {reason}".rstrip().encode(), status, _PROTOCOLS.get(version)


def _true_headers(lines: list[bytes], length: bytes | None) -> list[bytes]:
    """The header lines with the transfer coding and every wrong Content-Length renamed.

    `length` is the true length, None to leave Content-Length alone.
    """
    out: list[bytes] = []
    length_needed = length_there = False
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon and _ends_the_head(line):
            continue
        name = name.rstrip().lower()
        if name == b"transfer-encoding":
            length_needed = True
            line = b"X-Crawler-" + line
        elif name == b"content-length" and length is not None:
            if not length_there and _same_number(value.strip(), length):
                length_there = True
            else:
                length_needed = True
                line = b"X-Crawler-" + line
        out.append(line)
    if length is not None and length_needed and not length_there:
        out.append(b"Content-Length: " + length)
    return out


def _ends_the_head(line: bytes) -> bool:
    """Blank for warcio, which strips Unicode white space: a line of NBSP in mid-head would end the head."""
    try:
        return not line.decode().strip()
    except UnicodeDecodeError:
        return not line.decode("latin-1").strip()


def _same_number(value: bytes, length: bytes) -> bool:
    return value.isdigit() and (value.lstrip(b"0") or b"0") == length
