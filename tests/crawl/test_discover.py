"""From an answer to its links."""

from crawl.discover import MANY, in_scope
from crawl.plan import Plan
from crawl.scope import Scope
from frontier.priority import LAST, by_depth
from frontier.urls import NO_RULES

PLAN = Plan(1, 1, NO_RULES, Scope("any", []), 0, 1, 0, False, None, "trawl-tests", True, False)


def test_a_page_with_very_many_links_keeps_them_all_and_most_are_taken_last() -> None:
    hrefs = dict.fromkeys([f"/{number}" for number in range(MANY + 500)] + ["/7", "/7#x", "mailto:a@b.test"])
    links, _ = in_scope(hrefs, "https://a.test/", 3, PLAN)
    assert [link.url.fetch for link in links] == [f"https://a.test/{number}" for number in range(MANY + 500)]
    assert [link.level for link in links] == [by_depth(3)] * MANY + [LAST] * 500
