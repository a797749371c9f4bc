"""All spellings of one URL have one canonical form, and different URLs keep different ones."""

import pytest

from frontier.urls import canonicalise

SAME = [
    # as the rig writes its links (web.py: page)
    ("http://h1.test/a/4-x.html", "http://h1.test/%61/4-x.html"),
    ("http://h1.test/", "HTTP://H1.TEST"),
    ("http://h1.test/a/4-x.html", "HTTP://H1.TEST/a/4-x.html"),
    ("http://h1.test/section/0/item-1/", "http://h1.test/x/./../section/0/item-1/"),
    ("http://h1.test/section/0/item-1/", "http://h1.test:80/section/0/item-1/"),
    ("http://h1.test/view?cat=2&id=2", "http://h1.test/view?id=2&cat=2"),
    ("http://h1.test/view?cat=2&id=2", " http://h1.test/view?cat=2&id=2\n"),
    ("http://h1.test/view?cat=2&id=2", "http://h1.test/view?cat=2&id=2#s3"),
    ("http://127.1.0.7/view", "HTTP://127.1.0.7:80/view"),
    # case 25: a space before the URL
    ("http://b.test/", " http://b.test/"),
    # case 29: brackets of an IPv6 address
    ("http://[::1]:8080/", "http://[0:0:0:0:0:0:0:1]:8080"),
    # case 30: an internationalised host with a port
    ("http://xn--bcher-kva.example:8080/", "http://bücher.example:8080/"),
    ("http://xn--bcher-kva.example:8080/", "http://BÜCHER.example:8080/"),
    ("http://xn--bcher-kva.example:8080/", "http://b%C3%BCcher.example:8080/"),
    ("http://xn--bcher-kva.example:8080/", "http://XN--BCHER-KVA.example:8080/"),
    # case 32: decoded once, never twice
    ("http://h1.test/Dia%25", "http://h1.test/Dia%25"),
    ("http://h1.test/%2561", "http://h1.test/%2561"),
    # case 37: user and password
    ("http://h1.test/x", "http://user:pass@h1.test/x"),
    ("http://h1.test/x", "http://user@h1.test/x"),
    ("http://h1.test/x", "http://:pass@h1.test/x"),
    ("http://h1.test/x", "http://us@er:p@ss@h1.test/x"),
    # ports
    ("https://h1.test/", "https://h1.test:443/"),
    ("https://h1.test:80/", "https://h1.test:80/"),
    ("http://h1.test/", "http://h1.test:/"),
    ("http://h1.test:81/", "http://h1.test:0081/"),
    # dot segments
    ("http://h1.test/c", "http://h1.test/a/b/../../c"),
    ("http://h1.test/c", "http://h1.test/../../c"),
    ("http://h1.test/a/", "http://h1.test/a/b/.."),
    ("http://h1.test/c", "http://h1.test/a/%2e%2E/%2e/c"),
    ("http://h1.test/c", "http://h1.test/a/.%2e/c"),
    ("http://h1.test/.../a..b/.c", "http://h1.test/.../a..b/.c"),
    # percent-encoding, RFC 3986 section 6.2.2
    ("http://h1.test/%3A%2F%C3%A9", "http://h1.test/%3a%2f%c3%a9"),
    ("http://h1.test/AZaz09-._~", "http://h1.test/%41%5A%61%7a%30%39%2D%2e%5f%7E"),
    ("http://h1.test/caf%C3%A9?q=%C3%A9", "http://h1.test/café?q=é"),
    ("http://h1.test/a%20b?c%20d", "http://h1.test/a b?c d"),
    ("http://h1.test/%5B%5D%5E%7C%7B%7D%60%22%3C%3E", 'http://h1.test/[]^|{}`"<>'),
    ("http://h1.test/?%5B%5D%5E%7C%7B%7D%60%22%3C%3E%5C", 'http://h1.test/?[]^|{}`"<>\\'),
    ("http://h1.test/?a%5B0%5D=1", "http://h1.test/?a[0]=1"),
    ("http://h1.test/100%25", "http://h1.test/100%"),
    ("http://h1.test/%25zz", "http://h1.test/%zz"),
    ("http://h1.test/%2541", "http://h1.test/%4%31"),
    ("http://h1.test/%25A", "http://h1.test/%%41"),
    ("http://h1.test/?name=x", "http://h1.test/?%6eame=%78"),
    # queries
    ("http://h1.test/a", "http://h1.test/a?"),
    ("http://h1.test/a", "http://h1.test/a?#top"),
    ("http://h1.test/?a=1&b=2&b=1", "http://h1.test/?b=2&a=1&b=1"),
    ("http://h1.test/?a&a=&a=2&a=1", "http://h1.test/?a&a=&a=2&a=1"),
    ("http://h1.test/?a=2&ab=1", "http://h1.test/?ab=1&a=2"),
    ("http://h1.test/?a=b=c&d", "http://h1.test/?d&a=b=c"),
    ("http://h1.test/?&a=1", "http://h1.test/?a=1&"),
    ("http://h1.test/?q=a+b&r=a/b?c", "http://h1.test/?r=a/b?c&q=a+b"),
    # the absolute spelling of a host name
    ("http://h1.test/", "http://h1.test./"),
    ("http://h1.test:8080/", "http://h1.test.:8080/"),
]


@pytest.mark.parametrize(("canonical", "spelling"), SAME)
def test_a_spelling_has_the_canonical_form(canonical, spelling):
    assert canonicalise(spelling).canonical == canonical


@pytest.mark.parametrize("canonical", sorted({canonical for canonical, _ in SAME}))
def test_a_canonical_form_is_its_own_identity(canonical):
    assert canonicalise(canonical).canonical == canonical


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://h1.test/a", "https://h1.test/a"),
        ("http://h1.test/a", "http://h1.test/a/"),
        ("http://h1.test/a", "http://h1.test/A"),
        ("http://h1.test/a/b", "http://h1.test/a//b"),
        ("http://h1.test/a/b", "http://h1.test/a%2Fb"),
        ("http://h1.test/a?b", "http://h1.test/a%3Fb"),
        ("http://h1.test/a+b", "http://h1.test/a%20b"),
        ("http://h1.test/a&b", "http://h1.test/a%26b"),
        ("http://h1.test/%61", "http://h1.test/%2561"),
        ("http://h1.test/?a", "http://h1.test/?a="),
        ("http://h1.test/?a=1&a=2", "http://h1.test/?a=2&a=1"),
        ("http://h1.test/?a=1", "http://h1.test/?a=1&"),
        ("http://h1.test/", "http://www.h1.test/"),
        ("http://h1.test/", "http://h1.test:8080/"),
        ("http://h1.test/", "http://h1.test/index.html"),
        ("http://h1.test/?sid=1", "http://h1.test/?sid=2"),
    ],
)
def test_different_urls_stay_different(one, other):
    assert canonicalise(one).canonical != canonicalise(other).canonical


@pytest.mark.parametrize("code", range(256))
@pytest.mark.parametrize("place", ["/x{}y", "/?x{}y"])
def test_only_escapes_of_unreserved_characters_are_decoded(code, place):
    unreserved = chr(code).isascii() and (chr(code).isalnum() or chr(code) in "-._~")
    expected = place.format(chr(code) if unreserved else f"%{code:02X}")
    for escape in (f"%{code:02x}", f"%{code:02X}"):
        assert canonicalise("http://h1.test" + place.format(escape)).canonical == "http://h1.test" + expected
