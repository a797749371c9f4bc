"""Heads as servers send them, and the heads that are stored for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl.store.httphead import stored_head
from crawl.store.warc import WarcWriter, read_record

from .archive import READERS, exchange

OK = b"HTTP/1.1 200 OK\r\n"
BODY = b"12345"

# name: received head, stored head for the body 12345, status, protocol
HEADS = {
    "nothing to mend": (OK + b"A: b\r\nContent-Length: 5\r\n\r\n",) * 2 + (200, None),
    "no length is right for a body ended by close": (OK + b"A: b\r\n\r\n",) * 2 + (200, None),
    "no headers": (OK + b"\r\n", OK + b"\r\n", 200, None),
    "no reason": (b"HTTP/1.1 200\r\nA: b\r\n\r\n",) * 2 + (200, None),
    "HTTP/1.0": (b"HTTP/1.0 404 Nope\r\nA: b\r\n\r\n",) * 2 + (404, None),
    "LF only": (b"HTTP/1.1 200 OK\nA: b\nC: d\n\n", OK + b"A: b\r\nC: d\r\n\r\n", 200, None),
    "LF and CRLF": (OK + b"A: b\nC: d\r\n\r\n", OK + b"A: b\r\nC: d\r\n\r\n", 200, None),
    "no empty line": (OK + b"A: b", OK + b"A: b\r\n\r\n", 200, None),
    "a line without colon": (OK + b"PHP Warning\r\nC: d\r\n\r\n",) * 2 + (200, None),
    "last line without colon": (OK + b"C: d\r\nPHP Warning\r\n\r\n",) * 2 + (200, None),
    "folded": (OK + b"A: b\r\n\tmore\r\nC: d\r\n\r\n",) * 2 + (200, None),
    "blank line of spaces": (OK + b"A: b\r\n \t\r\nC: d\r\n\r\n", OK + b"A: b\r\nC: d\r\n\r\n", 200, None),
    "blank line of NBSP": (OK + b"\xa0\x85\r\nC: d\r\n\r\n", OK + b"C: d\r\n\r\n", 200, None),
    "blank line of U+3000": (OK + b"\xe3\x80\x80\r\nC: d\r\n\r\n", OK + b"C: d\r\n\r\n", 200, None),
    "Latin-1 value": (OK + b"A: \xe9\r\nC: d\r\n\r\n",) * 2 + (200, None),
    "NUL in a value": (OK + b"A: b\x00\r\nC: d\r\n\r\n",) * 2 + (200, None),
    "HTTP/2": (b"HTTP/2 200 \r\na: b\r\n\r\n", OK + b"a: b\r\n\r\n", 200, "h2"),
    "HTTP/3": (b"HTTP/3 299\r\n\r\n", b"HTTP/1.1 299\r\n\r\n", 299, "h3"),
    "HTTP/1.2": (b"HTTP/1.2 200 Fine\r\n\r\n", OK + b"\r\n", 200, None),
    "not HTTP": (
        b"ICY 200 OK\r\nA: b\r\n\r\n",
        b"HTTP/1.1 000 Unreadable status line\r\nX-Crawler-Bad-Header: ICY 200 OK\r\nA: b\r\n\r\n",
        0,
        None,
    ),
    "nothing": (b"", b"HTTP/1.1 000 Unreadable status line\r\n\r\n", 0, None),
    "chunked": (
        OK + b"Transfer-Encoding: chunked\r\nA: b\r\n\r\n",
        OK + b"X-Crawler-Transfer-Encoding: chunked\r\nA: b\r\nContent-Length: 5\r\n\r\n",
        200,
        None,
    ),
    "chunked with a false length": (
        OK + b"content-length: 9\r\ntransfer-encoding: gzip, Chunked\r\n\r\n",
        OK + b"X-Crawler-content-length: 9\r\nX-Crawler-transfer-encoding: gzip, Chunked\r\nContent-Length: 5\r\n\r\n",
        200,
        None,
    ),
    "chunked with the true length": (
        OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        OK + b"X-Crawler-Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        200,
        None,
    ),
    "wrong length": (
        OK + b"Content-Length: 4\r\n\r\n",
        OK + b"X-Crawler-Content-Length: 4\r\nContent-Length: 5\r\n\r\n",
        200,
        None,
    ),
    "length with NUL": (
        OK + b"Content-Length: 5\x00\r\n\r\n",
        OK + b"X-Crawler-Content-Length: 5\x00\r\nContent-Length: 5\r\n\r\n",
        200,
        None,
    ),
    "two lengths, one right": (
        OK + b"Content-Length: 7\r\nContent-Length : 05\r\n\r\n",
        OK + b"X-Crawler-Content-Length: 7\r\nContent-Length : 05\r\n\r\n",
        200,
        None,
    ),
    "the right length twice": (
        OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        OK + b"Content-Length: 5\r\nX-Crawler-Content-Length: 5\r\n\r\n",
        200,
        None,
    ),
    "length of 5000 digits": (
        OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        OK + b"X-Crawler-Content-Length: " + b"9" * 5000 + b"\r\nContent-Length: 5\r\n\r\n",
        200,
        None,
    ),
    "304 with the length of the page": (
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 999\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 999\r\n\r\n",
        304,
        None,
    ),
}


@pytest.mark.parametrize(("raw", "head", "status", "protocol"), HEADS.values(), ids=HEADS)
def test_the_stored_head_is_true_for_the_stored_body(raw, head, status, protocol):
    assert stored_head(raw, len(BODY)) == (head, status, protocol)


def test_a_truncated_body_keeps_its_length_and_loses_only_the_transfer_coding():
    raw = OK + b"Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n"
    kept = OK + b"X-Crawler-Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n"
    assert stored_head(raw, 5, truncated=True).head == kept


@pytest.mark.parametrize("reader", READERS)
def test_both_readers_read_every_odd_head_and_the_records_behind_it(tmp_path, reader):
    with WarcWriter(tmp_path, "t") as writer:
        stored = [writer.write(exchange(case[0], BODY, metadata={})) for case in HEADS.values()]
    responses = [seen for seen in reader(tmp_path / stored[0].file) if seen.type == "response"]
    assert [seen.payload for seen in responses] == [BODY] * len(HEADS)
    for (name, (_, head, status, _)), seen in zip(HEADS.items(), responses, strict=True):
        assert seen.status.split(" ")[1] == f"{status:03d}", name
        for header, value in ((b"C: d\r\n", "d"), (b"Content-Length: 5\r\n", "5")):
            if b"\r\n" + header in head:
                assert seen.http[header.split(b":")[0].decode().lower()] == value, name


@pytest.mark.parametrize("reader", READERS)
def test_a_head_of_300_kilobytes_is_kept(tmp_path, reader):
    head = OK + b"".join(b"Set-Cookie: %d=%s\r\n" % (n, b"x" * 990) for n in range(300)) + b"\r\n"
    with WarcWriter(tmp_path, "t") as writer:
        stored = writer.write(exchange(head, BODY))
    assert reader(tmp_path / stored.file)[1].payload == BODY
    assert read_record(tmp_path / stored.file, stored.offset) == (head, BODY)


lines = st.binary(max_size=30) | st.sampled_from(
    [
        b"A: b",
        b" more",
        b"Content-Length: 5",
        b"Transfer-Encoding: chunked",
        b"",
        b"\r",
        b"\x0b",
        b"\x1c",
        b":",
    ]
)
heads = st.builds(
    lambda first, rest, end: first + end + b"".join(line + end for line in rest),
    st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/2 200", b"HTTP/1.1", b""]) | lines,
    st.lists(lines, max_size=6),
    st.sampled_from([b"\r\n", b"\n"]),
)


@given(raw=heads, body=st.sampled_from([b"", b"12345", b"\r\n\r\n"]))
def test_whatever_the_head_both_readers_find_the_body(tmp_path_factory, raw, body):
    directory = tmp_path_factory.mktemp("heads")
    with WarcWriter(directory, "t") as writer:
        stored = writer.write(exchange(raw, body, metadata={}))
    for reader in READERS:
        assert reader(directory / stored.file)[1].payload == body
