"""In-links: what many pages link to is taken before what one page links to, whenever the links come."""

import pytest
from django.db import connections, transaction

from frontier.merge import merger
from frontier.models import Queue, QueuedUrl
from frontier.priority import LAST, POPULAR, POPULAR_LINKS, SEED, SITEMAP, by_depth
from frontier.promote import MANY, Promotion, promote
from tests.frontier.world import GAP_MS, World

PAGES = [f"https://a.test/{n}" for n in range(30)]
MENU = "https://a.test/menu"


def linked(frontier: World, *urls: str, pages: int = POPULAR_LINKS, depth: int = 1) -> None:
    """So many pages link to these URLs; one worker reads them all."""
    for _ in range(pages):
        frontier.admit(*urls, level=by_depth(depth), depth=depth, afresh=False)


def order(frontier: World) -> list[str]:
    """References of a.test in the order in which they are taken."""
    return [row.ref for row in QueuedUrl.objects.using(frontier.using).order_by("id")]


def levels(frontier: World) -> dict[str, int]:
    return {row.ref: row.priority for row in QueuedUrl.objects.using(frontier.using)}


def test_a_popular_url_goes_before_those_of_its_depth(frontier: World) -> None:
    frontier.admit(*PAGES, afresh=False)
    linked(frontier, MENU)
    frontier.merge()
    assert order(frontier)[0] == "/menu"
    assert order(frontier)[1:] == [f"/{n}" for n in range(30)]


@pytest.mark.parametrize("number", [1, MANY - 1, MANY, 25])
def test_also_when_the_links_come_after_it_was_queued(frontier: World, number: int) -> None:
    frontier.add(*PAGES)
    popular = PAGES[-number:]
    linked(frontier, *popular)
    merged = frontier.merge()
    assert merged.new_urls == 0
    assert order(frontier)[:number] == [url.removeprefix("https://a.test") for url in popular]
    assert sorted(frontier.urls()) == sorted(PAGES)
    frontier.check()


def test_one_link_less_changes_nothing(frontier: World) -> None:
    frontier.admit(*PAGES, afresh=False)
    frontier.merge()
    linked(frontier, PAGES[-1], pages=POPULAR_LINKS - 2)
    frontier.merge()
    assert order(frontier) == [f"/{n}" for n in range(30)]
    linked(frontier, PAGES[-1], pages=1)
    frontier.merge()
    assert order(frontier)[0] == "/29"


def test_a_sitemap_or_a_seed_moves_what_waits_already(frontier: World) -> None:
    frontier.admit(*PAGES, afresh=False)
    frontier.merge()
    frontier.admit(PAGES[20], level=SITEMAP, afresh=False)
    frontier.admit(PAGES[10], level=SEED, afresh=False)
    frontier.merge()
    assert order(frontier)[:2] == ["/10", "/20"]
    frontier.admit(PAGES[10], level=SITEMAP, afresh=False)  # never to a worse level
    frontier.merge()
    assert levels(frontier)["/10"] == SEED
    frontier.check()


def test_a_url_that_was_visited_does_not_come_back(frontier: World) -> None:
    frontier.add(MENU)
    [visit] = frontier.visit()
    frontier.leave(visit)
    linked(frontier, MENU)
    assert frontier.merge().new_urls == 0
    assert frontier.urls() == []
    frontier.check()


def test_urls_that_a_worker_holds_are_moved_when_it_has_left(frontier: World) -> None:
    frontier.add(*PAGES)
    [visit] = frontier.visit(quota=5)
    linked(frontier, PAGES[2], PAGES[20])
    frontier.merge()
    assert levels(frontier)["/2"] == levels(frontier)["/20"] == 6
    frontier.leave(visit)
    frontier.add("https://b.test/")  # any merge
    assert "/2" not in levels(frontier)
    assert order(frontier)[0] == "/20"
    assert len(frontier.urls()) == 26
    frontier.check()


def test_each_url_of_a_moved_queue_is_visited_once(frontier: World) -> None:
    frontier.add(*PAGES)
    seen: list[str] = []
    for turn in range(40):
        linked(frontier, *PAGES[turn % 7 :: 7])
        frontier.merge()
        for visit in frontier.visit(quota=3):
            seen += [url.ref for url in visit.urls]
            frontier.leave(visit)
        frontier.now += GAP_MS
    assert sorted(seen) == sorted(url.removeprefix("https://a.test") for url in PAGES)
    frontier.check()


def test_the_work_is_bounded_and_what_is_left_is_asked_for_again(frontier: World) -> None:
    frontier.add(*PAGES, *[f"https://b.test/{n}" for n in range(5)])
    ids = {name: queue for queue, name in frontier.queues().items()}
    wanted = [Promotion(ids["a.test"], POPULAR, "/29"), Promotion(ids["b.test"], POPULAR, "/4")]
    with transaction.atomic(using=frontier.using), connections[frontier.using].cursor() as cursor:
        assert sorted(promote(cursor, frontier.using, wanted, most_rows=4)) == sorted(wanted)
    with transaction.atomic(using=frontier.using), connections[frontier.using].cursor() as cursor:
        # The short queue first, where the same work finds more.
        assert promote(cursor, frontier.using, wanted, most_rows=6) == wanted[:1]
    waiting = {(one.url, one.level) for one in frontier.waiting()}
    assert {("https://a.test/29", 6), ("https://a.test/4", 6), ("https://b.test/4", POPULAR)} <= waiting
    frontier.check()


def test_a_merge_keeps_its_late_wishes_only_in_memory(frontier: World) -> None:
    frontier.add(*PAGES)
    frontier.visit(quota=1)
    linked(frontier, MENU, PAGES[9])
    frontier.merge()
    assert [wish.ref for wish in merger(frontier.using)._late] == ["/9"]
    frontier.restart()
    frontier.add("https://b.test/")
    assert levels(frontier)["/9"] == 6
    frontier.check()


def test_references_with_odd_characters_are_found(frontier: World) -> None:
    odd = [
        "https://a.test/?q='\"&x=%5C\\",
        "https://a.test/%E2%82%AC?%25",
        "http://a.test/plain",
        "https://a.test/a%20b",
    ]
    frontier.add(*PAGES, *odd)
    linked(frontier, *odd)
    frontier.merge()
    assert sum(level == POPULAR for level in levels(frontier).values()) == len(odd)
    assert Queue.objects.using(frontier.using).count() == 1
    frontier.check()


def test_deep_links_stay_last(frontier: World) -> None:
    frontier.admit("https://a.test/deep", level=LAST, depth=20, afresh=False)
    frontier.admit(*PAGES, afresh=False)
    frontier.merge()
    assert order(frontier)[-1] == "/deep"
