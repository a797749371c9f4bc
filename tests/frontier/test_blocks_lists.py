"""Block lists as they are published: each format, and what in them is no block of a whole domain."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.blocklists import BAD_LINES_TOLD, FORMATS, BlockList, Unreadable, open_list, parse_domain
from frontier.urls import InvalidURL, canonicalise

HOSTS_FILE = """\
# Title: StevenBlack/hosts
127.0.0.1 localhost
127.0.0.1 localhost.localdomain
255.255.255.255 broadcasthost
::1 ip6-localhost ip6-loopback
fe80::1%lo0 localhost
0.0.0.0 0.0.0.0

0.0.0.0 ads.example
127.0.0.1\ta.test b.test   c.test # three of them
::  Tracker.Example
0.0.0.0 1.2.3.4
"""
DOMAINS = """\
\ufeff# one a line
ads.example
  *.wild.example
.dotted.example.
UPPER.Example   # with a word
bücher.example
xn--bcher-kva.example
192.0.2.1
2001:db8::1
[2001:db8::2]
_under.score.example
zip
"""
ADBLOCK = """\
[Adblock Plus 2.0]
! Title: EasyList
||ads.example^
||bar.ads.example^|
||UPPER.example^$important
||all.example^$all,document
||*.wild.example^
||192.0.2.1^
||third.example^$third-party
||image.example^$image,domain=a.test
||path.example/ads/*
||open.example
||part*.example^
|https://exact.example/
/banner/*/img^
&adname=
@@||good.example^
@@||good.example^$document
example.com##.banner
example.com#@#.banner
##.ad
~inverse.example^
"""


def read(text: str, kind: str = "auto") -> tuple[list[str], BlockList]:
    found = BlockList(kind)
    return list(found.domains(text.removeprefix("\ufeff").splitlines(keepends=True))), found


@pytest.mark.parametrize("kind", ["auto", "hosts"])
def test_a_hosts_file(kind: str) -> None:
    domains, found = read(HOSTS_FILE, kind)
    assert domains == ["ads.example", "a.test", "b.test", "c.test", "tracker.example", "1.2.3.4"]
    assert found.bad == []
    assert dict(found.skipped) == {"names of the machine itself": 7}
    assert (found.lines, found.names) == (12, 6)


@pytest.mark.parametrize("kind", ["auto", "domains"])
def test_plain_domains(kind: str) -> None:
    domains, found = read(DOMAINS, kind)
    assert domains == [
        *("ads.example", "wild.example", "dotted.example", "upper.example"),
        *("xn--bcher-kva.example", "xn--bcher-kva.example"),
        *("192.0.2.1", "[2001:db8::1]", "[2001:db8::2]", "_under.score.example", "zip"),
    ]
    assert found.bad == []
    assert not found.skipped


@pytest.mark.parametrize("kind", ["auto", "adblock"])
def test_adblock_rules(kind: str) -> None:
    domains, found = read(ADBLOCK, kind)
    assert domains == ["ads.example", "bar.ads.example", "upper.example", "all.example", "wild.example", "192.0.2.1"]
    assert dict(found.skipped) == {
        "rules whose options spare some requests": 2,
        "rules for parts of URLs": 6 if kind == "auto" else 7,
        "exceptions (@@), which are not supported": 2,
        "rules that hide parts of pages": 3,
    }
    assert [bad.text for bad in found.bad] == (["&adname="] if kind == "auto" else [])


def test_lists_of_several_kinds_put_together() -> None:
    domains, found = read(HOSTS_FILE + "plain.example\n||rule.example^\n")
    assert domains[-2:] == ["plain.example", "rule.example"]
    assert found.bad_lines == 0


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("hosts", "ads.example"),
        ("hosts", "0.0.0.0"),
        ("hosts", "0.0.0.0 # nothing"),
        ("hosts", "||ads.example^"),
        ("hosts", "0.0.0.0 a..b"),
        ("domains", "0.0.0.0 ads.example"),
        ("domains", "||ads.example^"),
        ("domains", "https://ads.example/"),
        ("domains", "ads.example/path"),
        ("auto", "<html>"),
        ("auto", "two words"),
        ("auto", "a..b"),
        ("auto", "a.test\0"),
        ("auto", "\udcff.test"),
        ("auto", "x" * 300 + ".test"),
        ("auto", "||a..b^"),
        ("auto", "999.1.1.1.1"),
    ],
)
def test_a_line_that_cannot_be_read_is_told_by_its_number(kind: str, line: str) -> None:
    domains, found = read(f"# a comment\n\n{line}\n", kind)
    assert domains == []
    [bad] = found.bad
    assert bad.line == 3
    assert bad.why
    assert found.bad_lines == 1


def test_only_the_first_bad_lines_are_kept() -> None:
    _, found = read("a..b\nok.test\n" * 100)
    assert found.bad_lines == 100
    assert [bad.line for bad in found.bad] == list(range(1, 2 * BAD_LINES_TOLD, 2))


def test_what_is_quoted_of_a_bad_line_is_short() -> None:
    _, found = read("a b" * 1000)
    assert len(found.bad[0].text) < 100


NAME = st.from_regex(r"[a-zA-Z0-9_.*-]{1,40}", fullmatch=True) | st.text(max_size=30)


@given(NAME)
def test_a_domain_is_what_hosts_of_that_name_are_called(text: str) -> None:
    """The short way for plain names gives what the URL parser gives, and a result is its own canonical form."""
    try:
        domain = parse_domain(text)
    except InvalidURL:
        return
    assert parse_domain(domain) == domain
    assert canonicalise(f"https://{domain}/").host == domain
    assert canonicalise(f"https://{domain}:8443/").host == f"{domain}:8443"


@given(st.lists(st.text(max_size=40), max_size=20), st.sampled_from(FORMATS))
def test_any_text_is_read_without_an_error(lines: list[str], kind: str) -> None:
    domains, found = read("\n".join(lines), kind)
    for domain in domains:
        assert parse_domain(domain) == domain
    assert found.names == len(domains)


def test_a_list_is_read_from_gzip_as_well(tmp_path: Path) -> None:
    for name, data in (("plain.txt", DOMAINS.encode()), ("list.gz", gzip.compress(DOMAINS.encode()))):
        (tmp_path / name).write_bytes(data)
        with open_list(str(tmp_path / name)) as source:
            assert len(list(BlockList().domains(source.lines()))) == 11
            assert source.done() == source.total == len(data)


def test_a_list_that_ends_in_the_middle_or_is_not_there_is_told(tmp_path: Path) -> None:
    packed = gzip.compress("".join(f"d{n}.example\n" for n in range(1000)).encode())
    (tmp_path / "cut.gz").write_bytes(packed[:-20])
    with open_list(str(tmp_path / "cut.gz")) as source, pytest.raises(Unreadable):
        list(source.lines())
    for name in ("none", "", "a\0b", str(tmp_path)):
        with pytest.raises(Unreadable):
            open_list(name if name == str(tmp_path) else str(tmp_path / name))


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 1_000_000 + b"\nok.test\n")
    found = BlockList()
    with open_list(str(tmp_path / "long")) as source:
        assert list(found.domains(source.lines())) == ["ok.test"]
    assert found.bad_lines == 16
