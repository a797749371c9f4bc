"""Headers and credentials of a campaign: what may be set, and what a server sees."""

import pytest

from crawl.fetch.request_headers import basic, for_url, merged, parse_auth, parse_header, parse_headers, withheld
from crawl.request_options import read_auth_file, without_secrets


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("X-Key: 1", "X-Key: 1"),
        ("X-Key:1", "X-Key: 1"),
        ("Accept-Language:   de, en;q=0.5 ", "Accept-Language: de, en;q=0.5"),
        ("from: me@a.test", "from: me@a.test"),
        ("X-A: b: c", "X-A: b: c"),
    ],
)
def test_a_header_as_it_is_sent(text: str, sent: str) -> None:
    assert parse_header(text) == sent


REFUSED = [
    *("no colon", ": x", "X Y: 1", "X-\x00: 1", "X-ü: 1", ":path: /"),
    *("X: ", "X: a\r\nHost: b", "X: a\nb", "X: \x00", "X: ü", "X: " + "x" * 5000),
    *(f"{name}: x" for name in ("Host", "content-length", "Transfer-Encoding", "Connection", "TE", "Upgrade")),
    *(f"{name}: x" for name in ("Cookie", "Authorization", "Proxy-Authorization", "proxy-connection", "Keep-Alive")),
    *(f"{name}: x" for name in ("User-Agent", "Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range")),
]


@pytest.mark.parametrize("text", REFUSED)
def test_a_header_that_cannot_be_set_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"header"):
        parse_header(text)


def test_added_headers_take_the_place_of_the_usual_ones() -> None:
    assert merged(["Accept: a", "Accept-Language: en"], ["accept-language: de", "X: 1"]) == [
        "Accept: a",
        "accept-language: de",
        "X: 1",
    ]
    assert parse_headers("X: 1\n\r\n  Y: 2\r\n") == ("X: 1", "Y: 2")
    with pytest.raises(ValueError, match="more than 50"):
        parse_headers("\n".join(f"X-{n}: 1" for n in range(51)))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a.test=u:p", ("https://a.test", "u", "p")),
        ("A.test:8443=u:p:q=r", ("https://a.test:8443", "u", "p:q=r")),
        ("http://a.test=u:", ("http://a.test", "u", "")),
        ("https://a.test:443/=u:p", ("https://a.test", "u", "p")),
        ("[::1]:8443=u:p", ("https://[::1]:8443", "u", "p")),
    ],
)
def test_credentials_are_for_one_origin(text: str, parsed: tuple[str, str, str]) -> None:
    assert parse_auth(text) == parsed


@pytest.mark.parametrize(
    "text",
    ["", "a.test", "a.test=u", "=u:secret", "a.test=:secret", "a.test/x=u:secret", "::=u:secret", "a.test=u:secret\n"],
)
def test_bad_credentials_are_told_without_the_password(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as told:
        parse_auth(text)
    assert "secret" not in str(told.value)


def test_credentials_of_a_file_and_its_faults(tmp_path) -> None:
    path = tmp_path / "auth"
    path.write_text("# ours\n\na.test=u:p\n")
    assert read_auth_file(str(path)) == [("https://a.test", "u", "p")]
    path.write_text("a.test=u:p\nb.test:secret\n")
    with pytest.raises(ValueError, match="line 2: credentials are written") as told:
        read_auth_file(str(path))
    assert "secret" not in str(told.value)


def test_basic_authentication_is_utf8() -> None:
    assert basic("test", "123\u00a3") == "Authorization: Basic dGVzdDoxMjPCow=="  # RFC 7617 section 2.1


def test_what_goes_with_other_requests_and_what_is_stored() -> None:
    credentials = {"https://a.test": "Authorization: Basic x"}
    assert for_url("https://a.test/robots.txt", ["Accept: b", "X: 1"], credentials) == [
        "X: 1",
        "Authorization: Basic x",
    ]
    for other in ("http://a.test/", "https://b.test/", "https://a.test:8443/"):
        assert for_url(other, [], credentials) == []
    assert withheld(["X: 1", "Authorization: Basic x", "Cookie: a=b"]) == [
        "X: 1",
        "Authorization: (withheld)",
        "Cookie: (withheld)",
    ]


def test_a_command_line_is_shown_without_secrets() -> None:
    words = [
        "crawl",
        "http://a.test/",
        "--auth",
        "a.test=u:secret",
        "--auth=b.test=u:secret",
        "--proxy",
        "http://u:secret@p:1",
    ]
    assert without_secrets(words) == "crawl http://a.test/ --proxy http://USER:PASSWORD@p:1"
