"""Exchanges to store, and both readers that every stored file has to satisfy."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from crawl.store.records import Exchange

STARTED = datetime(2026, 11, 30, 1, 2, 3, 123456, tzinfo=UTC)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"


def exchange(head: bytes = HEAD, body: bytes = b"<p>hello", **changes) -> Exchange:
    values = {
        "url": "http://a.test/",
        "started_at": STARTED,
        "address": "192.0.2.1",
        "request": REQUEST,
        "status_line_and_headers": head,
        "body": body,
        "metadata": {"via": "http://a.test/from", "hopsFromSeed": "L", "fetchTimeMs": "12"},
    }
    return Exchange(**{**values, **changes})


@dataclass
class Seen:
    """A record as a reader saw it; names of headers in lower case, the last value of each."""

    type: str
    warc: dict[str, str]
    status: str
    http: dict[str, str]
    payload: bytes
    offset: int


def by_warcio(path: Path) -> list[Seen]:
    """Every record, with block and payload digests checked."""
    seen = []
    with path.open("rb") as file:
        records = WarcioIterator(file, check_digests=True)
        for record in records:
            payload = record.raw_stream.read()
            assert record.digest_checker.passed is not False, record.digest_checker.problems
            assert record.rec_type == "revisit" or record.digest_checker.passed is True
            http = record.http_headers
            seen.append(
                Seen(
                    record.rec_type,
                    {name.lower(): value for name, value in record.rec_headers.headers},
                    f"{http.protocol} {http.statusline}" if http else "",
                    {name.lower(): value for name, value in http.headers} if http else {},
                    payload,
                    records.get_record_offset(),
                )
            )
    return seen


def by_fastwarc(path: Path) -> list[Seen]:
    """Every record, its block digest verified first and, for a response, its payload digest after."""
    with path.open("rb") as file:
        assert all(record.verify_block_digest() for record in FastIterator(file, parse_http=False))
    seen = []
    with path.open("rb") as file:
        for record in FastIterator(file, max_header_len=1 << 20):
            offset = record.stream_pos
            http = record.http_headers
            warc = {name.lower(): value for name, value in record.headers.items()}
            status = "" if http is None else http.status_line or ""
            names = {} if http is None else {name.lower(): value for name, value in http.items()}
            seen.append(Seen(warc["warc-type"], warc, status, names, record.reader.read(), offset))
    with path.open("rb") as file:
        for record in FastIterator(file, max_header_len=1 << 20):
            assert record.headers["WARC-Type"] != "response" or record.verify_payload_digest()
    return seen


READERS = (by_warcio, by_fastwarc)
