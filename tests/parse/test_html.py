"""A page's links, title, base and wishes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl.parse import html
from crawl.parse.charset import decode
from crawl.parse.html import Link, parse_html

URL = "http://h.test/dir/page.html"


def hrefs(text):
    return [link.href for link in parse_html(text, URL).links]


@pytest.mark.parametrize(
    ("text", "links"),
    [
        (b'<a\nhref="/x">x</a>', [Link("/x", "a", False)]),  # case 26
        (b'<A HREF="/x">x</A>', [Link("/x", "a", False)]),
        (b"<a href=/x>x", [Link("/x", "a", False)]),
        (b'<a href=" http://b.test/ \n">', [Link("http://b.test/", "a", False)]),  # case 25
        (b'<a href="/a b\tc?x=1&amp;y=%25">', [Link("/a b\tc?x=1&y=%25", "a", False)]),
        (b'<a href="/\xc3\xa9">', [Link("/é", "a", False)]),
        (b'<a href="/1" href="/2">', [Link("/1", "a", False)]),
        (b"<noscript><a href=/x>x</a></noscript>", [Link("/x", "a", False)]),
        (b"<head><noscript><img src=p><a href=/x></noscript></head>", [Link("/x", "a", False)]),
        (b"<map><area href=/x rel=nofollow></map>", [Link("/x", "area", True)]),
        (b"<svg><a href=/x></a></svg>", [Link("/x", "a", False)]),
        (b"<link rel=next href=/2>", [Link("/2", "link-next", False)]),
        (b"<link rel='foo PREV' href=/1>", [Link("/1", "link-next", False)]),
        (b"<link rel=canonical href=/c>", [Link("/c", "link-canonical", False)]),
        (b"<link rel=alternate hreflang=de href=/de>", [Link("/de", "link-alternate", False)]),
        (b"<link rel='alternate stylesheet' href=/s.css>", []),
        (b"<link rel=stylesheet href=/s.css><link rel=icon href=/i><link href=/n><link rel=next>", []),
        (b"<iframe src=/i></iframe>", [Link("/i", "iframe", False)]),
        (b"<frameset><frame src=/f></frameset>", [Link("/f", "frame", False)]),
        (b"<a href=/x rel='noopener NoFollow'>", [Link("/x", "a", True)]),
        (b"<a href=/x rel=ugc>", [Link("/x", "a", True)]),
        (b"<a href=/x rel=sponsored>", [Link("/x", "a", True)]),
        (b"<a href=/x rel=nofollowing>", [Link("/x", "a", False)]),
        (b"<a rel=nofollow>", []),
    ],
)
def test_links_are_found_in_odd_markup(text, links):
    assert parse_html(decode(text, None)[0], URL).links == links


@pytest.mark.parametrize(
    "text",
    [
        "<a href>",
        "<a href=''>",
        "<a href=' \n\x1f'>",
        "<a href='#top'>",
        "<a href=' #'>",
        "<a href='javascript:void(0)'>",
        "<a href=' JavaScript:x'>",
        "<a href='mailto:a@b.test'>",
        "<a href='TEL:+1'>",
        "<iframe src='data:text/html,x'>",
        "<a name=x>",
        "<!-- <a href=/x> -->",
        "<script>document.write('<a href=/x>')</script>",
        "<style><a href=/x></style>",
        "<textarea><a href=/x></textarea>",
        "<title><a href=/x></title>",
        "<template><a href=/x></a></template>",
        "<p title='<a href=/x>'>",
        "&lt;a href=/x&gt;",
    ],
)
def test_what_leads_to_no_page_is_no_link(text):
    assert hrefs(text) == []


def test_links_come_by_kind_and_in_page_order():
    text = (
        "<iframe src=/5></iframe><a href=/3><link rel=next href=/2><a href=/4><meta http-equiv=refresh content='0;/1'>"
    )
    assert hrefs(text) == ["/1", "/2", "/3", "/4", "/5"]


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("0;url=/x", "/x"),
        ("0; URL=\n /x \n", "/x"),  # case 34
        ("0;URL='/x'", "/x"),
        ('0;URL="/x" and more', "/x"),
        ("0;URL='/x", "/x"),
        ("5 ; Url = /x", "/x"),
        ("1.5,/x", "/x"),
        (".5;/x", "/x"),
        ("0;/x", "/x"),
        ("0 /x", "/x"),
        ("0;'/x'", "/x"),
        ("0;url", "url"),
        ("0;url=other/page?a=b;c", "other/page?a=b;c"),
        ("0", None),
        ("0;", None),
        ("0;url=", None),
        ("0;url=#top", None),
        ("0;url=javascript:x", None),
        ("url=/x", None),
        ("0x;url=/x", None),
    ],
)
def test_a_meta_refresh_names_its_target(content, target):
    text = f"<META HTTP-EQUIV=' Refresh' CONTENT=\"{content.replace(chr(34), '&quot;')}\">"
    assert hrefs(text) == ([] if target is None else [target])


def test_a_relative_refresh_is_given_raw_beside_the_base_that_it_is_resolved_against():
    """Case 33."""
    parsed = parse_html("<base href='http://c.test/sub/'><meta http-equiv=refresh content='0;url=next.html'>", URL)
    assert parsed.base == "http://c.test/sub/"
    assert parsed.links == [Link("next.html", "refresh", False)]


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("", URL),
        ("<base href='http://c.test/sub/'>", "http://c.test/sub/"),
        ("<base href='/sub/'>", "http://h.test/sub/"),
        ("<base href=' ../other/\n'>", "http://h.test/other/"),
        ("<base href='//c.test/'>", "http://c.test/"),
        ("<base target=_top><base href='/1/'><base href='/2/'>", "http://h.test/1/"),
        ("<base href>", URL),
        ("<base href=''>", URL),
        ("<base href='data:text/html,'><base href='/2/'>", URL),
        ("<base href='javascript:x'>", URL),
        ("<base href='http://[bad/'>", URL),
        ("<p><base href='/late/'>", "http://h.test/late/"),
        ("<!-- <base href='/no/'> -->", URL),
    ],
)
def test_the_base_is_the_first_one_that_can_hold_pages(text, base):
    assert parse_html(text, URL).base == base


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("<title> a \n\t b&amp;c </title>", "a b&c"),
        ("<TITLE>x</TITLE><title>y</title>", "x"),
        ("<title></title>", None),
        ("<title> \n </title>", None),
        ("<h1>x</h1>", None),
        ("<title>" + "x" * 500, "x" * 300),
        ("<title>" + " " * 100 + "word " * 100, ("word " * 60).strip()),
        ("<svg><title>icon</title></svg>", None),
        ("<head></head><svg><g><title>icon</title></g></svg><title>late</title>", "late"),
        ("<title><b>x</b></title>", "<b>x</b>"),
        ("<title>a\0b</title>", "a\ufffdb"),
    ],
)
def test_the_title_is_one_clean_line(text, title):
    assert parse_html(text, URL).title == title


def test_the_first_canonical_link_is_the_canonical_reference():
    text = "<link rel=next href=/n><link rel=Canonical href=' /c?a=1&amp;b=2 '><link rel=canonical href=/d>"
    assert parse_html(text, URL).canonical == "/c?a=1&b=2"
    assert parse_html("<link rel=canonical href=''>", URL).canonical is None


@pytest.mark.parametrize(
    ("text", "noindex", "nofollow"),
    [
        ("<meta name=robots content=noindex>", True, False),
        ("<META NAME=' Robots ' CONTENT='NOINDEX, NoFollow'>", True, True),
        ("<meta name=robots content='max-snippet:-1,nofollow'>", False, True),
        ("<meta name=robots content='noindex nofollow'>", True, True),
        ("<meta name=robots content=none>", True, True),
        ("<meta name=robots content='index, follow, all'>", False, False),
        ("<meta name=trawl content=noindex>", True, False),
        ("<meta name=Trawl content=noindex><meta name=robots content=nofollow>", True, True),
        ("<meta name=googlebot content=none>", False, False),
        ("<meta name=robots>", False, False),
        ("<meta name=robots content=nonexistent>", False, False),
        ("<body><p><meta name=robots content=noindex>", True, False),
    ],
)
def test_meta_robots_is_read(text, noindex, nofollow):
    parsed = parse_html(text, URL, "trawl")
    assert (parsed.noindex, parsed.nofollow) == (noindex, nofollow)


@pytest.mark.parametrize(
    ("count", "taken", "truncated"), [(html.MAX_LINKS, html.MAX_LINKS, False), (100_000, html.MAX_LINKS, True)]
)
def test_a_page_gives_a_bounded_number_of_links(count, taken, truncated):
    parsed = parse_html("".join(f"<p><a href=/{n}>x</a>" for n in range(count)), URL)
    assert parsed.links == [Link(f"/{n}", "a", False) for n in range(taken)]
    assert parsed.truncated is truncated


@pytest.mark.parametrize(
    "text",
    [
        "<div>" * 100_000 + "<a href=/x>",
        "<div>" * 100_000 + "<a href=/x></a>" + "</div>" * 100_000,
        "<ul><li>" * 100_000 + "<a href=/x>",
        "<table><tr><td>" * 100_000 + "<a href=/x>",
        "<b>" * 100_000 + "<a href=/x>",
        "".join(f"<b id={n}>" for n in range(3000)) + "<p>" * 3000 + "<a href=/x>",
        "<title>t</title><svg>" * 100_000 + "<a href=/x>",
        "<x" + " word" * 100_000 + "><a href=/x>",
        "<div " + " ".join(f"a{n}=1" for n in range(100_000)) + "><a href=/x>",
        "<img src='data:image/png;base64," + "A" * 100_000 + "'><a href=/x>",
        f"<a data-long='{'x' * 50_000}' href=/x>",
        "<script>" + "x" * 100_000 + "</script><a href=/x>",
    ],
)
def test_a_page_made_to_choke_parsers_still_gives_its_link(text):
    assert hrefs(text) == ["/x"]


def test_a_flattened_page_keeps_script_text_and_comments_shut():
    text = "<div>" * 20_000 + "<script>'<a href=/no>'</script><!-- <a href=/no> --><base href=/b/><a href=/x>"
    assert hrefs(text) == ["/x"]
    assert parse_html(text, URL).base == "http://h.test/b/"


def test_nuls_and_lone_surrogates_do_no_harm():
    assert hrefs("\0<a\0 b='\ud800' href='/a\0b'>\0</a><a href=/x>") == ["/x"]
    assert hrefs("<a href='/\udcff'>") == ["/"]


PIECES = st.sampled_from(
    [
        "<a href=",
        "<A\nHREF='",
        "<base href='",
        "<base href=//[",
        "<link rel=canonical href=",
        "<meta http-equiv=refresh content='0;url=",
        "<meta name=robots content=",
        "<title>",
        "<svg>",
        "<template>",
        "</template>",
        "<!--",
        "<script>",
        "</script>",
        "<table>",
        "<select>",
        "<frameset>",
        "<iframe src=",
        *">'\"#\0\ud800",
        "&#0;",
        "&#x110000;",
        "<![CDATA[",
    ]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=5))).map("".join), st.text(max_size=20))
def test_no_text_raises(text, url):
    parsed = parse_html(text, url)
    assert all(link.href and link.href[0] != "#" for link in parsed.links)


@given(st.binary())
def test_no_bytes_raise(body):
    parse_html(decode(body, None)[0], URL)


@given(st.lists(st.sampled_from(["<div>", "</div>", "<a href=/x>", "<a href=/y>", "</a>", "<b id=1>", "<li>"])))
def test_a_flattened_page_has_the_links_of_the_whole(tags):
    """As a set: a parser may repeat a link that nobody closed in the next block."""
    text = "".join(tags)
    assert set(hrefs("<div></div>" * html._MAX_TREE_TAGS + text)) == set(hrefs(text))
