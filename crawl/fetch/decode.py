"""Undoes the Content-Encoding of a body, within bounds and without ever raising.

Memory: the result holds at most `max_bytes`, and a piece of about 1 MiB is in flight beside it. A stacked
encoding also holds the layer below, again at most `max_bytes`. zstd and brotli add their window, 8 and
16 MiB at most.
"""

import contextlib
import io
import re
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, cast

import brotli
import zstandard
from isal import isal_zlib

MAX_LAYERS = 3
# A judgement: far above what a long page that people read can reach, below the 1032 of deflate and the 5500
# of brotli on zeros. It ends a bomb early; max_bytes alone would hold it as well.
MAX_RATIO = 200
RATIO_FREE_BYTES = 1 << 20
# RFC 9659: a zstd window over 8 MiB is to be refused.
_ZSTD_WINDOW_BYTES = 8 << 20
_ZSTD_FRAME_HEAD_BYTES = 18

_PIECE_BYTES = 1 << 20
# brotli's output grows by blocks, so a limit of 1 MiB lets 2 MB through; this one lets 1,015,728 bytes.
_BROTLI_PIECE_BYTES = 1_000_000
_INPUT_BYTES = 256 << 10
# isal copies what follows a member: 10 MB of 20-byte members would copy 65 GB in steps of 256 KiB. In these
# steps they take 1 s.
_MEMBER_INPUT_BYTES = 4 << 10
# The output of a call that meets damage is lost, so a damaged stream is read again in 32,768 steps at most:
# byte by byte for an ordinary page, in 25 ms for any.
_CAREFUL_STEPS_SHIFT = 15
_CAREFUL_PIECE_BYTES = 1 << 10
_SNIFF_BYTES = 64

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
_TEXT = re.compile(rb"[^\x00-\x08\x0b\x0e-\x1f\x7f]*")
# isal's stub calls the class an instance.
_DAMAGE = (cast(type[Exception], isal_zlib.error), cast(type[Exception], brotli.error), zstandard.ZstdError)
_SEVERITY = (None, "not-encoded", "truncated", "bomb")


class Decoded(NamedTuple):
    body: bytes
    flag: str | None
    """None, or the worst of what was met:

    - "not-encoded": a named encoding is not there, what was received at that layer is used;
    - "truncated": the stream ends early or is damaged, what could be decoded is kept;
    - "bomb": the decoded size goes beyond max_bytes or MAX_RATIO, what fits is kept;
    - "unknown-encoding": an unknown name or more than MAX_LAYERS layers, the body is used as received.
    """


class _NotEncodedError(Exception):
    """The bytes do not look like the encoding they are said to have."""


def decode_body(body: bytes, encoding: str | None, max_bytes: int) -> Decoded:
    """Decodes a body by its Content-Encoding value (RFC 9110, 8.4); of several headers, the joined value.

    The ratio bound counts from RATIO_FREE_BYTES on. An empty body is empty under every encoding. A body that
    needs no decoding is cut to max_bytes too, and is then "truncated".
    """
    names = [name for part in (encoding or "").lower().split(",") if (name := part.strip())]
    names = [name for name in names if name != "identity"]
    if len(names) > MAX_LAYERS or any(name not in _LAYERS for name in names):
        return Decoded(body[:max_bytes], "unknown-encoding")
    if not body or not names:
        return Decoded(body[:max_bytes], "truncated" if len(body) > max_bytes else None)
    limit = min(max_bytes, max(RATIO_FREE_BYTES, MAX_RATIO * len(body)))
    flags: list[str | None] = []
    for name in reversed(names):
        try:
            body, flag = _LAYERS[name](body, limit)
        except _NotEncodedError:
            flag = "not-encoded"
        flags.append(flag)
    return Decoded(body[:max_bytes], max(flags, key=_SEVERITY.index))


def _gzip(body: bytes, limit: int) -> tuple[bytes, str | None]:
    if not body.startswith(_GZIP_MAGIC):
        raise _NotEncodedError
    return _collect(_gzip_pieces, body, limit)


def _zstd(body: bytes, limit: int) -> tuple[bytes, str | None]:
    if not (body.startswith(_ZSTD_MAGIC) or _ZSTD_SKIPPABLE.match(body)):
        raise _NotEncodedError
    return _collect(_zstd_pieces, body, limit)


def _deflate(body: bytes, limit: int) -> tuple[bytes, str | None]:
    """RFC 9110 means zlib, some servers send raw deflate; the two bytes of the zlib head tell them apart."""
    if len(body) > 1 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0:
        with contextlib.suppress(_NotEncodedError):
            return _without_magic(_zlib_pieces, body, limit)
    return _without_magic(_raw_deflate_pieces, body, limit)


def _brotli(body: bytes, limit: int) -> tuple[bytes, str | None]:
    return _without_magic(_brotli_pieces, body, limit)


