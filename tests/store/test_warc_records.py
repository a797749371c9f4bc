"""What is written is read back the same by warcio and by fastwarc, digests checked."""

import gzip
from datetime import UTC, datetime, timedelta, timezone

import pytest
from warcio.checker import Checker

from crawl.store.records import as_uri, digest_of, warc_date, warc_fields
from crawl.store.warc import WarcWriter, read_record

from .archive import HEAD, READERS, REQUEST, STARTED, exchange


def written(directory, *exchanges):
    with WarcWriter(directory, "t", info={"operator": "Ä. Tester"}) as writer:
        stored = [writer.write(one) for one in exchanges]
    return directory / stored[0].file, stored


@pytest.fixture(params=READERS, ids=lambda reader: reader.__name__)
def read(request):
    return request.param


def test_an_exchange_is_a_response_a_request_and_a_metadata_record_behind_the_warcinfo(tmp_path, read):
    path, _ = written(tmp_path, exchange())
    info, response, request, metadata = read(path)
    types = [record.type for record in (info, response, request, metadata)]
    assert types == ["warcinfo", "response", "request", "metadata"]
    assert b"operator: \xc3\x84. Tester\r\n" in info.payload
    assert b"conformsTo: http://iipc.github.io/" in info.payload
    assert b"robots: obey\r\n" in info.payload
    assert info.warc["warc-filename"] == path.name
    assert response.warc["warc-target-uri"] == "http://a.test/"
    assert response.warc["warc-date"] == "2026-11-30T01:02:03.123Z"
    assert response.warc["warc-ip-address"] == "192.0.2.1"
    assert response.warc["content-type"] == "application/http;msgtype=response"
    assert response.warc["warc-payload-digest"] == digest_of(b"<p>hello")
    assert response.status == "HTTP/1.1 200 OK"
    assert response.http == {"content-type": "text/html"}
    assert response.payload == b"<p>hello"
    assert request.warc["warc-concurrent-to"] == response.warc["warc-record-id"]
    assert metadata.warc["warc-concurrent-to"] == response.warc["warc-record-id"]
    assert metadata.payload == b"via: http://a.test/from\r\nhopsFromSeed: L\r\nfetchTimeMs: 12\r\n"


def test_without_request_metadata_and_address_only_the_response_is_written(tmp_path, read):
    path, _ = written(tmp_path, exchange(request=b"", metadata={}, address=None))
    records = read(path)
    assert [record.type for record in records] == ["warcinfo", "response"]
    assert "warc-ip-address" not in records[1].warc


def test_the_request_is_stored_as_it_was_sent(tmp_path):
    path, stored = written(tmp_path, exchange())
    assert read_record(path, stored[0].offset + stored[0].length) == (REQUEST, b"")


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"a\r\n\r\nb\n\n", bytes(range(256)) * 8, b"WARC/1.1\r\n\r\n", gzip.compress(b"zipped")],
    ids=["empty", "one byte", "empty lines", "all bytes", "like a record", "gzip"],
)
def test_bodies_come_back_byte_for_byte_from_their_offset(tmp_path, body, read):
    path, stored = written(tmp_path, exchange(body=b"before"), exchange(body=body), exchange(body=b"after"))
    assert read_record(path, stored[1].offset) == (HEAD, body)
    responses = [record for record in read(path) if record.type == "response"]
    assert [record.payload for record in responses] == [b"before", body, b"after"]
    assert [record.offset for record in responses] == [one.offset for one in stored]


def test_a_ten_megabyte_body_comes_back(tmp_path, read):
    body = b"".join(b"%d," % number for number in range(1_400_000))
    assert len(body) > 10_000_000
    path, stored = written(tmp_path, exchange(body=body), exchange())
    assert read(path)[1].payload == body
    assert read_record(path, stored[0].offset)[1] == body


def test_the_length_is_that_of_one_whole_gzip_member(tmp_path):
    path, (stored,) = written(tmp_path, exchange())
    member = path.read_bytes()[stored.offset : stored.offset + stored.length]
    record = gzip.decompress(member)
    assert record.startswith(b"WARC/1.1\r\nWARC-Type: response\r\n")
    assert record.endswith(b"<p>hello\r\n\r\n")


