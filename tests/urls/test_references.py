"""A fetch URL is stored short in the queue of its host, and comes back exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.urls import InvalidURL, Rules, canonicalise, from_reference, to_reference

from .strategies import links

TEXT = st.text(st.characters(exclude_characters="\n"))


@pytest.mark.parametrize(
    ("fetch", "host", "reference"),
    [
        ("https://h1.test/path?q", "h1.test", "/path?q"),
        ("http://h1.test/path?q", "h1.test", "http:/path?q"),
        ("https://h1.test/", "h1.test", "/"),
        ("http://h1.test/", "h1.test", "http:/"),
        ("https://h1.test//x", "h1.test", "//x"),
        ("http://h1.test//x", "h1.test", "http://h1.test//x"),
        ("http://h1.test:8080/x", "h1.test:8080", "http:/x"),
        ("http://h1.test:8080/x", "h1.test", "http://h1.test:8080/x"),
        ("https://[::1]:8080/x", "[::1]:8080", "/x"),
        ("https://www.example.com/x", "example.com", "https://www.example.com/x"),
        ("http://h1.test./x", "h1.test", "http://h1.test./x"),
        ("https://h1.test.evil/x", "h1.test", "https://h1.test.evil/x"),
    ],
)
def test_a_reference_leaves_out_what_the_queue_knows(fetch, host, reference):
    assert to_reference(fetch, host) == reference
    assert from_reference(reference, host) == fetch


@given(links(), st.booleans())
def test_every_fetch_url_comes_back_exactly(link, www):
    try:
        url = canonicalise(link, rules=Rules(www=www))
    except InvalidURL:
        return
    reference = to_reference(url.fetch, url.host)
    assert from_reference(reference, url.host) == url.fetch
    assert "\n" not in reference


@given(st.sampled_from(["http://", "https://"]), TEXT, TEXT, TEXT, st.booleans())
def test_any_text_after_the_scheme_comes_back_exactly(scheme, netloc, host, rest, own):
    fetch = scheme + (host if own else netloc) + rest
    if "\n" not in fetch:
        assert from_reference(to_reference(fetch, host), host) == fetch


@pytest.mark.parametrize("fetch", ["/x", "http:/x", "ftp://h1.test/", "", "https://h1.test/a\nb"])
def test_what_could_not_come_back_is_refused(fetch):
    with pytest.raises(ValueError, match="stored as a reference"):
        to_reference(fetch, "h1.test")
