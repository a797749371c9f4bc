"""Reads an HTTP/1 answer as browsers do: what has a meaning is taken, what has none is left out.

libcurl ends a transfer at the first NUL, at a header line without a colon, or at a length that is no number.
What browsers refuse as well, since it could be read in two ways, is refused here too: Content-Lengths or
Locations that differ (RFC 9112 section 6.3; Chromium's net/http), and what has no status of three digits.
"""

import re

MAX_HEAD_BYTES = 256 * 1024  # as Chromium
MAX_INTERIM_ANSWERS = 64
_JUNK_BYTES = 4  # before the status line, as Chromium allows

_STATUS_LINE = re.compile(rb"(?is)(?:HTTP(?:/[0-9]+(?:\.[0-9]+)?)?|ICY)[ \t]+([1-9][0-9][0-9])(?![0-9])[^\n]*")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_FOLD = re.compile(rb"\r?\n[ \t]+")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_MAX_CHUNK_LINE_BYTES = 8 * 1024


class BadHTTP(Exception):
    """What came is no HTTP answer, or one that can be read in two ways."""


class Reader:
    """Takes the bytes of one answer on a connection of its own. `feed` them, then `end` at the end of the connection.

    `lines`: the head, without what makes no sense in it; `body`: without transfer coding, max_bytes at most.
    `odd`: what was forgiven, "" when nothing was. Both methods raise BadHTTP.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.status = 0
        self.lines: list[bytes] = []
        self.odd = ""
        self.done = False
        self.whole_head = False
        self.overflow = False  # the body is longer than max_bytes
        self.truncated = ""  # what the body lacks
        self.size = 0
        self._parts: list[bytes] = []
        self._buffer = bytearray()
        self._searched = self._interim = 0
        self._left: int | None = None  # of the body or the chunk; None: until the end of the connection
        self._chunked = False

    @property
    def body(self) -> bytes:
        return b"".join(self._parts)

    @property
    def began(self) -> bool:
        """Whether a byte of an answer has come."""
        return bool(self._buffer or self.lines)

    def feed(self, data: bytes) -> None:
        """Takes what came from the connection; after `done` nothing more is wanted."""
        self._buffer += data
        while not self.done and not self.lines and self._head():
            pass
        if self.lines and not self.done:
            self._take_body()

    def end(self) -> None:
        """The connection has ended: whatever is open now is cut off."""
        if self.done:
            return
        if not self.lines:
            if not self._buffer:
                return
            if not _STATUS_LINE.match(self._buffer):
                raise BadHTTP(f"no HTTP: {bytes(self._buffer[:40])!r}")
            self._begin(bytes(self._buffer))
            self._buffer.clear()
            self.truncated = "the connection ended in the headers"
        elif self._chunked:
            self.truncated = "the connection ended before the last chunk"
        elif self._left:
            self.truncated = f"{self._left} bytes are missing"
        self.done = True

    # --- the head ------------------------------------------------------------------------------------

    def _head(self) -> bool:
        """Reads a head if the whole of it is there; true when it was an interim one and another follows."""
        self._skip_junk()
        end = _HEAD_END.search(self._buffer, max(0, self._searched - 3))
        self._searched = len(self._buffer)
        if (end.start() if end else len(self._buffer)) > MAX_HEAD_BYTES:
            raise BadHTTP("more than 256 KiB of headers")
        if end is None:
            if len(self._buffer) > 16 and not _STATUS_LINE.match(self._buffer) and b"\n" in self._buffer:
                raise BadHTTP(f"no HTTP: {bytes(self._buffer[:40])!r}")
            return False
        head = bytes(self._buffer[: end.start()])
        del self._buffer[: end.end()]
        self._searched = 0
        self._begin(head)
        if 100 <= self.status < 200:
            self._interim += 1
            if self.status == 101 or self._interim > MAX_INTERIM_ANSWERS:
                raise BadHTTP(f"{self._interim} interim answers, the last with status {self.status}")
            self.lines = []
            return True
        self.whole_head = True
        return False

    def _skip_junk(self) -> None:
        if (
            self._searched
            or len(self._buffer) < _JUNK_BYTES + 4
            or bytes(self._buffer[:4]).upper() in (b"HTTP", b"ICY ")
        ):
            return
        at = self._buffer[: _JUNK_BYTES + 4].upper().find(b"HTTP")
        if at > 0:
            self._forgive("bytes before the status line")
            del self._buffer[:at]

    def _begin(self, head: bytes) -> None:
        first, *rest = self._clean(head).split(b"\n")
        match = _STATUS_LINE.fullmatch(first.rstrip(b"\r"))
        if match is None:
            raise BadHTTP(f"no HTTP: {first[:40]!r}")
        self.status = int(match[1])
        lines = [first.rstrip(b"\r") + b"\r\n"]
        fields: dict[bytes, list[bytes]] = {}
        for line in rest:
            name, colon, value = line.rstrip(b"\r").partition(b":")
            if not colon:
                self._forgive("a header line without a colon" if name.strip() else "")
                continue
            lines.append(line.rstrip(b"\r") + b"\r\n")
            fields.setdefault(name.strip().lower(), []).append(value.strip())
        self.lines = [*lines, b"\r\n"]
        self._measure(fields)

    def _clean(self, head: bytes) -> bytes:
        if b"\0" in head:
            self._forgive("a NUL in the headers")
            head = head.replace(b"\0", b"")
        head = _FOLD.sub(b" ", head)
        if b"\r" in head.replace(b"\r\n", b"").removesuffix(b"\r"):
            self._forgive("a carriage return in the headers")
            head = head.replace(b"\r\n", b"\n").replace(b"\r", b" ")
        return head

    def _measure(self, fields: dict[bytes, list[bytes]]) -> None:
        """How long the body is (RFC 9112 section 6.3)."""
        self._left, self._chunked = None, False
        codings = b",".join(fields.get(b"transfer-encoding", [])).lower().split(b",")
        lengths = {part.strip() for value in fields.get(b"content-length", []) for part in value.split(b",")}
        if len(set(fields.get(b"location", []))) > 1:
            raise BadHTTP("two different Locations")
        if self.status < 200 or self.status in (204, 304):
            self._left = 0
        elif any(coding.strip() == b"chunked" for coding in codings):
            self._chunked, self._left = True, 0
        elif len(lengths) > 1:
            raise BadHTTP("two different Content-Lengths")
        elif lengths:
            length = lengths.pop()
            if re.fullmatch(rb"[0-9]{1,18}", length):
                self._left = int(length)
            else:
                self._forgive(f"Content-Length {length[:40].decode('latin-1')!r}")
        if codings != [b""] and not self._chunked:
            self._forgive("an unknown transfer coding")

    def _forgive(self, what: str) -> None:
        self.odd = self.odd or what

    # --- the body ------------------------------------------------------------------------------------

    def _take_body(self) -> None:
        if self._chunked:
            while not self.done and self._chunk():
                pass
            return
        piece = self._buffer if self._left is None else self._buffer[: self._left]
        self._keep(bytes(piece))
        if self._left is None:
            self._buffer.clear()
        else:
            self._left -= len(piece)
            del self._buffer[: len(piece)]
            self.done = self.done or not self._left

    def _chunk(self) -> bool:
        """Takes a piece of a chunk, or a line between two; false when more must come first."""
        if self._left:
            piece = bytes(self._buffer[: self._left])
            self._left -= len(piece)
            del self._buffer[: len(piece)]
            self._keep(piece)
            return bool(self._buffer) and not self.done
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > _MAX_CHUNK_LINE_BYTES:
                self._broken_chunk()
            return False
        line = bytes(self._buffer[:end]).rstrip(b"\r")
        del self._buffer[: end + 1]
        if not line:  # the end of the chunk before
            return True
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            self._broken_chunk()
            return False
        self._left = int(match[1], 16)
        if not self._left:  # trailers mean nothing to us, and the connection is not used again
            self.done = True
        return not self.done

    def _broken_chunk(self) -> None:
        if not self.size:
            raise BadHTTP("chunks that are none")
        self.truncated, self.done = "a chunk without a size", True

    def _keep(self, piece: bytes) -> None:
        room = self.max_bytes - self.size
        if len(piece) > room:
            self.overflow = self.done = True
            piece = piece[:room]
        self.size += len(piece)
        if piece:
            self._parts.append(piece)