def test_warcio_check_finds_nothing(tmp_path, capsys):
    path, _ = written(tmp_path, exchange(), exchange(body=b""), exchange(truncated="length"))

    class Command:
        inputs = [str(path)]
        verbose = False

    assert Checker(Command()).process_all() == 0
    assert capsys.readouterr().out == ""


def test_a_truncated_body_says_why(tmp_path, read):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"
    path, _ = written(tmp_path, exchange(head, b"only this", truncated="disconnect"))
    response = read(path)[1]
    assert response.warc["warc-truncated"] == "disconnect"
    assert response.http == {"content-length": "999"}
    assert response.payload == b"only this"


def test_http2_is_recorded_beside_a_head_that_readers_know(tmp_path, read):
    path, _ = written(tmp_path, exchange(b"HTTP/2 404 \r\ncontent-type: text/html\r\n\r\n"))
    response = read(path)[1]
    assert response.status == "HTTP/1.1 404 Not Found"
    assert response.warc["warc-protocol"] == "h2"


def test_a_revisit_holds_the_head_and_names_the_original(tmp_path, read):
    with WarcWriter(tmp_path, "t") as writer:
        first = writer.write(exchange())
        again = exchange(url="http://a.test/copy")
        second = writer.write_revisit(again, first.digest, "http://a.test/", STARTED)
    revisit = read(tmp_path / first.file)[4]
    assert revisit.type == "revisit"
    assert revisit.warc["warc-profile"].endswith("/warc/1.1/revisit/identical-payload-digest")
    assert revisit.warc["warc-refers-to-target-uri"] == "http://a.test/"
    assert revisit.warc["warc-refers-to-date"] == "2026-11-30T01:02:03.123Z"
    assert revisit.warc["warc-payload-digest"] == first.digest == second.digest
    assert revisit.http == {"content-type": "text/html"}
    assert read_record(tmp_path / second.file, second.offset) == (HEAD, b"")


def test_a_304_is_a_server_not_modified_revisit_and_keeps_its_length(tmp_path, read):
    head = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 999\r\nETag: x\r\n\r\n"
    with WarcWriter(tmp_path, "t") as writer:
        stored = writer.write_revisit(exchange(head, b""), digest_of(b"old"), "http://a.test/", STARTED)
    revisit = read(tmp_path / stored.file)[1]
    assert revisit.warc["warc-profile"].endswith("/revisit/server-not-modified")
    assert revisit.http == {"content-length": "999", "etag": "x"}


URLS = [
    ("http://a.test/%25?q=1#f", "http://a.test/%25?q=1#f"),
    ("http://[::1]:8080/", "http://[::1]:8080/"),
    ("http://a.test/é", "http://a.test/%C3%A9"),
    ("http://a.test/日本 x", "http://a.test/%E6%97%A5%E6%9C%AC%20x"),
    ("http://a.test/a\r\nWARC-Type: b", "http://a.test/a%0D%0AWARC-Type:%20b"),
    ("http://a.test/\ud800", "http://a.test/%ED%A0%80"),
    ("http://a.test/" + "u" * 9000, "http://a.test/" + "u" * 9000),
]


@pytest.mark.parametrize(("url", "uri"), URLS, ids=range(len(URLS)))
def test_any_url_is_written_as_one_line_of_uri_characters(tmp_path, url, uri, read):
    assert as_uri(url) == uri
    path, _ = written(tmp_path, exchange(url=url))
    assert {record.warc["warc-target-uri"] for record in read(path)[1:]} == {uri}


def test_metadata_cannot_break_out_of_its_line():
    fields = warc_fields({"via": "a\r\nb\x00c", "bad name:": "é\ud800", "empty": ""})
    assert fields == b"via: a b c\r\nbad-name-: \xc3\xa9?\r\nempty: \r\n"


def test_dates_are_utc_to_the_millisecond_and_a_naive_one_is_refused():
    tokyo = timezone(timedelta(hours=9))
    assert warc_date(datetime(2026, 1, 1, 3, 0, 0, 999999, tzinfo=tokyo)) == "2025-12-31T18:00:00.999Z"
    assert warc_date(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00.000Z"
    with pytest.raises(ValueError, match="time zone"):
        warc_date(datetime(2026, 1, 1))


def test_the_digest_is_the_one_the_field_uses():
    assert digest_of(b"") == digest_of(b"", b"") == "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
