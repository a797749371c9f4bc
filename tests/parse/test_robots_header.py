"""X-Robots-Tag values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl.parse.html import robots_header


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (False, False)),
        ([""], (False, False)),
        (["noindex"], (True, False)),
        (["NOFOLLOW"], (False, True)),
        (["none"], (True, True)),
        (["noindex, nofollow"], (True, True)),
        (["noindex", "nofollow"], (True, True)),
        (["all"], (False, False)),
        (["trawl: noindex"], (True, False)),
        (["Trawl/1.0: noindex"], (True, False)),
        (["*: noindex"], (True, False)),
        (["googlebot: noindex"], (False, False)),
        (["trawlbot: noindex"], (False, False)),
        (["googlebot: noindex, nofollow"], (False, False)),
        (["googlebot: noindex, trawl: nofollow"], (False, True)),
        (["trawl: nofollow, googlebot: noindex"], (False, True)),
        (["googlebot: noindex", "nofollow"], (False, True)),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST"], (False, False)),
        (["unavailable_after: Wednesday, 03-Aug-25 15:00:00 UTC, noindex"], (True, False)),
        (["max-snippet: -1, max-image-preview:large, nofollow"], (False, True)),
        ([":noindex", ",,:,"], (False, False)),
    ],
)
def test_directives_for_all_and_for_us_are_obeyed(values, expected):
    assert robots_header(values, "trawl") == expected


@given(st.lists(st.text()), st.text())
def test_no_value_raises(values, agent):
    robots_header(values, agent)
