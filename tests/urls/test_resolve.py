"""The references of a page give the URLs that each of them gives by itself."""

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from frontier.urls import NO_RULES, URL, InvalidURL, canonicalise, resolve
from frontier.urls.canonical import MAX_URL_CHARS

from .strategies import RULES, links
from .test_relative_references import RFC_BASE

REFERENCES = [
    *("g", "./g", "/g", "//g", "///g", "?y", "g?y", "#s", "g#s", "", ".", "../..", "../../../g", "http:g", "https:g"),
    *(" g\n", "\\g", "/\\g", "/\t/g", "/\n\\g", "g #s", "/g #s", "http://g/ #s", "g:h", "a/g:h", "?", "http:?y", "~g"),
    *(
        "HTTP://g/",
        "http://",
        "http:///g",
        "http:/g",
        "%2e%2e/g",
        ".\t./g",
        "a\t/b",
        "g\\..\\h",
        ";x",
        "é",
        "@",
        "g?a#b?c",
    ),
]
BASES = [
    RFC_BASE,
    "https://a.test",
    "http://a.test:8080/x/?q=/y/z",
    "http://u:p@a.test/b/../c/d#/e/f",
    "ftp://a/",
    "no",
]


def alone(reference: str, base: str, rules=NO_RULES) -> list[URL]:
    try:
        return [canonicalise(reference, base, rules)]
    except InvalidURL:
        return []


@pytest.mark.parametrize("base", BASES)
def test_each_reference_gives_what_it_gives_alone(base):
    expected = [url for reference in REFERENCES for url in alone(reference, base)]
    assert list(resolve(REFERENCES, base, NO_RULES)) == expected
    assert list(resolve(REFERENCES, base, NO_RULES)) == expected, "also when they are remembered"


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@settings(max_examples=3000)
@given(st.one_of(links(), TEXT, st.sampled_from(REFERENCES)), st.one_of(links(), st.sampled_from(BASES)), RULES)
@example("http:?y", RFC_BASE, NO_RULES)
def test_any_reference_and_base(reference, base, rules):
    assume("\0" not in reference)  # a parser makes U+FFFD of it; in a fragment it is not looked for here
    assert list(resolve([reference], base, rules)) == alone(reference, base, rules)


def test_a_reference_that_is_too_long_only_when_joined():
    base = f"http://a.test/{'b' * 5000}/"
    fits, too_long = "../" + "c" * 5000, "c" * 5000
    assert [url.fetch for url in resolve([fits, too_long], base, NO_RULES)] == [f"http://a.test/{'c' * 5000}"]
    assert not list(resolve(["/" + "c" * MAX_URL_CHARS], base, NO_RULES))
