"""The URL to request is the link as first seen: serialised, but not normalised any further."""

import pytest

from frontier.urls import URL, Rules, canonicalise


@pytest.mark.parametrize(
    ("link", "fetch"),
    [
        ("http://h1.test/view?id=2&cat=2", "http://h1.test/view?id=2&cat=2"),
        ("http://h1.test/%61?%7e=%c3", "http://h1.test/%61?%7e=%c3"),
        ("http://h1.test/100%", "http://h1.test/100%"),
        ("http://h1.test/a?", "http://h1.test/a?"),
        ("http://h1.test./a", "http://h1.test./a"),
        ("http://h1.test/?a[0]=1|2", "http://h1.test/?a[0]=1|2"),
        ("http://h1.test/a#b?c", "http://h1.test/a"),
        ("http://h1.test/a?b#c#d", "http://h1.test/a?b"),
        ("http://user:pass@h1.test/a@b", "http://h1.test/a@b"),
        ("http://h1.test/@user", "http://h1.test/@user"),
        ("http://@h1.test/", "http://h1.test/"),
        ("http://h1.test/?a@b", "http://h1.test/?a@b"),
        ("HTTPS://User:Pass@H1.TEST:443/A#b", "https://h1.test/A"),
        ("http://bücher.example:8080/ü", "http://xn--bcher-kva.example:8080/%C3%BC"),
    ],
)
def test_the_fetch_url_is_kept_as_first_seen(link, fetch):
    assert canonicalise(link).fetch == fetch


@pytest.mark.parametrize(
    ("link", "fetch"),
    [
        ("\0\x01\x1f http://h1.test/a \x1f\0", "http://h1.test/a"),
        ("ht\ntp://h1\t.te\rst/a\n\tb", "http://h1.test/ab"),
        ("http:\\\\h1.test\\a\\b", "http://h1.test/a/b"),
        ("http:h1.test/a", "http://h1.test/a"),
        ("http:/h1.test/a", "http://h1.test/a"),
        ("http:///h1.test/a", "http://h1.test/a"),
        ("http://h1.test/a\x01b\x7fc", "http://h1.test/a%01b%7Fc"),
        ("http://h1.test/a'b?c'd", "http://h1.test/a'b?c%27d"),
        ("http://h1.test/\ufeff\u3000", "http://h1.test/%EF%BB%BF%E3%80%80"),
        ("http://h1.test?a", "http://h1.test/?a"),
        ("http://h1。test/", "http://h1.test/"),
        ("http://ｈ１.test/", "http://h1.test/"),
        ("http://h\xad1.test/", "http://h1.test/"),
        ("http://faß.example/", "http://xn--fa-hia.example/"),
    ],
)
def test_odd_spellings_come_out_as_the_url_standard_says(link, fetch):
    assert canonicalise(link).fetch == fetch


@pytest.mark.parametrize(
    ("link", "host"),
    [
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://0177.0.0.1/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://127.1/", "127.0.0.1"),
        ("http://0xa9.0376.0xa9fe/", "169.254.169.254"),
        ("http://127.0.0.1./", "127.0.0.1"),
        ("http://１２７.0.0.1/", "127.0.0.1"),
        ("http://[::ffff:7f00:1]/", "[::ffff:7f00:1]"),
        ("http://[0:0::127.0.0.1]/", "[::7f00:1]"),
        ("http://[FE80::1]:80/", "[fe80::1]"),
    ],
)
def test_odd_addresses_come_out_in_their_one_normal_form(link, host):
    url = canonicalise(link)
    assert (url.fetch, url.canonical, url.host) == (f"http://{host}/", f"http://{host}/", host)


@pytest.mark.parametrize(
    ("link", "host"),
    [
        ("http://h1.test/", "h1.test"),
        ("https://h1.test/", "h1.test"),
        ("http://h1.test:80/", "h1.test"),
        ("https://h1.test:443/", "h1.test"),
        ("http://h1.test:443/", "h1.test:443"),
        ("https://h1.test:80/", "h1.test:80"),
        ("http://u:p@H1.test.:8080/", "h1.test:8080"),
        ("http://[::1]:8080/", "[::1]:8080"),
        ("http://BÜCHER.example:8080/", "xn--bcher-kva.example:8080"),
    ],
)
def test_the_host_leaves_out_the_default_port_of_its_scheme(link, host):
    assert canonicalise(link).host == host


def test_rules_never_change_the_fetch_url():
    every = Rules(session_ids=True, tracking=True, trailing_slash=True, index_files=True, www=True)
    link = "https://www.example.com/a/index.html;jsessionid=1?utm_source=x&sid=2"
    assert canonicalise(link, rules=every) == URL(link, "https://example.com/a", "example.com")
