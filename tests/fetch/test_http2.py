"""HTTP/2 with a real server, and what it must not change: the address that was checked is the one that is asked."""

import gzip
from pathlib import Path

import pytest
import trustme
from warcio.archiveiterator import ArchiveIterator

from crawl.fetch.authorities import with_added
from tests.crawl.running import LOCAL, crawl
from tests.fetch.looping import asking
from tests.tlsserver import nginx, requests_of


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ours.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def test_a_crawl_speaks_http2_on_one_connection_and_stores_what_others_can_read(authority, ca_file, tmp_path) -> None:
    with nginx(tmp_path, authority.issue_cert("127.0.0.1")) as port:
        ran = crawl(tmp_path / "data", f"https://127.0.0.1:{port}/", *LOCAL, settings={"TRAWL_CA_FILE": ca_file})
    assert ran.told["status"] == {"200": 3}
    asked = requests_of(tmp_path)
    assert [(protocol, status, path) for protocol, _, status, _, path in asked] == [
        ("HTTP/2.0", "404", "/robots.txt"),
        ("HTTP/2.0", "200", "/"),
        ("HTTP/2.0", "200", "/a"),
        ("HTTP/2.0", "200", "/b"),
    ]
    assert len({connection for _, connection, *_ in asked}) == 1
    [file] = (tmp_path / "data").glob("warc/*/*.warc.gz")
    with open(file, "rb") as stream:
        stored = [
            (record.http_headers.statusline, record.rec_headers["WARC-Protocol"], record.content_stream().read())
            for record in ArchiveIterator(stream)
            if record.rec_type == "response"
        ]
    assert [(status, protocol) for status, protocol, _ in stored] == [("200 OK", "h2")] * 3
    assert stored[1][2] == b"page"
    raw = gzip.decompress(file.read_bytes())
    assert raw.count(b"\r\n\r\nHTTP/1.1 200 OK\r\n") == 3
    assert b"HTTP/2" not in raw


def test_a_server_without_http2_is_asked_by_http11(authority, ca_file, tmp_path) -> None:
    with (
        nginx(tmp_path, authority.issue_cert("a.test"), listen="ssl") as port,
        asking(with_added(ca_file, tmp_path)) as ask,
    ):
        response = ask(f"https://a.test:{port}/")
    assert (response.status, response.http_version) == (200, "1.1")


def test_hosts_of_one_certificate_and_address_do_not_share_a_connection(authority, ca_file, tmp_path) -> None:
    certificate = authority.issue_cert("a.test", "b.test")
    with nginx(tmp_path, certificate) as port, asking(with_added(ca_file, tmp_path)) as ask:
        for host in ("a.test", "b.test", "a.test", "b.test"):
            assert ask(f"https://{host}:{port}/").http_version == "2"
    by_host: dict[str, set[str]] = {}
    for _, connection, _, host, _ in requests_of(tmp_path):
        by_host.setdefault(host, set()).add(connection)
    assert [len(connections) for connections in by_host.values()] == [1, 1]
    assert not by_host["a.test"] & by_host["b.test"]


def test_a_connection_to_another_address_than_the_one_just_checked_is_not_used_again(
    authority, ca_file, tmp_path
) -> None:
    certificate = authority.issue_cert("a.test")
    with (
        nginx(tmp_path, certificate, also="listen 127.0.0.2:{port} ssl http2;") as port,
        asking(with_added(ca_file, tmp_path)) as ask,
    ):
        answers = [ask(f"https://a.test:{port}/", address) for address in ("127.0.0.1", "127.0.0.2", "127.0.0.1")]
    assert [response.address for response in answers] == ["127.0.0.1", "127.0.0.2", "127.0.0.1"]
    first, second, third = (connection for _, connection, *_ in requests_of(tmp_path))
    assert first == third != second


def test_a_misdirected_request_is_made_once_more_on_a_connection_of_its_own(authority, ca_file, tmp_path) -> None:
    # $connection_requests is 1 for the first request of a connection.
    locations = """
        location = /a { if ($connection_requests != 1) { return 421; } return 200 'right'; }
        location = /b { return 421; }
    """
    with nginx(tmp_path, authority.issue_cert("127.0.0.1"), locations) as port:
        ran = crawl(tmp_path / "data", f"https://127.0.0.1:{port}/", *LOCAL, settings={"TRAWL_CA_FILE": ca_file})
    asked = [(path, status) for _, _, status, _, path in requests_of(tmp_path)]
    assert asked == [("/robots.txt", "404"), ("/", "200"), ("/a", "421"), ("/a", "200"), ("/b", "421"), ("/b", "421")]
    assert ran.told["status"] == {"200": 2, "421": 1}
