"""Which ETag and Last-Modified are sent back."""

import pytest

from crawl.fetch.validators import MAX_ETAG_CHARS, etag, last_modified

LONGEST = f'"{"a" * (MAX_ETAG_CHARS - 2)}"'


@pytest.mark.parametrize("value", ['"a"', '""', 'W/"a"', '"a,b"', '"it\'s!"', '"5f3-17c4+gzip"', 'W/"\'`{}~"', LONGEST])
def test_an_entity_tag_is_kept_as_it_came(value: str) -> None:
    assert etag(value) == value


@pytest.mark.parametrize(
    "value",
    [
        *("", "a", '"', '"a', 'a"', "'a'", '"a" ', ' "a"', '"a b"', '"a"b"', '"a", "b"', "*"),
        *('w/"a"', "W/a", 'W/ "a"', '"a\r\nX: y"', '"a\n', '"a"\n', '"\x00"', '"\t"', '"\x7f"', '"ä"'),
        LONGEST + '"',
        f'"{"a" * (MAX_ETAG_CHARS - 1)}"',
    ],
)
def test_what_is_no_entity_tag_is_left_out(value: str) -> None:
    assert etag(value) == ""


@pytest.mark.parametrize(
    "value",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Wednesday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun Nov 16 08:49:37 1994",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ],
)
def test_a_date_of_any_form_that_http_knows_is_kept_as_it_came(value: str) -> None:
    assert last_modified(value) == value


@pytest.mark.parametrize(
    "value",
    [
        *("", "0", "-1", "yesterday", "1700000000", "2026-11-30T01:02:03Z", "06 Nov 1994 08:49:37 GMT"),
        "Sun, 06 Nov 1994 08:49:37 +0100",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "So, 06 Nov 1994 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 25:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT\n",
        "Sun, 06 Nov 1994 08:49:37 GMT\r\nX: y",
        "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, ٠٦ Nov 1994 08:49:37 GMT",
    ],
)
def test_what_is_no_http_date_is_left_out(value: str) -> None:
    assert last_modified(value) == ""
