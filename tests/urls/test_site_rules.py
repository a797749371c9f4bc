"""Site rules take differences that do not matter out of the identity; each is off until asked for."""

import pytest

from frontier.urls import NO_RULES, Rules, canonicalise

SESSIONS = Rules(session_ids=True)
TRACKING = Rules(tracking=True)
SLASH = Rules(trailing_slash=True)
INDEX = Rules(index_files=True)
WWW = Rules(www=True)
EVERY = Rules(session_ids=True, tracking=True, trailing_slash=True, index_files=True, www=True)


def identity(target, rules):
    return canonicalise("http://h1.test" + target, rules=rules).canonical.removeprefix("http://h1.test")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/blah;jsessionid=NEW", "/blah"),  # case 28
        ("/blah;JSESSIONID=0AF3.node1?a=1", "/blah?a=1"),
        ("/a;jsessionid=1/b;v=2;jsessionid=3;w=4", "/a/b;v=2;w=4"),
        ("/;jsessionid=1", "/"),
        ("/app/(S(lit3py55t21z5v55vlm25s55))/page.aspx", "/app/page.aspx"),
        ("/(A(x1)S(y2)F(z3))/page.aspx", "/page.aspx"),
        ("/(lit3py55t21z5v55vlm25s55)/page.aspx", "/page.aspx"),
        ("/(S(x))", "/"),
        ("/(notes)/page", "/(notes)/page"),
        ("/view?PHPSESSID=0a1b2c3d&id=2", "/view?id=2"),
        ("/view?id=2&sid=77aa", "/view?id=2"),
        ("/view?jsessionid=F00D", "/view"),
        ("/view?CFID=1&CFTOKEN=2&id=3", "/view?id=3"),
        ("/view?ASPSESSIONIDQQBRCTAT=X&id=3", "/view?id=3"),
        ("/view?%73id=1&id=3", "/view?id=3"),
        ("/view?side=1&resid=2&s=3", "/view?resid=2&s=3&side=1"),
        ("/..;jsessionid=1/x", "/..;jsessionid=1/x"),
        ("/a/.;jsessionid=1/x", "/a/.;jsessionid=1/x"),
    ],
)
def test_session_ids_do_not_matter_under_their_rule(target, expected):
    assert identity(target, SESSIONS) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/?utm_source=news&utm_medium=mail", "/"),
        ("/a?utm_campaign=spring&id=1", "/a?id=1"),
        ("/a?UTM_Campaign=spring", "/a"),
        ("/a?id=1&fbclid=AbC123&gclid=zz9&msclkid=1", "/a?id=1"),
        ("/a?mc_cid=1&mc_eid=2&_ga=3&yclid=4&id=5", "/a?id=5"),
        ("/a?utm%5Fsource=x", "/a"),
        ("/a?utm=1&my_utm_source=2&ga=3", "/a?ga=3&my_utm_source=2&utm=1"),
        ("/utm_source=x", "/utm_source=x"),
    ],
)
def test_tracking_parameters_do_not_matter_under_their_rule(target, expected):
    assert identity(target, TRACKING) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [("/a/", "/a"), ("/a", "/a"), ("/", "/"), ("/a//", "/a"), ("//", "/"), ("/a/?b/", "/a?b/")],
)
def test_the_final_slash_does_not_matter_under_its_rule(target, expected):
    assert identity(target, SLASH) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/index.html", "/"),
        ("/a/index.php", "/a/"),
        ("/a/INDEX.HTM?b=1", "/a/?b=1"),
        ("/a/Default.aspx", "/a/"),
        ("/a/default.asp", "/a/"),
        ("/index.php/a", "/index.php/a"),
        ("/a/myindex.html", "/a/myindex.html"),
        ("/a/index.html.bak", "/a/index.html.bak"),
        ("/a/index", "/a/index"),
    ],
)
def test_index_files_are_their_directory_under_their_rule(target, expected):
    assert identity(target, INDEX) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("www.example.com", "example.com"),
        ("www.example.co.uk:8080", "example.co.uk:8080"),
        ("www.www.example.com", "example.com"),
        ("www.shop.example.com", "shop.example.com"),
        ("www.bücher.de", "xn--bcher-kva.de"),
        ("www.com", "www.com"),
        ("www.co.uk", "www.co.uk"),
        ("www.github.io", "www.github.io"),
        ("www.localhost", "www.localhost"),
        ("www.www.com", "www.com"),
        ("wwww.example.com", "wwww.example.com"),
        ("example.com", "example.com"),
        ("[::1]", "[::1]"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_www_does_not_matter_before_a_domain_under_its_rule(host, expected):
    url = canonicalise(f"https://{host}/", rules=WWW)
    assert (url.canonical, url.host) == (f"https://{expected}/", expected)


def test_the_www_rule_leaves_www_in_the_fetch_url():
    assert canonicalise("https://www.example.com/", rules=WWW).fetch == "https://www.example.com/"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/a/index.html", "/a"),
        ("/index.html/index.html", "/"),
        ("/a/index.html;jsessionid=1?sid=2&utm_source=3", "/a"),
        ("/(S(x))/index.html/", "/"),
    ],
)
def test_rules_work_together(target, expected):
    assert identity(target, EVERY) == expected


def test_every_rule_is_off_by_default():
    assert Rules() == NO_RULES
    assert set(NO_RULES.to_dict().values()) == {False}
    link = "http://www.example.com/a/index.html;jsessionid=1?sid=2&utm_source=3"
    assert canonicalise(link).canonical == link
    assert canonicalise(link, rules=Rules()) == canonicalise(link)


def test_rules_go_through_a_dict_and_back():
    assert Rules.from_dict(EVERY.to_dict()) == EVERY
    assert Rules.from_dict({"www": True}) == WWW
    assert Rules.from_dict({"www": True}).to_dict() == {
        "session_ids": False,
        "tracking": False,
        "trailing_slash": False,
        "index_files": False,
        "www": True,
    }
    assert Rules.from_dict({}) is NO_RULES
    assert Rules.from_dict(NO_RULES.to_dict()) is NO_RULES


def test_an_unknown_rule_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'cookies'.*session_ids, tracking, trailing_slash, index_files, www"):
        Rules.from_dict({"cookies": True})


def test_a_rule_that_is_no_boolean_is_refused():
    with pytest.raises(ValueError, match="'www' must be true or false, not 'false'"):
        Rules.from_dict({"www": "false"})
