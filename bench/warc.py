"""What a stored page costs: this project's WARC records against the writers of fastwarc and warcio.

    ./trawl bench warc [--rig /path/to/rig] [--pages 300]

One page is one exchange: a response, a request and a metadata record, digests included, written to memory.
The ways take turns, so a busy machine slows all of them; each shows its median of three. `--rig` takes the
pages of a synthetic web (a folder with the package `synthweb`), else pages of 28 KB are made here.
"""

import hashlib
import io
import random
import statistics
import sys
import time
import uuid
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from unittest import mock

from fastwarc.stream_io import GzipWriter
from fastwarc.warc import WarcRecord, WarcRecordType
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from bench.arguments import Parser, whole
from crawl.store import records

STARTED = datetime(2026, 11, 30, 1, 2, 3, 123000, tzinfo=UTC)
HEADERS = [
    ("Date", "Mon, 30 Nov 2026 01:02:03 GMT"),
    ("Server", "nginx"),
    ("Content-Type", "text/html; charset=utf-8"),
    ("ETag", '"5f3c-18a2"'),
    ("Last-Modified", "Sun, 29 Nov 2026 23:00:00 GMT"),
    ("Cache-Control", "max-age=600"),
    ("Vary", "Accept-Encoding"),
    ("Connection", "keep-alive"),
]
REQUEST_HEADERS = [
    ("Host", "h7.test"),
    ("User-Agent", "trawl/0.1 (+http://127.0.0.1/)"),
    ("Accept", "text/html,*/*"),
    ("Accept-Encoding", "gzip, br, zstd"),
]
METADATA = {"via": "http://h7.test/", "hopsFromSeed": "LL", "fetchTimeMs": "31"}


def pages_of_rig(folder: str, count: int) -> list[bytes]:
    sys.path.insert(0, folder)
    from synthweb.web import Web  # type: ignore[import-not-found]

    web = Web(hosts=count, pages=10)
    return [web.page(host, 1) for host in range(count)]


def pages_made_here(count: int) -> list[bytes]:
    rng = random.Random(1)
    words = ["".join(rng.choices("aeioulnrstmdpc", k=rng.randint(2, 9))) for _ in range(3000)]
    pages = []
    for number in range(count):
        parts = [f"<!doctype html><html><head><title>Page {number}</title></head><body>"]
        for _ in range(60):
            text = " ".join(rng.choices(words, k=60))
            parts.append(f'<p class="text">{text} <a href="/{rng.choice(words)}/{rng.random()}">more</a></p>')
        pages.append("\n".join(parts).encode())
    return pages


def http_head(first: str, headers: list[tuple[str, str]]) -> bytes:
    return "\r\n".join([first, *[f"{name}: {value}" for name, value in headers], "\r\n"]).encode()


RESPONSE_HEAD = http_head("HTTP/1.1 200 OK", HEADERS)
REQUEST_HEAD = http_head("GET /page HTTP/1.1", REQUEST_HEADERS)


def own(pages: list[bytes], level: int, out: io.BytesIO) -> None:
    records.GZIP_LEVEL = level
    for number, page in enumerate(pages):
        exchange = records.Exchange(
            f"http://h7.test/{number}",
            STARTED,
            "127.0.0.1",
            REQUEST_HEAD,
            RESPONSE_HEAD,
            page,
            None,
            METADATA,
        )
        out.write(b"".join(records.exchange_members(exchange).records))


def own_with_zlib(pages: list[bytes], level: int, out: io.BytesIO) -> None:
    def compress(data: bytes, level: int, wbits: int) -> bytes:
        packer = zlib.compressobj(level, zlib.DEFLATED, wbits)
        return packer.compress(data) + packer.flush()

    with mock.patch.object(records, "isal_zlib", SimpleNamespace(compress=compress)):
        own(pages, level, out)


