"""Relative references resolve as RFC 3986 section 5.4 lists them, as far as the URL standard agrees."""

import pytest

from frontier.urls import InvalidURL, canonicalise

RFC_BASE = "http://a/b/c/d;p?q"


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        # 5.4.1, without the fragments, which are never requested
        ("g", "http://a/b/c/g"),
        ("./g", "http://a/b/c/g"),
        ("g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"),
        ("//g", "http://g/"),
        ("?y", "http://a/b/c/d;p?y"),
        ("g?y", "http://a/b/c/g?y"),
        ("#s", "http://a/b/c/d;p?q"),
        ("g#s", "http://a/b/c/g"),
        ("g?y#s", "http://a/b/c/g?y"),
        (";x", "http://a/b/c/;x"),
        ("g;x", "http://a/b/c/g;x"),
        ("g;x?y#s", "http://a/b/c/g;x?y"),
        ("", "http://a/b/c/d;p?q"),
        (".", "http://a/b/c/"),
        ("./", "http://a/b/c/"),
        ("..", "http://a/b/"),
        ("../", "http://a/b/"),
        ("../g", "http://a/b/g"),
        ("../..", "http://a/"),
        ("../../", "http://a/"),
        ("../../g", "http://a/g"),
        # 5.4.2
        ("../../../g", "http://a/g"),
        ("../../../../g", "http://a/g"),
        ("/./g", "http://a/g"),
        ("/../g", "http://a/g"),
        ("g.", "http://a/b/c/g."),
        (".g", "http://a/b/c/.g"),
        ("g..", "http://a/b/c/g.."),
        ("..g", "http://a/b/c/..g"),
        ("./../g", "http://a/b/g"),
        ("./g/.", "http://a/b/c/g/"),
        ("g/./h", "http://a/b/c/g/h"),
        ("g/../h", "http://a/b/c/h"),
        ("g;x=1/./y", "http://a/b/c/g;x=1/y"),
        ("g;x=1/../y", "http://a/b/c/y"),
        ("g?y/./x", "http://a/b/c/g?y/./x"),
        ("g?y/../x", "http://a/b/c/g?y/../x"),
        ("g#s/./x", "http://a/b/c/g"),
        ("g#s/../x", "http://a/b/c/g"),
        ("http:g", "http://a/b/c/g"),
        # the URL standard beyond the RFC
        (" g\n", "http://a/b/c/g"),
        ("\\g", "http://a/g"),
        ("https:g", "https://g/"),
        ("//g:80/x", "http://g/x"),
        ("?", "http://a/b/c/d;p?"),
    ],
)
def test_a_reference_resolves_against_the_base(reference, target):
    assert canonicalise(reference, RFC_BASE).fetch == target


def test_a_reference_with_another_scheme_is_refused():
    with pytest.raises(InvalidURL, match="scheme 'g' is not http or https"):
        canonicalise("g:h", RFC_BASE)


def test_a_space_before_an_absolute_link_does_not_make_it_a_path():
    # Case 25: taken for a path, it would grow by itself on every page.
    assert canonicalise(" http://b.test/", "http://a.test/x/").canonical == "http://b.test/"


def test_the_user_information_of_the_base_is_not_passed_on():
    assert canonicalise("x", "http://user:pass@a.test/").fetch == "http://a.test/x"


def test_a_reference_takes_the_scheme_of_its_base():
    assert canonicalise("//b.test/x", "https://a.test/").fetch == "https://b.test/x"
