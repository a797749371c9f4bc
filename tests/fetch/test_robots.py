"""robots.txt, RFC 9309: which group speaks to us, which rule decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protego import Protego

from crawl.fetch.robots import ALLOW_ALL, DENY_ALL, MAX_ROBOTS_BYTES, Robots, Verdict

SITE = "http://h.test"


def allowed(body, path, agent="trawl"):
    robots = Robots.parse(body, agent)
    answer = robots.allowed(SITE + path)
    assert answer == robots.verdict(SITE + path).allowed
    return answer


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbfUser-agent: *\nDisallow: /",  # case 1
        b"User-agent: *\rDisallow: /",
        b"User-agent: *\r\nDisallow: /\r\n",
        b"\r\n \t\nUSER-AGENT :\t* \n\n\n  disallow\t:/   # all",
        b"User-agent: *\nDisallow: /pri\xe9\n# caf\xe9 \xff\xfe\nDisallow: /\n",  # case 9
        b"User-agent: *\0\nDis\0allow: /\n",
        "User-agent: *\nDisallow: /\n".encode("utf-16"),
        b"User-agent: *\nDisallow /\n",
        b"useragent: *\nDissallow: /\n",
        b"User-agent: *\nDisallow: *\n",
        b"User-agent: * \nSitemap: http://h.test/s.xml\nDisallow: /\n",
    ],
)
def test_everything_is_closed_however_the_file_is_written(body):
    assert not allowed(body, "/")
    assert not allowed(body, "/a?b")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0",
        b"User-agent: *\nDisallow:\n",
        b"User-agent: *\nDisallow: # nothing\n",
        b"Disallow: /\n",  # a rule before any group
        b"User-agent:\nDisallow: /\n",
        b"User-agent: *\nDisallow: http://other.test/\n",  # case 4
        b"User-agent: *\nDisallow: other\nDisallow: $\n",
        b"<!DOCTYPE html><pre>\nUser-agent: *\nDisallow: /\n</pre>",
        b"\n <html>\nUser-agent: *\nDisallow: /\n",
    ],
)
def test_a_file_that_forbids_nothing_of_ours_opens_everything(body):
    assert allowed(body, "/")
    assert allowed(body, "/http://other.test/")


@pytest.mark.parametrize(
    ("agents", "ours", "is_ours"),
    [
        (["bot"], "trawlbot", False),  # case 10
        (["trawlbot"], "trawl", False),
        (["trawl"], "trawl", True),
        (["TRAWL"], "Trawl", True),
        (["trawl/1.0"], "trawl", True),
        (["trawl"], "trawl/2.0 (+http://who.test)", True),
        (["trawl 1.0 beta"], "trawl", True),
        (["trawl-news"], "trawl", False),
        (["*bot"], "trawlbot", False),
        (["*"], "trawl", True),
        (["*", "other"], "trawl", True),  # case 5, both orders
        (["other", "*"], "trawl", True),
        (["trawl", "other"], "trawl", True),
        (["other", "trawl"], "trawl", True),
    ],
)
def test_a_group_is_ours_by_its_exact_product_token(agents, ours, is_ours):
    body = "".join(f"User-agent: {agent}\n" for agent in agents) + "Disallow: /x\n"
    assert allowed(body.encode(), "/x", ours) is not is_ours


def test_groups_of_one_token_are_merged_and_the_star_is_left_to_the_unnamed():
    body = (
        b"User-agent: trawl\nDisallow: /a\n\nUser-agent: *\nDisallow: /star\n\n"
        b"User-agent: x\nDisallow: /x\n\nUser-agent: Trawl\nDisallow: /b\n\nUser-agent: *\nDisallow: /sky\n"
    )
    paths = ["/a", "/b", "/star", "/sky", "/x"]
    assert [p for p in paths if not allowed(body, p)] == ["/a", "/b"]
    assert [p for p in paths if not allowed(body, p, "other")] == ["/star", "/sky"]


def test_a_group_that_names_us_without_a_rule_opens_everything():
    assert allowed(b"User-agent: *\nDisallow: /\n\nUser-agent: trawl\n", "/a")


def test_a_sitemap_line_does_not_end_a_run_of_agents_but_a_crawl_delay_does():
    assert not allowed(b"User-agent: trawl\nSitemap: /s\nFoo: bar\nUser-agent: x\nDisallow: /\n", "/")
    body = b"User-agent: *\nCrawl-delay: 5\n\nUser-agent: bad\nDisallow: /\n"
    assert allowed(body, "/")
    assert Robots.parse(body, "trawl").crawl_delay == 5


@pytest.mark.parametrize(
    ("rules", "path", "expected"),
    [
        # the longest wins, a tie goes to allow
        ("Disallow: /private/\nAllow: /private/ok/", "/private/ok/1", True),
        ("Allow: /private/ok/\nDisallow: /private/", "/private/no", False),
        ("Disallow: /a\nAllow: /a", "/a", True),
        ("Allow: /\nDisallow: /a", "/a", False),
        ("Allow: /page\nDisallow: /*?*", "/page?x=1", True),
        ("Allow: /p\nDisallow: /*.htm", "/page.htm", False),
        # only what the rule covers
        ("Disallow: /fish", "/fish.html", False),
        ("Disallow: /fish", "/Fish", True),
        ("Disallow: /fish/", "/fish", True),
        ("Disallow: /fish/", "/fish/?id=1", False),
        # wildcards
        ("Disallow: /*.php", "/a/b.php?x", False),
        ("Disallow: /*.php$", "/a/b.php", False),
        ("Disallow: /*.php$", "/a/b.php?x", True),
        ("Disallow: /*.php$", "/a/b.php$", True),
        ("Disallow: /fish*.php", "/fishheads/x.php", False),
        ("Disallow: /fish*.php", "/Fish.PHP", True),
        ("Disallow: /a**b***c", "/axbyc", False),
        ("Disallow: /a*aa$", "/aa", True),
        ("Disallow: /*$", "/anything", False),
        ("Disallow: /$", "/", False),
        ("Disallow: /$", "/a", True),
        ("Disallow: /\nAllow: /a$", "/a$b", False),
        ("Disallow: /\nAllow: /index.html", "/", False),
        ("Disallow: /cost$x", "/cost$x/1", False),
        # a query, and what only looks like one (case 6)
        ("Disallow: /*?*", "/a", True),
        ("Disallow: /*?*", "/a?", False),
        ("Disallow: /*?*", "/a?b=c", False),
        ("Disallow: /*?*", "/a%3Fb", True),
        ("Disallow: /*?*", "/a#b?c", True),
        ("Disallow: /*sort=", "/view?a=b&sort=up", False),
        # spellings (RFC 9309 section 2.2.2)
        ("Disallow: /foo/bar?baz=http://foo.bar", "/foo/bar?baz=http%3A%2F%2Ffoo.bar", False),
        ("Disallow: /foo/bar?baz=http%3a%2f%2ffoo.bar", "/foo/bar?baz=http://foo.bar", False),
        ("Disallow: /foo/bar/ツ", "/foo/bar/%E3%83%84", False),
        ("Disallow: /foo/bar/%e3%83%84", "/foo/bar/ツ", False),
        ("Disallow: /foo/bar/%62%61%7A", "/foo/bar/baz", False),
        ("Disallow: /~joe", "/%7Ejoe/x", False),
        ("Disallow: /a%2fb", "/a%2Fb", False),
        ("Disallow: /a%2Fb", "/a/b", True),
        ("Disallow: /a b", "/a%20b", False),
        ("Disallow: /100%", "/100%25", False),
        ("Disallow: /file-with-a-%2A.html", "/file-with-a-*.html", False),
        ("Disallow: /file-with-a-%2A.html", "/file-with-a-b.html", True),
        ("Disallow: /foo-%24", "/foo-$", False),
        ("Disallow: /à", "/%C3%A0", False),
        # the file itself is always open
        ("Disallow: /", "/robots.txt", True),
        ("Disallow: /robots.txt", "/robots.txt", True),
        ("Disallow: /", "/a/robots.txt", False),
    ],
)
def test_the_rule_that_fits_best_decides(rules, path, expected):
    assert allowed(f"User-agent: *\n{rules}\n".encode(), path) is expected


def test_bytes_that_are_no_utf_8_match_the_same_bytes():
    assert not allowed(b"User-agent: *\nDisallow: /caf\xe9\n", "/caf%E9")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/private/x", False),
        ("http://h.test", True),
        ("http://h.test?private", True),
        ("HTTP://u:p@H.test:8080/private/", False),
        ("http://[::1]:80/private/", False),
        ("http://h.test/x#/private/", True),
    ],
)
def test_only_path_and_query_of_a_url_count(url, expected):
    assert Robots.parse(b"User-agent: *\nDisallow: /private/\n", "trawl").allowed(url) is expected


def test_the_verdict_names_the_line_that_decided():
    body = (
        b"\xef\xbb\xbf# ours\r\nUser-agent: other\r\nDisallow: /\r\n\r\nUser-agent: Trawl\r\n"
        b"disallow : /priv\xc3\xa9/ # keep out\r\nAllow: /priv\xc3\xa9/ok$\r\n"
    )
    robots = Robots.parse(body, "trawl")
    assert robots.verdict(f"{SITE}/privé/x") == Verdict(False, "Disallow: /privé/", 6, "trawl")
    assert robots.verdict(f"{SITE}/privé/ok") == Verdict(True, "Allow: /privé/ok$", 7, "trawl")
    assert robots.verdict(f"{SITE}/else") == Verdict(True, None, None, "trawl")
    assert robots.verdict(f"{SITE}/robots.txt") == Verdict(True, None, None, "trawl")
    assert Robots.parse(b"User-agent: *\nDisallow: /a\n", "trawl").verdict("/b").group == "*"
    assert Robots.parse(b"User-agent: x\nDisallow: /a\n", "trawl").verdict("/a").group is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5.0),
        (" 2.5 # slow", 2.5),
        (".5", 0.5),
        ("0", 0.0),
        ("86400", 86400.0),
        ("1e3", 1000.0),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("1_0", None),
        ("5s", None),
        ("", None),
    ],
)
def test_a_crawl_delay_is_any_finite_number_of_seconds(value, seconds):
    robots = Robots.parse(f"User-agent: *\nCrawl-delay: {value}\n".encode(), "trawl")
    assert robots.crawl_delay == seconds


def test_the_crawl_delay_is_that_of_our_group_and_the_longest_of_several():
    body = b"User-agent: *\nCrawl-delay: 9\n\nUser-agent: trawl\nCrawl-delay: 3\nCrawl-delay: x\nCrawl-delay: 1\n"
    assert Robots.parse(body, "trawl").crawl_delay == 3
    assert Robots.parse(body, "other").crawl_delay == 9


def test_sitemaps_are_found_wherever_they_stand():
    body = (
        b"Sitemap: http://h.test/1.xml\nUser-agent: other\nDisallow: /\nsitemap:http://h.test/2.xml # two\n"
        b"Site-map: http://h.test/1.xml\nSitemap:\nSitemap http://h.test/3.xml\n"
    )
    robots = Robots.parse(body, "trawl")
    assert robots.sitemaps == ("http://h.test/1.xml", "http://h.test/2.xml", "http://h.test/3.xml")


def test_rules_beyond_500_kib_are_not_read():
    """Case 8."""
    head = b"User-agent: *\nDisallow: /first\n"
    body = head + b"# filler filler\n" * 131_072 + b"Disallow: /beyond\n"
    assert len(body) > 2_000_000
    assert not allowed(body, "/first")
    assert allowed(body, "/beyond")


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n"])
def test_a_rule_that_the_cap_cuts_is_dropped_and_one_that_just_fits_holds(ending):
    start, rule = b"User-agent: *" + ending, b"Disallow: /private/"
    filler = b"#" * (MAX_ROBOTS_BYTES - len(start) - len(ending) - len(rule)) + ending
    fits = start + filler + rule + ending
    assert not allowed(fits, "/private/")
    cut = start + b"#" + filler + rule + ending
    assert allowed(cut, "/private/")
    assert allowed(cut[:MAX_ROBOTS_BYTES], "/private/")


@pytest.mark.parametrize(
    "rule",
    ["Disallow: /" + "*a" * 200_000 + "b$", "\n".join(["Disallow: /*a*a*a*a*a*a*a*a*a*a*b"] * 2000)],
)
def test_patterns_of_many_stars_come_to_an_end(rule):
    assert allowed(b"User-agent: *\n" + rule.encode(), "/" + "a" * 2000)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, False),
        (206, False),
        (301, True),  # more redirects than we follow
        *((s, True) for s in (400, 401, 403, 404, 410, 418, 451)),  # case 2
        *((s, False) for s in (429, 500, 502, 503, 504, 599, 600, 100, 0, None)),
    ],
)
def test_the_status_decides_before_the_body_does(status, expected):
    robots = Robots.from_status(status, b"User-agent: *\nDisallow: /\n", "trawl")
    assert robots.allowed(f"{SITE}/x") is expected
    assert robots.allowed(f"{SITE}/robots.txt")


def test_open_and_closed_hosts_say_so():
    assert ALLOW_ALL.verdict(f"{SITE}/x") == Verdict(True, None, None, None)
    assert DENY_ALL.verdict(f"{SITE}/x") == Verdict(False, None, None, None)
    assert DENY_ALL.allowed(f"{SITE}/robots.txt")
    assert not DENY_ALL.allowed(f"{SITE}/x")
    assert (DENY_ALL.crawl_delay, DENY_ALL.sitemaps) == (None, ())


LINES = st.sampled_from(
    [b"User-agent: *", b"user-agent: trawl", b"Disallow: /", b"Allow: /a*", b"Crawl-delay: ", b"Sitemap: ", b"#", b"%"]
)


@given(st.lists(st.one_of(LINES, st.binary(max_size=20), st.just(b"\n"))).map(b"".join), st.text(), st.text())
def test_no_file_no_agent_and_no_url_raise(body, agent, url):
    robots = Robots.parse(body, agent)
    assert robots.allowed(url) == robots.verdict(url).allowed


PATTERNS = st.text("ab/*", min_size=1, max_size=6).map("/".__add__)


@given(
    st.lists(st.tuples(st.sampled_from(["Allow", "Disallow"]), PATTERNS), max_size=8),
    st.text("ab/", max_size=8).map("/".__add__),
)
def test_protego_agrees_about_plain_prefixes_and_stars(rules, path):
    text = "User-agent: *\n" + "".join(f"{field}: {pattern}\n" for field, pattern in rules)
    assert allowed(text.encode(), path) == Protego.parse(text).can_fetch(SITE + path, "trawl")
