"""Is a body HTML? By its type, else by its first bytes."""

import pytest

from crawl.parse.html import is_html


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/html", b"", True),
        ("Text/HTML; charset=utf-8", b"\x89PNG", True),
        ("text/html,text/html", b"", True),
        ("application/xhtml+xml", b"", True),
        ("text/plain", b"<!doctype html>", False),
        ("application/pdf", b"<html>", False),
        ("application/octet-stream", b"<html>", False),
        ("text/xml", b"<html>", False),
        (None, b"<!DOCTYPE HTML><p>", True),
        ("", b"\xef\xbb\xbf\r\n <html>", True),
        ("html", b"<HEAD>", True),
        ("unknown/unknown", b"<body class=x>", True),
        ("*/*", b"<!-- x -->", True),
        (None, b"<a href=/x>", True),
        (None, b"<br/>", True),
        (None, b'<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml">', True),
        (None, b'<?xml version="1.0"?>\n<rss>', False),
        (None, b"<abbr>", False),
        (None, b"<urlset>", False),
        (None, b"html", False),
        (None, b"%PDF-1.4", False),
        (None, b"", False),
    ],
)
def test_html_is_known_by_its_type_or_its_first_tag(content_type, body, expected):
    assert is_html(content_type, body) is expected