_LAYERS: dict[str, Callable[[bytes, int], tuple[bytes, str | None]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}

# Given the body and the input bytes of a step, yields decoded pieces of about 1 MiB at most. Raises one of
# _DAMAGE where the stream is damaged, EOFError where it ends too early.
_Pieces = Callable[[bytes, int], Iterator[bytes]]


def _without_magic(pieces: _Pieces, body: bytes, limit: int) -> tuple[bytes, str | None]:
    """Deflate and brotli have no mark, and plain JSON decodes as raw deflate to some bytes of garbage.

    So a fault counts as damage only where something came out and the body does not look like text.
    """
    decoded, flag = _collect(pieces, body, limit)
    if flag == "truncated" and (not decoded or _TEXT.fullmatch(body[:_SNIFF_BYTES])):
        raise _NotEncodedError
    return decoded, flag


def _collect(pieces: _Pieces, body: bytes, limit: int) -> tuple[bytes, str | None]:
    try:
        return _joined(pieces(body, _INPUT_BYTES), limit, damage=())
    except _DAMAGE:
        step = max(1, len(body) >> _CAREFUL_STEPS_SHIFT)
        return _joined(pieces(body, step), limit, damage=_DAMAGE)


def _joined(pieces: Iterator[bytes], limit: int, damage: tuple[type[Exception], ...]) -> tuple[bytes, str | None]:
    """BytesIO hands its buffer out without a copy, where joining a list would hold everything twice."""
    out = io.BytesIO()
    try:
        for piece in pieces:
            room = limit - out.tell()
            if len(piece) > room:
                out.write(memoryview(piece)[:room])
                return out.getvalue(), "bomb"
            out.write(piece)
    except EOFError:
        return out.getvalue(), "truncated"
    except damage:
        return out.getvalue(), "truncated"
    return out.getvalue(), None


def _gzip_pieces(body: bytes, step: int) -> Iterator[bytes]:
    """All members (RFC 1952, 2.2); what follows the last one and is no member is padding."""
    position = yield from _inflate(body, 0, 31, step)
    while body[position : position + 2] == _GZIP_MAGIC:
        position = yield from _inflate(body, position, 31, min(step, _MEMBER_INPUT_BYTES))


def _zlib_pieces(body: bytes, step: int) -> Iterator[bytes]:
    yield from _inflate(body, 0, 15, step)


def _raw_deflate_pieces(body: bytes, step: int) -> Iterator[bytes]:
    """A rest after the end speaks for text that happens to decode, so it counts as a fault."""
    if (yield from _inflate(body, 0, -15, step)) < len(body):
        raise EOFError


def _inflate(body: bytes, position: int, wbits: int, step: int) -> Generator[bytes, None, int]:
    """Yields the pieces of one stream from `position` on, returns the position behind it."""
    view = memoryview(body)
    decoder = isal_zlib.decompressobj(wbits)
    while position < len(body):
        rest: memoryview | bytes = view[position : position + step]
        position += len(rest)
        while True:
            piece = decoder.decompress(rest, _PIECE_BYTES)
            if piece:
                yield piece
            if decoder.eof:
                return position - len(decoder.unused_data)
            rest = decoder.unconsumed_tail
            if len(piece) < _PIECE_BYTES:
                break
        if rest:
            raise EOFError
    raise EOFError


def _brotli_pieces(body: bytes, step: int) -> Iterator[bytes]:
    view = memoryview(body)
    decoder = brotli.Decompressor()
    for position in range(0, len(body), step):
        piece = decoder.process(view[position : position + step], output_buffer_limit=_BROTLI_PIECE_BYTES)
        while piece or not decoder.can_accept_more_data():
            yield piece
            piece = decoder.process(b"", output_buffer_limit=_BROTLI_PIECE_BYTES)
        if decoder.is_finished():
            return
    raise EOFError


def _zstd_pieces(body: bytes, step: int) -> Iterator[bytes]:
    """All frames; what follows the last one and is no frame is padding."""
    size = _PIECE_BYTES if step == _INPUT_BYTES else _CAREFUL_PIECE_BYTES
    end = _zstd_end(body)
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    with decoder.stream_reader(memoryview(body)[:end], read_across_frames=True) as reader:
        while piece := reader.read(size):
            yield piece
    if end > len(body):
        raise EOFError


def _zstd_end(body: bytes) -> int:
    """Where the last frame ends, beyond the body when it is cut: the reader itself does not tell.

    Walks frames and blocks (RFC 8878, 3.1), 0.25 us a block; a block holds up to 128 KiB.
    """
    position = 0
    while position < len(body):
        if _ZSTD_SKIPPABLE.match(body, position):
            size = body[position + 4 : position + 8]
            position += 8 + int.from_bytes(size, "little") if len(size) == 4 else _ZSTD_FRAME_HEAD_BYTES
        elif body.startswith(_ZSTD_MAGIC, position):
            position = _zstd_frame_end(body, position)
        else:
            break
    return position


def _zstd_frame_end(body: bytes, position: int) -> int:
    head = body[position : position + _ZSTD_FRAME_HEAD_BYTES]
    try:
        position += zstandard.frame_header_size(head)
        checksum = 4 if zstandard.get_frame_parameters(head).has_checksum else 0
    except zstandard.ZstdError:
        return len(body) + 1
    last = False
    while not last:
        block = int.from_bytes(body[position : position + 3], "little")
        last = bool(block & 1)
        position += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        if position > len(body):
            break
    return position + checksum
