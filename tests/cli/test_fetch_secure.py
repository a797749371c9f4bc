"""trawl fetch by https: the connection and the certificate are shown, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.cli.test_fetch import PINNED, fetched
from tests.cli.test_lookup_url import call
from tests.fetch.test_tls import SelfSigned, expired, unknown, wrong_name
from tests.scripted import page, redirect
from tests.tlsserver import nginx, secure


@pytest.fixture
def authority(settings: Any, tmp_path: Path) -> trustme.CA:
    """An authority that the operator trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ours.pem"))
    settings.CA_FILE = str(tmp_path / "ours.pem")
    settings.DATA_DIR = tmp_path / "data"
    return authority


def test_the_connection_and_its_certificate_are_shown(authority: trustme.CA, tmp_path: Path) -> None:
    with secure({"/": redirect("/next"), "/next": page()}, authority.issue_cert("a.test", "b.test")) as site:
        record = fetched(f"https://a.test:{site.port}/", *PINNED)
    first, second = (hop["requests"][-1]["attempts"][0] for hop in record["hops"])
    assert first["tls"]["version"] == "TLSv1.3"
    assert first["tls"]["names"] == ["DNS:a.test", "DNS:b.test"]
    assert "trustme" in first["tls"]["issuer"]
    assert first["tls"]["valid_until"].endswith("GMT")
    assert second["tls"] == first["tls"]  # of a connection that is used again, too
    assert second["new_connection"] is False
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (wrong_name, "no alternative certificate subject name matches target hostname 'a.test'"),
        (expired, "certificate has expired"),
        (unknown, "unable to get local issuer certificate"),
    ],
)
def test_a_bad_certificate_is_told_apart(authority: trustme.CA, made: Any, says: str) -> None:
    with secure({"/": page()}, made(authority)) as site:
        done = call("fetch", f"https://a.test:{site.port}/", *PINNED)
        assert site.site.asked == []
    assert done.returncode == 1
    assert says in done.stdout
    assert "tls after 1 request\n" in done.stdout


def test_a_self_signed_certificate_is_told(tmp_path: Path) -> None:
    with secure({"/": page()}, SelfSigned(tmp_path)) as site:
        record = fetched(f"https://a.test:{site.port}/", *PINNED, code=1)
    error = record["hops"][0]["error"]
    assert (error["kind"], error["retry"]) == ("tls", "host")
    assert "self-signed certificate" in error["detail"]


def test_http_2_is_shown_as_spoken(authority: trustme.CA, tmp_path: Path) -> None:
    folder = tmp_path / "nginx"
    folder.mkdir()
    with nginx(folder, authority.issue_cert("a.test")) as port:
        done = call("fetch", f"https://a.test:{port}/", *PINNED)
    assert done.returncode == 0
    assert "to 127.0.0.1, used again, HTTP/2\n" in done.stdout
    assert "GET / HTTP/2\n" in done.stdout
    assert "HTTP/2 200\n" in done.stdout
