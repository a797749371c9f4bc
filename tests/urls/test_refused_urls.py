"""What cannot be crawled is refused with a reason in plain words, whatever the string."""

import pytest

from frontier.urls import InvalidURL, canonicalise
from frontier.urls.canonical import MAX_URL_CHARS

ORIGIN = "http://h1.test/"

REFUSED = [
    ("http://:::cnn.com/x", "no host"),  # case 31
    ("http://[::1", "IPv6 address '[::1' has no closing bracket"),
    ("http://[::1]x/", "port 'x' is not a number"),
    ("http://[:::1]/", "'[:::1]' is not a valid IPv6 address"),
    ("http://[fe80::1%25eth0]/", "'[fe80::1%25eth0]' is not a valid IPv6 address"),
    ("//", "'//' is relative and there is no base"),
    ("/a", "'/a' is relative and there is no base"),
    ("h1.test", "'h1.test' is relative and there is no base"),
    ("", "it is empty"),
    (" \n\0", "it is empty"),
    ("javascript:alert(1)", "scheme 'javascript' is not http or https"),
    ("mailto:a@h1.test", "scheme 'mailto' is not http or https"),
    ("ftp://h1.test/", "scheme 'ftp' is not http or https"),
    ("FTP://h1.test:99999/", "scheme 'ftp' is not http or https"),
    ("file:///etc/passwd", "scheme 'file' is not http or https"),
    ("data:text/html,x", "scheme 'data' is not http or https"),
    ("blob:http://h1.test/x", "scheme 'blob' is not http or https"),
    ("h1.test:80/a", "scheme 'h1.test' is not http or https"),
    ("http://", "no host"),
    ("http:", "no host"),
    ("http://?a", "no host"),
    ("http://user:pass@/a", "no host"),
    ("http://:80/", "no host"),
    ("http://h1.test:99999/", "port 99999 is out of range"),
    ("http://h1.test:65536/", "port 65536 is out of range"),
    ("http://h1.test:0/", "port 0 is out of range"),
    ("http://h1.test:" + "9" * 8000 + "/", "is out of range"),
    ("http://h1.test:8o/", "port '8o' is not a number"),
    ("http://h1.test:٨٠/", "port '٨٠' is not a number"),
    ("http://a b.test/", "host 'a b.test' is not a valid name"),
    ("http://a%00b.test/", "host 'a%00b.test' is not a valid name"),
    ("http://xn--a/", "host 'xn--a' is not a valid name"),
    ("http://\xad/", "is not a valid name"),
    ("http://1.2.3.256/", "host '1.2.3.256' is not a valid name"),
    ("http://1.2.3.4.5/", "host '1.2.3.4.5' is not a valid name"),
    ("http://a..test/", "host 'a..test' is not a valid name"),
    ("http://.test/", "host '.test' is not a valid name"),
    ("http://./", "is not a valid name"),
    ("http://h1.test../", "host 'h1.test.' is not a valid name"),
    ("http://{{host}}/", "host '{{host}}' is not a valid name"),
    ("http://h1.test,/", "host 'h1.test,' is not a valid name"),
    ("http://" + "a" * 64 + ".test/", "label longer than 63 characters"),
    ("http://" + "a." * 125 + "test/", "is longer than 253 characters"),
    ("http://h1.test/\ud800", "it contains a lone surrogate"),
    ("http://\udfff.test/", "it contains a lone surrogate"),
    ("http://h1.test/a\0b", "it contains a NUL character"),
    ("http://a\0b.test/", "it contains a NUL character"),
    (ORIGIN + "a" * MAX_URL_CHARS, "characters long, over the limit of 8192"),
    (ORIGIN + "é" * (MAX_URL_CHARS // 4), "characters long, over the limit of 8192"),
    (ORIGIN + "|" * (MAX_URL_CHARS // 2), "characters long, over the limit of 8192"),
]


@pytest.mark.parametrize(("link", "reason"), REFUSED)
def test_a_link_that_cannot_be_crawled_is_refused_with_the_reason(link, reason):
    with pytest.raises(InvalidURL) as refusal:
        canonicalise(link)
    assert reason in str(refusal.value)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("//", "no host"),
        ("///", "no host"),
        ("//h1.test:99999/", "port 99999 is out of range"),
        ("http://[::1", "has no closing bracket"),
        ("mailto:a@h1.test", "scheme 'mailto' is not http or https"),
        ("\ud800", "it contains a lone surrogate"),
    ],
)
def test_a_relative_link_that_cannot_be_crawled_is_refused_with_the_reason(link, reason):
    with pytest.raises(InvalidURL, match=reason):
        canonicalise(link, "http://h1.test/a/b")


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        ("", "base '' is not usable: it is empty"),
        ("/a", "base '/a' is not usable: '/a' is relative"),
        ("about:blank", "base 'about:blank' is not usable: scheme 'about'"),
        ("http://h1.test:99999/", "base 'http://h1.test:99999/' is not usable: port 99999"),
        ("http://a..test/", "base 'http://a..test/' is not usable: host 'a..test'"),
        ("http://h1.test/\0x", "base 'http://h1.test/\\x00x' is not usable: it contains a NUL"),
        ("http://h1.test/\ud800", "base 'http://h1.test/\\ud800' is not usable: it contains a lone"),
    ],
)
@pytest.mark.parametrize("link", ["a", "http://h2.test/"])
def test_an_unusable_base_is_named(base, reason, link):
    with pytest.raises(InvalidURL) as refusal:
        canonicalise(link, base)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    "link",
    [
        "http://user:secret@h1.test:99999/",
        "http:\\\\user:secret@h1.test:99999/",
        "http:user:secret@h1.test:99999/",
        "http://user:secret@/",
        "http://user:secret@a b/",
    ],
)
def test_a_password_is_in_no_message(link):
    for arguments in [(link,), ("x", link)]:
        with pytest.raises(InvalidURL) as refusal:
            canonicalise(*arguments)
        assert "secret" not in str(refusal.value)


def test_the_longest_allowed_urls_and_names_pass():
    longest = ORIGIN + "a" * (MAX_URL_CHARS - len(ORIGIN))
    assert canonicalise(longest).canonical == longest
    name = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert len(name) == 253
    assert canonicalise(f"http://{name}./").host == name


def test_names_that_are_in_use_pass_though_no_hostname_rule_allows_them():
    for name in ("a_b.test", "-a-.test", "r1---sn-x.test", "localhost"):
        assert canonicalise(f"http://{name}/").host == name


def test_a_refusal_is_a_value_error():
    assert issubclass(InvalidURL, ValueError)
