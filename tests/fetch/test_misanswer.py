"""206 without a range, 304 without a condition, and redirects that lead nowhere."""

from collections import Counter
from pathlib import Path

import pytest

from crawl.fetch.errors import Kind
from crawl.fetch.misanswer import misanswer
from tests.crawl.running import LOCAL, crawl
from tests.scripted import Answer, page, scripted


@pytest.mark.parametrize(
    ("status", "content_range", "conditional", "kind"),
    [
        (206, None, False, Kind.TRUNCATED),
        (206, "bytes 0-99/1000", False, Kind.TRUNCATED),
        (206, "bytes 900-999/1000", False, Kind.TRUNCATED),
        (206, "bytes 0-999/*", False, Kind.TRUNCATED),
        (206, "garbage", False, Kind.TRUNCATED),
        (206, "bytes 0-999/1000", False, None),
        (304, None, False, Kind.BAD_HTTP),
        (304, None, True, None),
        (200, None, False, None),
        (200, None, True, None),
    ],
)
def test_what_does_not_fit_the_request(status, content_range, conditional, kind) -> None:
    told = misanswer(status, {"content-range": content_range} if content_range else {}, conditional)
    assert (told and told[0]) == kind


def test_a_304_that_nobody_asked_for_and_redirects_without_a_target_are_where_it_ends(tmp_path: Path) -> None:
    pages = {
        "/": page("/304", "/300", "/302"),
        "/304": Answer(status=304),
        "/300": Answer("<a href=/choice>x</a>", 300),
        "/302": Answer("<a href=/choice>x</a>", 302),
    }
    with scripted(pages) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL, timeout=60)
    asked = Counter(site.paths())
    assert set(asked) == set(pages)
    assert asked["/300"] == asked["/302"] == 1
    assert {(error["kind"]) for error in ran.told["errors"]} == {"bad-http"}
