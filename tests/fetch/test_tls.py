"""Certificates by a local authority: what is refused, and that it is said which."""

import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from crawl.fetch.authorities import CA_FILE, InvalidAuthorities, with_added
from crawl.fetch.errors import Kind
from tests.crawl.running import LOCAL, crawl
from tests.fetch.looping import Asking, asking
from tests.scripted import page
from tests.tlsserver import secure

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
OTHER = trustme.CA()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ours.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def ask(ca_file: str, tmp_path: Path) -> Iterator[Asking]:
    with asking(with_added(ca_file, tmp_path / "data")) as ask:
        yield ask


def test_a_certificate_of_an_authority_that_the_operator_names_is_taken(authority, ask) -> None:
    with secure({"/": page()}, authority.issue_cert("a.test")) as site:
        response = ask(f"https://a.test:{site.port}/")
    assert (response.status, response.error, response.http_version) == (200, None, "1.1")
    assert site.names == ["a.test"]


def wrong_name(authority):
    return authority.issue_cert("b.test")


def expired(authority):
    return authority.issue_cert("a.test", not_before=LONG_AGO, not_after=LONG_AGO + timedelta(days=90))


def not_yet(authority):
    now = datetime.now(UTC)
    return authority.issue_cert("a.test", not_before=now + timedelta(days=1), not_after=now + timedelta(days=2))


def unknown(authority):
    return OTHER.issue_cert("a.test")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (wrong_name, "no alternative certificate subject name matches target hostname 'a.test'"),
        (expired, "certificate has expired"),
        (not_yet, "certificate is not yet valid"),
        (unknown, "unable to get local issuer certificate"),
    ],
)
def test_a_bad_certificate_is_refused_and_told_apart(authority, ask, made, says) -> None:
    with secure({"/": page()}, made(authority)) as site:
        response = ask(f"https://a.test:{site.port}/")
    assert (response.error, response.status) == (Kind.TLS, 0)
    assert says in response.detail
    assert site.site.asked == []


class SelfSigned:
    """A certificate for a.test that nobody but itself vouches for; trustme makes none."""

    def __init__(self, directory: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a.test")])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("a.test")]), critical=False)
        pem, plain = Encoding.PEM, serialization.NoEncryption()
        self.file = directory / "self.pem"
        self.file.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
            + builder.sign(key, hashes.SHA256()).public_bytes(pem)
        )

    def configure_cert(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self.file)


def test_a_self_signed_certificate_is_refused_and_told(ask, tmp_path: Path) -> None:
    with secure({"/": page()}, SelfSigned(tmp_path)) as site:
        response = ask(f"https://a.test:{site.port}/")
    assert response.error is Kind.TLS
    assert "self-signed certificate" in response.detail
    assert site.site.asked == []


def test_a_server_without_tls_is_told_as_such(ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        response = ask(f"https://a.test:{port}/")
        thread.join()
    assert response.error is Kind.TLS


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")])
def test_a_literal_address_is_asked_for_without_sni(authority, ask, host, address) -> None:
    if ":" in address and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with secure({"/": page()}, authority.issue_cert(address), address) as site:
            response = ask(f"https://{host}:{site.port}/", address)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert (response.status, response.error) == (200, None)
    assert site.names == [None]


def test_the_added_authorities_stand_beside_the_usual_ones(ca_file: str, tmp_path: Path) -> None:
    joined = Path(with_added(ca_file, tmp_path)).read_text()
    assert joined.startswith(Path(CA_FILE).read_text())
    assert joined.endswith(Path(ca_file).read_text())
    assert with_added("", tmp_path) == CA_FILE


@pytest.mark.parametrize(
    "content", [None, "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_file_without_authorities_is_told(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "bad.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidAuthorities, match=r"TRAWL_CA_FILE: .*bad\.pem cannot be used: "):
        with_added(str(path), tmp_path)


def test_a_crawl_takes_the_authorities_from_its_setting_and_records_what_it_refuses(
    authority, ca_file: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", CA_FILE)
    with secure({"/": page("/x")}, authority.issue_cert("127.0.0.1")) as site:
        seed = f"https://127.0.0.1:{site.port}/"
        refused = crawl(tmp_path / "one", seed, *LOCAL)
        taken = crawl(tmp_path / "two", seed, *LOCAL, settings={"TRAWL_CA_FILE": ca_file})
    assert [(error["kind"], error["count"]) for error in refused.told["errors"]] == [("tls", 1)]
    assert taken.told["status"] == {"200": 1, "404": 1}
