"""Block lists as they are published: each format, and what in them is no block of a whole domain."""

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.blocklists import (
    BAD_LINES_TOLD,
    FORMATS,
    JUDGED_LINES,
    MAX_LINE_CHARS,
    BlockList,
    NotAList,
    Unreadable,
    open_list,
    parse_domain,
)
from frontier.urls import InvalidURL, canonicalise

HOSTS_FILE = """\
# Title: StevenBlack/hosts
127.0.0.1 localhost
127.0.0.1 localhost.localdomain
255.255.255.255 broadcasthost
::1 ip6-localhost ip6-loopback LOCALHOST
ff02::1 ip6-allnodes
fe80::1%lo0 localhost
0.0.0.0 0.0.0.0

0.0.0.0 ads.example
127.0.0.1\ta.test b.test   c.test # three of them
::  Tracker.Example
0.0.0.0 1.2.3.4
127.8.9.1 loop.test
::1 six.test
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
    assert domains == [
        *("ads.example", "a.test", "b.test", "c.test", "tracker.example", "1.2.3.4", "loop.test", "six.test")
    ]
    assert found.bad == []
    assert dict(found.skipped) == {"names of the machine itself": 9}
    assert (found.lines, found.names) == (15, 8)


@pytest.mark.parametrize("kind", ["auto", "domains"])
def test_plain_domains(kind: str) -> None:
    domains, found = read(DOMAINS, kind)
    assert domains == [
        *("ads.example", "wild.example", "dotted.example", "upper.example"),
        *("xn--bcher-kva.example", "xn--bcher-kva.example"),
        *("192.0.2.1", "[2001:db8::1]", "[2001:db8::2]", "_under.score.example"),
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
        ("hosts", "0.0.0.0 com"),
        ("hosts", "10.0.0.5 localhost intranet.test"),
        ("domains", "0.0.0.0 ads.example"),
        ("domains", "||ads.example^"),
        ("domains", "https://ads.example/"),
        ("domains", "ads.example/path"),
        ("domains", "com"),
        ("adblock", "com"),
        ("auto", "<html>"),
        ("auto", "two words"),
        ("auto", "a..b"),
        ("auto", "\udcff.test"),
        ("auto", "x" * 300 + ".test"),
        ("auto", "||a..b^"),
        ("auto", "999.1.1.1.1"),
    ],
)
def test_a_line_that_cannot_be_read_is_told_by_its_number(kind: str, line: str) -> None:
    good = {"hosts": "0.0.0.0 ok.test", "adblock": "||ok.test^"}.get(kind, "ok.test")
    domains, found = read(f"# a comment\n\n{line}\n{good}\n", kind)
    assert domains == ["ok.test"]
    [bad] = found.bad
    assert bad.line == 3
    assert bad.why
    assert found.bad_lines == 1


TOP_LEVEL = "a top-level domain; use `trawl block add` for it"
ELSEWHERE = "is where these names are; only 0.0.0.0, 127.0.0.1, :: and ::1 block"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("com", TOP_LEVEL),
        ("*.com", TOP_LEVEL),
        ("COM.", TOP_LEVEL),
        ("рф", TOP_LEVEL),
        ("||com^", TOP_LEVEL),
        ("||*.com^$all", TOP_LEVEL),
        ("0.0.0.0 com", TOP_LEVEL),
        ("0.0.0.0 a.test com", TOP_LEVEL),
        ("5", "another way to write 0.0.0.5; use `trawl block add` for it"),
        ("10.0.0.5 intranet.test", f"10.0.0.5 {ELSEWHERE}"),
        ("fe80::1%lo0 intranet.test", f"fe80::1%lo0 {ELSEWHERE}"),
        ("::2 intranet.test", f"::2 {ELSEWHERE}"),
        ("999.1.1.1 z.test", "999.1.1.1 is no IP address"),
        ("\udcff.test", "the line is not UTF-8"),
        ("0.0.0.0 b\udcfccher.example", "the line is not UTF-8"),
    ],
)
def test_a_bad_line_is_told_with_its_reason(line: str, why: str) -> None:
    domains, found = read(f"ok.test\n{line}\n")
    assert domains == ["ok.test"]
    assert [bad.why for bad in found.bad] == [why]


def test_a_comment_need_not_be_utf_8() -> None:
    assert read("0.0.0.0 a.test # caf\udce9\n! \udce9\n")[0] == ["a.test"]


@pytest.mark.parametrize("text", ["a..b\n", "com\nok.test\nx y\n", "# said\n! so\n[x]\n\na..b\n"])
def test_what_is_mostly_bad_is_no_list(text: str) -> None:
    with pytest.raises(NotAList, match="are bad; line "):
        read(text)


def test_a_nul_byte_at_the_beginning_makes_it_no_list() -> None:
    for data in ("a.test\nb.test\n".encode("utf-16"), b"a.test\n# \0\n"):
        with open_list("", io.BytesIO(data)) as source, pytest.raises(NotAList, match="NUL"):
            list(BlockList().domains(source.lines()))


def test_only_the_beginning_tells_whether_it_is_a_list() -> None:
    good = "".join(f"d{n}.test\n" for n in range(JUDGED_LINES // 2))
    bad = "a..b\n" * (JUDGED_LINES // 2)
    rest = "a..b\n" * 5000 + "nul\0.test\n"
    domains, found = read("# comment\n\n" + bad + good + rest)
    assert len(domains) == JUDGED_LINES // 2
    assert found.bad_lines == JUDGED_LINES // 2 + 5001
    with pytest.raises(NotAList, match="first 1,000 lines with something in them 501 are bad; line 1: "):
        read("a..b\n" + bad + good)


def test_only_the_first_bad_lines_are_kept() -> None:
    _, found = read("a..b\nok.test\n" * 100)
    assert found.bad_lines == 100
    assert [bad.line for bad in found.bad] == list(range(1, 2 * BAD_LINES_TOLD, 2))


def test_what_is_quoted_of_a_bad_line_is_short() -> None:
    _, found = read("a b" * 1000 + "\nok.test\n")
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
    try:
        domains, found = read("\n".join(lines), kind)
    except NotAList:
        return
    for domain in domains:
        assert parse_domain(domain) == domain
    assert found.names == len(domains)


def test_a_list_is_read_from_gzip_as_well(tmp_path: Path) -> None:
    for name, data in (("plain.txt", DOMAINS.encode()), ("list.gz", gzip.compress(DOMAINS.encode()))):
        (tmp_path / name).write_bytes(data)
        with open_list(str(tmp_path / name)) as source:
            assert len(list(BlockList().domains(source.lines()))) == 10
            assert source.done() == source.total == len(data)


def test_a_list_that_ends_in_the_middle_or_is_not_there_is_told(tmp_path: Path) -> None:
    packed = gzip.compress("".join(f"d{n}.example\n" for n in range(1000)).encode())
    (tmp_path / "cut.gz").write_bytes(packed[:-20])
    with open_list(str(tmp_path / "cut.gz")) as source, pytest.raises(Unreadable):
        list(source.lines())
    for name in ("none", "", "a\0b", str(tmp_path)):
        with pytest.raises(Unreadable):
            open_list(name if name == str(tmp_path) else str(tmp_path / name))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("more", [1, 2, MAX_LINE_CHARS, 3 * MAX_LINE_CHARS + 10])
@pytest.mark.parametrize("filling", ["x", " ", "#"])
def test_a_line_that_is_too_long_is_one_bad_line(filling: str, more: int, end: str) -> None:
    long = filling * (MAX_LINE_CHARS - 7 + more) + "up.test"  # as long as fits, with its end, for `more` = 0
    data = end.join(["a.test", long, "a..b", "b.test", long, "c.test"]).encode()
    found = BlockList()
    with open_list("", io.BytesIO(data)) as source:
        assert list(found.domains(source.lines())) == ["a.test", "b.test", "c.test"]
    assert found.lines == 6
    assert [(bad.line, bad.why) for bad in found.bad if bad.text != "a..b"] == [
        *((2, "the line is too long"), (5, "the line is too long"))
    ]


def test_a_line_as_long_as_fits_is_read() -> None:
    line = "a.test".ljust(MAX_LINE_CHARS - 1) + "\n"
    with open_list("", io.BytesIO(line.encode() * 2)) as source:
        assert list(BlockList().domains(source.lines())) == ["a.test", "a.test"]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    with open_list("", io.BytesIO(b"ok.test\n" + b"x" * 1_000_000)) as source:
        assert [len(line) for line in source.lines()] == [8, MAX_LINE_CHARS + 1]