def by_fastwarc(pages: list[bytes], level: int, out: io.BytesIO) -> None:
    for number, page in enumerate(pages):
        url, main_id = f"http://h7.test/{number}", str(uuid.uuid4())
        http = ((WarcRecordType.response, RESPONSE_HEAD + page), (WarcRecordType.request, REQUEST_HEAD))
        for kind, block in (*http, (WarcRecordType.metadata, records.warc_fields(METADATA))):
            record = WarcRecord()
            first = kind == WarcRecordType.response
            record.init_headers(kind, (main_id if first else str(uuid.uuid4())).encode())
            record.record_date = STARTED
            record.headers["WARC-Target-URI"] = url
            record.headers["WARC-IP-Address"] = "127.0.0.1"
            if first:
                record.is_http = True
            else:
                record.headers["WARC-Concurrent-To"] = f"<urn:uuid:{main_id}>"
            record.set_bytes_content(block)
            # As it parses the block anew to find the payload, that digest is handed in.
            payload = hashlib.sha1(page).digest() if first else None
            record.write(GzipWriter(out, compression_level=level), checksum_data=True, payload_digest=payload)


def by_warcio(pages: list[bytes], _: int, out: io.BytesIO) -> None:
    writer = WARCWriter(out, gzip=True, warc_version="1.1")
    for number, page in enumerate(pages):
        url = f"http://h7.test/{number}"
        head = StatusAndHeaders("200 OK", list(HEADERS), "HTTP/1.1")
        more = {"WARC-IP-Address": "127.0.0.1"}
        response = writer.create_warc_record(
            url, "response", payload=io.BytesIO(page), http_headers=head, warc_headers_dict=more
        )
        head = StatusAndHeaders("GET /page HTTP/1.1", list(REQUEST_HEADERS), is_http_request=True)
        request = writer.create_warc_record(url, "request", http_headers=head)
        writer.write_request_response_pair(request, response)
        block = io.BytesIO(records.warc_fields(METADATA))
        kind = "application/warc-fields"
        record = writer.create_warc_record(url, "metadata", payload=block, warc_content_type=kind)
        writer.write_record(record)


WAYS: list[tuple[str, Callable[[list[bytes], int, io.BytesIO], None], int]] = [
    ("own records, isal 0", own, 0),
    ("own records, isal 1", own, 1),
    ("own records, isal 2", own, 2),
    ("own records, isal 3", own, 3),
    ("own records, zlib 6", own_with_zlib, 6),
    ("fastwarc, level 1", by_fastwarc, 1),
    ("fastwarc, level 6", by_fastwarc, 6),
    ("fastwarc, level 9 (its default)", by_fastwarc, 9),
    ("warcio (zlib 9, its only level)", by_warcio, 9),
]


def main() -> None:
    parser = Parser("warc", __doc__)
    parser.add_argument("--rig", help="folder of the synthetic web")
    parser.add_argument("--pages", type=whole(), default=300)
    options = parser.parse_args()
    try:
        pages = pages_made_here(options.pages) if options.rig is None else pages_of_rig(options.rig, options.pages)
    except ImportError:
        parser.error(f"there is no package synthweb in {options.rig}; name with --rig the folder that holds it")
    times: dict[str, list[float]] = {name: [] for name, _, _ in WAYS}
    sizes: dict[str, int] = {}
    chosen = records.GZIP_LEVEL
    for _ in range(3):
        for name, way, level in WAYS:
            out = io.BytesIO()
            start = time.process_time()
            way(pages, level, out)
            times[name].append((time.process_time() - start) / len(pages) * 1e6)
            sizes[name] = len(out.getvalue()) // len(pages)
    base = f"own records, isal {chosen}"
    unit = statistics.median(times[base])
    print(f"{len(pages)} pages of {sum(map(len, pages)) // len(pages)} bytes; CPU, median of three")
    print(f"{'way':33}{'us/page':>9}{'times':>7}{'bytes':>8}{'size':>7}")
    for name, taken in times.items():
        micros = statistics.median(taken)
        size = sizes[name]
        print(f"{name:33}{micros:9.0f}{micros / unit:7.2f}{size:8}{size / sizes[base]:7.2f}")


if __name__ == "__main__":
    main()
