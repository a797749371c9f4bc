"""A page that is valid UTF-8 goes to the parser as it came, and is read as its text would be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl.parse.charset import for_parser
from crawl.parse.html import parse_html

URL = "http://a.test/"
PIECES = [
    *(
        '<a href="/ü">',
        "<a href=/b rel=nofollow>",
        "<base href=/c/>",
        "<title>t é</title>",
        "</a>",
        "<b>",
        "<p>",
        "text",
    ),
    *(
        '<meta name=robots content="noindex">',
        "<iframe src=d>",
        "<!--",
        "-->",
        "<x " + "y " * 3000,
        "\ufeff",
        "😀",
        "\0",
    ),
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=30).map("".join))
def test_bytes_are_read_as_their_text_is(page: str) -> None:
    try:
        body = page.encode()
    except UnicodeEncodeError:  # a lone surrogate is in no page
        return
    assert parse_html(body, URL) == parse_html(page, URL)


def test_a_page_of_many_tags_is_tamed_as_bytes_too() -> None:
    page = "<div>" * 30_000 + "<a href=/deep>x</a>"
    assert [link.href for link in parse_html(page.encode(), URL).links] == ["/deep"]


@pytest.mark.parametrize(
    ("body", "content_type", "given_on"),
    [
        ("é".encode(), "text/html; charset=utf-8", "é".encode()),
        (b"plain", "text/html", b"plain"),
        (b"\xef\xbb\xbf" + "é".encode(), "text/html; charset=cp1251", "é".encode()),
        (b"\xe9", "text/html", "é"),
        (b"a\xff", "text/html; charset=utf-8", "a\ufffd"),
        ("я".encode("cp1251"), "text/html; charset=windows-1251", "я"),
        ("é".encode("utf-16"), "text/html", "é"),
    ],
)
def test_only_valid_utf_8_is_given_on_as_bytes(body: bytes, content_type: str, given_on: str | bytes) -> None:
    assert for_parser(body, content_type)[0] == given_on
