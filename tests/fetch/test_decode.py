"""Content decoding: every encoding, whole, cut, damaged, stacked, falsely named, or made to explode."""

import gzip
import random
import tracemalloc
import zlib

import brotli
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from crawl.fetch.decode import MAX_RATIO, RATIO_FREE_BYTES, decode_body

MIB = 1 << 20
LINES = [b"<li><a href='/item/%d'>number %d</a>\n" % (n, n * n) for n in range(100_000)]
PAGE = b"".join(LINES[:1000])
BIG_PAGE = b"".join(LINES)
NOISE = random.Random(7).randbytes(300_000)


def raw_deflate(data):
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def gzip_with_name(data):
    packed = bytearray(gzip.compress(data))
    packed[3] |= 0x08 | 0x10
    return bytes(packed[:10]) + b"page.html\x00a comment\x00" + bytes(packed[10:])


def brotli_5(data):
    """The default, 11, takes 16 s for the big page."""
    return brotli.compress(data, quality=5)


def zstd_streamed(data):
    """As a server streams it: no content size in the frame, with a checksum."""
    packer = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compressobj()
    return packer.compress(data) + packer.flush()


CODERS = {
    "gzip": ("gzip", gzip.compress),
    "gzip with name and comment": ("gzip", gzip_with_name),
    "x-gzip": ("X-GZip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "br": ("br", brotli_5),
    "zstd": ("zstd", zstandard.compress),
    "zstd, streamed": ("zstd", zstd_streamed),
}
every_coder = pytest.mark.parametrize(("encoding", "coder"), CODERS.values(), ids=CODERS)


@every_coder
@pytest.mark.parametrize("data", [b"", b"x", PAGE, NOISE, BIG_PAGE], ids=["0", "1", "page", "noise", "4 MB"])
def test_a_whole_body_is_decoded(encoding, coder, data):
    assert decode_body(coder(data), encoding, 64 * MIB) == (data, None)


@every_coder
def test_the_limit_itself_still_fits_and_one_byte_more_does_not(encoding, coder):
    packed = coder(NOISE)
    assert decode_body(packed, encoding, len(NOISE)) == (NOISE, None)
    assert decode_body(packed, encoding, len(NOISE) - 1) == (NOISE[:-1], "bomb")
    assert decode_body(packed, encoding, 0) == (b"", "bomb")


PLAIN = [
    (b"<p>", None, 10, (b"<p>", None)),
    (b"<p>", "", 10, (b"<p>", None)),
    (b"<p>", "identity", 10, (b"<p>", None)),
    (b"<p>", " , Identity,", 10, (b"<p>", None)),
    (b"<p>", None, 2, (b"<p", "truncated")),
    (b"<p>", "pack200", 10, (b"<p>", "unknown-encoding")),
    (b"<p>", "gzip;q=1", 10, (b"<p>", "unknown-encoding")),
    (b"<p>", "utf-8", 2, (b"<p", "unknown-encoding")),
    (gzip.compress(b"x"), "gzip, aes128gcm", 99, (gzip.compress(b"x"), "unknown-encoding")),
    (gzip.compress(b"x"), "gzip, gzip, gzip, gzip", 99, (gzip.compress(b"x"), "unknown-encoding")),
    (b"", "gzip", 10, (b"", None)),
    (b"", "br, zstd", 10, (b"", None)),
]


@pytest.mark.parametrize(("body", "encoding", "limit", "decoded"), PLAIN, ids=range(len(PLAIN)))
def test_no_known_or_unknown_encodings(body, encoding, limit, decoded):
    assert decode_body(body, encoding, limit) == decoded


FALSELY_NAMED = [
    b"<html><body>plain</body></html>" * 50,
    b"<",
    b'{"a": 1, "b": [2, 3]}',
    b"hello world",
    b"x^ begins like zlib",
    b"H, so does this",
    "привет, мир ".encode() * 20,
    b"\x89PNG\r\n\x1a\n" + bytes(100),
    b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + NOISE[:500],
    bytes(40),
]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("body", FALSELY_NAMED, ids=range(len(FALSELY_NAMED)))
def test_a_body_that_is_not_encoded_as_said_is_used_as_it_is(body, encoding):
    assert decode_body(body, encoding, MIB) == (body, "not-encoded")


@every_coder
@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
def test_of_a_cut_stream_what_can_be_decoded_is_kept(encoding, coder, share):
    data = NOISE + PAGE
    packed = coder(data)
    body, flag = decode_body(packed[: int(len(packed) * share)], encoding, 64 * MIB)
    assert flag == "truncated"
    assert data.startswith(body)
    # A zstd block of up to 128 KiB is decoded whole or not at all.
    assert len(body) > len(data) * share - 140_000


@every_coder
def test_a_stream_that_lacks_its_last_byte_is_truncated(encoding, coder):
    body, flag = decode_body(coder(NOISE)[:-1], encoding, MIB)
    assert flag == "truncated"
    assert NOISE.startswith(body)


@pytest.mark.parametrize(("name", "checksum"), [("gzip", -5), ("deflate", -1)])
def test_a_wrong_checksum_keeps_all_of_the_body(name, checksum):
    encoding, coder = CODERS[name]
    packed = bytearray(coder(PAGE))
    packed[checksum] ^= 1
    assert decode_body(bytes(packed), encoding, MIB) == (PAGE, "truncated")


def test_damage_in_the_middle_keeps_what_comes_before_it():
    packed = bytearray(gzip.compress(NOISE + PAGE))
    packed[200_000:200_100] = bytes(100)
    packed[300_050:300_100] = b"\xff" * 50
    body, flag = decode_body(bytes(packed), "gzip", MIB)
    assert flag == "truncated"
    assert body[:199_000] == NOISE[:199_000]


@pytest.mark.parametrize("junk", [b"\x00" * 40, b"<!-- served by -->", b"\x1f", NOISE[:999]])
@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_padding_behind_the_end_is_passed_over(name, junk):
    encoding, coder = CODERS[name]
    assert decode_body(coder(PAGE) + junk, encoding, MIB) == (PAGE, None)


@pytest.mark.parametrize("name", ["gzip", "zstd", "zstd, streamed"])
@pytest.mark.parametrize("count", [2, 3000])
def test_all_members_are_read(name, count):
    encoding, coder = CODERS[name]
    body = b"".join(coder(b"part %d;" % n) for n in range(count))
    assert decode_body(body, encoding, MIB) == (b"".join(b"part %d;" % n for n in range(count)), None)


def test_a_big_member_after_small_ones_is_read():
    body = gzip.compress(b"a") + gzip.compress(NOISE) + gzip.compress(BIG_PAGE)
    assert decode_body(body, "gzip", 8 * MIB) == (b"a" + NOISE + BIG_PAGE, None)


def test_a_skippable_zstd_frame_is_skipped():
    skippable = b"\x50\x2a\x4d\x18\x05\x00\x00\x00aside"
    assert decode_body(skippable + zstandard.compress(PAGE), "zstd", MIB) == (PAGE, None)


def test_a_zstd_window_beyond_the_rfc_is_not_allocated():
    frame = b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x01\x00\x00"
    assert decode_body(frame, "zstd", MIB) == (b"", "truncated")


STACKS = [
    ("gzip, br", brotli.compress(gzip.compress(PAGE)), (PAGE, None)),
    ("br,gzip", gzip.compress(brotli.compress(PAGE)), (PAGE, None)),
    ("zstd, identity, deflate", zlib.compress(zstandard.compress(PAGE)), (PAGE, None)),
    ("gzip, gzip, gzip", gzip.compress(gzip.compress(gzip.compress(PAGE))), (PAGE, None)),
    ("gzip, gzip", gzip.compress(PAGE), (PAGE, "not-encoded")),
    ("gzip, br", gzip.compress(PAGE), (PAGE, "not-encoded")),
    ("gzip, br", PAGE, (PAGE, "not-encoded")),
]


@pytest.mark.parametrize(("encoding", "body", "decoded"), STACKS, ids=range(len(STACKS)))
def test_stacked_encodings_are_undone_from_the_last_to_the_first(encoding, body, decoded):
    assert decode_body(body, encoding, MIB) == decoded


def brotli_in_pieces(pieces):
    """Zeros by the MiB, never held as a whole."""
    compressor = brotli.Compressor(quality=1)
    return b"".join([*(compressor.process(bytes(MIB)) for _ in range(pieces)), compressor.finish()])


BOMBS = {
    "br of 256 MiB": ("br", lambda: brotli_in_pieces(256)),
    "gzip of 4 GiB": ("gzip", lambda: gzip.compress(bytes(64 * MIB)) * 64),
    "gzip": ("gzip", lambda: gzip.compress(bytes(64 * MIB), 6)),
    "members": ("gzip", lambda: gzip.compress(bytes(2 * MIB)) * 32),
    "deflate": ("deflate", lambda: zlib.compress(bytes(64 * MIB))),
    "br": ("br", lambda: brotli.compress(bytes(64 * MIB), quality=1)),
    "zstd": ("zstd", lambda: zstandard.compress(bytes(64 * MIB))),
    "gzip in gzip": ("gzip, gzip", lambda: gzip.compress(gzip.compress(bytes(64 * MIB)))),
}


@pytest.fixture(scope="module")
def bombs():
    return {name: make() for name, (_, make) in BOMBS.items()}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_cut_at_the_bounds_and_never_held(bombs, name):
    limit = 8 * MIB
    tracemalloc.start()
    body, flag = decode_body(bombs[name], BOMBS[name][0], limit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert flag == "bomb"
    assert body == bytes(min(limit, max(RATIO_FREE_BYTES, MAX_RATIO * len(bombs[name]))))
    assert peak < limit * 1.2 + 4 * MIB


def test_a_small_body_may_have_any_ratio():
    packed = gzip.compress(bytes(RATIO_FREE_BYTES))
    assert MAX_RATIO * len(packed) < RATIO_FREE_BYTES
    assert decode_body(packed, "gzip", 16 * MIB) == (bytes(RATIO_FREE_BYTES), None)


NAMES = ["gzip", "deflate", "br", "zstd", "identity", "x-gzip", "lzma", "", "\x00"]
encodings = st.lists(st.sampled_from(NAMES), max_size=4).map(", ".join) | st.text(max_size=9) | st.none()


@st.composite
def bruised(draw):
    """An encoded body with some bytes changed, cut off, or put in; or just bytes."""
    encoding, coder = draw(st.sampled_from(list(CODERS.values())))
    body = bytearray(coder(draw(st.binary(max_size=300) | st.just(PAGE))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 5))] = draw(st.binary(max_size=5))
    return bytes(body), encoding


@given(case=bruised() | st.tuples(st.binary(max_size=400), encodings), limit=st.sampled_from([0, 1, 50, MIB]))
@example(case=(b"\x1f\x8b", "gzip"), limit=MIB)
@example(case=(b"\x50\x2a\x4d\x18", "zstd"), limit=MIB)
@example(case=(b"\x28\xb5\x2f\xfd", "zstd"), limit=MIB)
@example(case=(b"\x28\xb5\x2f\xfd\x00\x58\x01\x00\x00\x1f", "zstd"), limit=1)
def test_no_bytes_raise_and_the_limit_always_holds(case, limit):
    body, encoding = case
    decoded = decode_body(body, encoding, limit)
    assert len(decoded.body) <= limit
    assert decoded.flag in {None, "not-encoded", "truncated", "bomb", "unknown-encoding"}


@given(data=st.binary(max_size=2000), coders=st.lists(st.sampled_from(list(CODERS.values())), max_size=3))
def test_what_was_encoded_comes_back(data, coders):
    body = data
    for _, coder in coders:
        body = coder(body)
    encoding = ", ".join(name for name, _ in coders)
    assert decode_body(body, encoding, MIB) == (data, None)
