"""Cookie jars: what is kept, for how long, and that no other host gets it."""

import pytest

from crawl.fetch import cookies
from crawl.fetch.cookies import MAX_COOKIES, CookieJars, parse_cookie

URL = "https://a.test/shop/list"
EARLIER = "Expires=Thu, 01 Jan 1970 00:00:00 GMT"
LATER = "Expires=Fri, 01 Jan 2100 00:00:00 GMT"

KEPT = [
    ("a=1", "a=1"),
    ("a=1; Path=/", "a=1"),
    ("a=1; path=/shop", "a=1"),
    ("a=1; Path=/shopping", ""),
    ("a=1; Path=nonsense", "a=1"),
    (f"a=1; {LATER}", "a=1"),
    (f"a=1; {EARLIER}", ""),
    ("a=1; Max-Age=10", "a=1"),
    ("a=1; Max-Age=0", ""),
    ("a=1; Max-Age=-5", ""),
    (f"a=1; Max-Age=10; {EARLIER}", "a=1"),
    ("a=1; Expires=garbage", "a=1"),
    ("a=1; Secure; HttpOnly; SameSite=Lax", "a=1"),
    ("a=1; Domain=a.test", "a=1"),
    ("a=1; Domain=.a.test", "a=1"),
    ("a=1; Domain=test", "a=1"),
    ("a=1; Domain=b.test", ""),
    ("a=1; Domain=www.a.test", ""),
    ("a=b=c", "a=b=c"),
    ("a=", "a="),
    ("a", ""),
    ("=1", ""),
    ("", ""),
    ("a=1\r\nX: y", ""),
    ("a=\x01", ""),
    ("a=" + "x" * 4096, ""),
]


@pytest.mark.parametrize(("given", "sent"), KEPT)
def test_what_comes_back_of_a_cookie(given: str, sent: str) -> None:
    jars = CookieJars()
    jars.take(1, URL, [b"HTTP/1.1 200 OK\r\n", f"Set-Cookie: {given}\r\n".encode()])
    assert jars.header(1, URL) == sent


def test_a_cookie_goes_to_no_other_host_port_or_campaign() -> None:
    jars = CookieJars()
    jars.take(1, URL, [b"set-cookie: a=1; Domain=test; Path=/\r\n"])
    assert jars.header(1, "https://a.test/") == "a=1"
    for other in ("https://b.test/", "https://www.a.test/", "https://a.test:8443/", "https://test/"):
        assert jars.header(1, other) == ""
    assert jars.header(2, URL) == ""


def test_a_secure_cookie_is_neither_set_nor_sent_without_tls() -> None:
    jars = CookieJars()
    jars.take(1, URL, [b"Set-Cookie: s=1; Secure; Path=/\r\n", b"Set-Cookie: p=1; Path=/\r\n"])
    assert jars.header(1, "http://a.test/") == "p=1"
    assert parse_cookie("a=1; Secure", "http", "a.test", "/") is None


def test_whether_a_cookie_is_new() -> None:
    jars = CookieJars()
    assert jars.take(1, URL, [b"Set-Cookie: a=1\r\n"])
    assert not jars.take(1, URL, [b"Set-Cookie: a=1\r\n"])
    assert jars.take(1, URL, [b"Set-Cookie: a=2\r\n"])
    assert not jars.take(1, URL, [f"Set-Cookie: a=2; {EARLIER}\r\n".encode()])
    assert jars.header(1, URL) == ""


def test_the_number_and_size_of_cookies_is_bounded(monkeypatch) -> None:
    jars = CookieJars()
    jars.take(1, URL, [f"Set-Cookie: c{n}={'x' * 300}\r\n".encode() for n in range(1000)])
    sent = jars.header(1, URL)
    assert len(sent) <= cookies.MAX_HEADER_BYTES
    assert all(pair.startswith("c9") for pair in sent.split("; "))
    assert len(jars._jars[1, "a.test"]) == MAX_COOKIES
    monkeypatch.setattr(cookies, "MAX_JARS", 10)
    for n in range(50):
        jars.take(1, f"https://h{n}.test/", [b"Set-Cookie: a=1\r\n"])
    assert len(jars._jars) == 10


def test_longer_paths_come_first() -> None:
    jars = CookieJars()
    jars.take(1, URL, [b"Set-Cookie: a=1; Path=/\r\n", b"Set-Cookie: b=2; Path=/shop/list\r\n"])
    assert jars.header(1, URL) == "b=2; a=1"
