"""The level of a URL: the best that was offered, and a better one once enough pages link to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.admission import Link, Recent, admit, recent
from frontier.models import Inbox
from frontier.priority import HELD, LAST, POPULAR, POPULAR_LINKS, SEED, SITEMAP
from frontier.router import inbox_alias
from frontier.urls import canonicalise
from tests.frontier.world import World

URL = canonicalise("https://a.test/menu")


def sifted(recent: Recent, *links: Link) -> list[Link]:
    """What a batch of these links is after a merge: each URL once, with its best level and its least depth."""
    sheet = recent.sift(links, 1)
    best: dict[str, Link] = {}
    for ref, level, depth in zip(sheet.refs, sheet.levels, sheet.depths, strict=True):
        first = best.get(ref, Link(canonicalise(f"https://a.test{ref}"), level, depth))
        best[ref] = first._replace(level=min(first.level, level), depth=min(first.depth, depth))
    return list(best.values())


# --- popular links ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", range(POPULAR + 1, HELD))
def test_a_link_becomes_popular_once_and_at_its_time(level: int) -> None:
    recent, link = Recent(), Link(URL, level, 3)
    written = [sifted(recent, link) for _ in range(4 * POPULAR_LINKS)]
    assert written[0] == [link]
    assert written[POPULAR_LINKS - 1] == [link._replace(level=POPULAR)]
    assert [number for number, links in enumerate(written) if links] == [0, POPULAR_LINKS - 1]


@pytest.mark.parametrize("level", [POPULAR, HELD])
def test_what_is_popular_or_held_does_not_become_popular(level: int) -> None:
    recent, link = Recent(), Link(URL, level, 3)
    written = [sifted(recent, link) for _ in range(2 * POPULAR_LINKS)]
    assert [links for links in written if links] == [[link]]


@pytest.mark.parametrize("level", range(SEED, POPULAR))
def test_what_a_sitemap_or_a_seed_names_is_written_every_time(level: int) -> None:
    recent, link = Recent(), Link(URL, level, 3)
    assert [sifted(recent, link) for _ in range(2 * POPULAR_LINKS)] == [[link]] * (2 * POPULAR_LINKS)
    assert sifted(recent, *[Link(URL, LAST, 3)] * POPULAR_LINKS) == []


def test_the_best_level_of_a_batch_is_written() -> None:
    page, menu = Link(URL, LAST, 3), [Link(URL, LAST, 3)] * POPULAR_LINKS
    assert sifted(Recent(), page, Link(URL, SITEMAP, 1), Link(URL, SEED, 0), Link(URL, SITEMAP, 1)) == [
        Link(URL, SEED, 0)
    ]
    assert sifted(Recent(), Link(URL, SITEMAP, 1), *menu) == [Link(URL, SITEMAP, 1)]


def test_the_least_depth_of_a_merge_is_kept(frontier: World) -> None:
    near, far = (Link(URL, LAST, depth) for depth in (1, 5))
    for link in (far, near, far):
        admit(1, [link], frontier.using)
        recent(1, frontier.using).clear()
    frontier.merge()
    assert [one.depth for one in frontier.waiting()] == [1]


def test_links_of_one_page_that_become_popular_at_once_are_written_once() -> None:
    recent, link = Recent(), Link(URL, LAST, 3)
    assert sifted(recent, *[link] * POPULAR_LINKS) == [link._replace(level=POPULAR)]
    assert sifted(recent, *[link] * POPULAR_LINKS) == []


@given(meetings=st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=30))
def test_every_link_is_written_first_and_again_on_its_meeting(meetings: list[list[int]]) -> None:
    recent = Recent()
    links = [Link(canonicalise(f"https://a.test/{number}"), POPULAR + 1 + number, 1) for number in range(4)]
    met = [0] * 4
    for meeting in meetings:
        expected = {}
        for number in meeting:
            met[number] += 1
            if met[number] == 1:
                expected[number] = links[number]
            if met[number] == POPULAR_LINKS:
                expected[number] = links[number]._replace(level=POPULAR)
        assert sifted(recent, *(links[number] for number in meeting)) == list(expected.values())


def test_the_meetings_of_a_link_count_on_in_the_other_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontier.admission.RECENT_LINKS", 2)
    recent, link = Recent(), Link(URL, LAST, 1)
    for number in range(POPULAR_LINKS - 1):
        sifted(recent, link, Link(canonicalise(f"https://a.test/{number}"), LAST, 1))
    assert sifted(recent, link) == [link._replace(level=POPULAR)]


def test_a_popular_link_is_written_down_again_and_moves_while_it_waits(frontier: World) -> None:
    link = Link(URL, LAST, 3)
    admit(1, [Link(canonicalise("https://a.test/first"), 9, 1), link], frontier.using)
    frontier.merge()
    assert [one.url for one in frontier.waiting()] == ["https://a.test/first", "https://a.test/menu"]
    for number in range(2, POPULAR_LINKS + 3):
        assert admit(1, [link], frontier.using) == (number == POPULAR_LINKS)
    [row] = Inbox.objects.using(inbox_alias(frontier.using))
    assert (bytes(row.levels), row.refs) == (bytes([POPULAR]), "/menu")
    frontier.admit("https://b.test/", "https://c.test/")  # work is bounded by what comes in
    assert frontier.merge().new_urls == 2
    waiting = [(one.url, one.level, one.depth) for one in frontier.waiting() if "//a." in one.url]
    assert waiting == [("https://a.test/menu", POPULAR, 3), ("https://a.test/first", 9, 1)]
    frontier.check()


# --- in the merge ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [(9, 3, 12), (3, 9), (HELD, 14), (0, HELD, 0), (7, 7)])
def test_the_best_level_among_the_equal_links_of_a_batch_counts(frontier: World, levels: tuple[int, ...]) -> None:
    for level in levels:
        frontier.admit("https://a.test/", f"https://a.test/{level}", level=level)
        frontier.admit("https://a.test/", campaign=2, level=LAST)
    frontier.merge()
    found = {(one.campaign, one.url): one.level for one in frontier.waiting()}
    assert found == {(1, "https://a.test/"): min(levels), (2, "https://a.test/"): LAST} | {
        (1, f"https://a.test/{level}"): level for level in levels
    }
    host = frontier.host("a.test")
    assert host.key >> 31 == frontier.now // 1000 + min(*levels, LAST)
    frontier.check()


def test_the_first_depth_and_spelling_stay_with_the_best_level(frontier: World) -> None:
    frontier.admit("https://a.test/?b=1&a=2", level=9, depth=2)
    frontier.admit("https://a.test/?a=2&b=1", level=3, depth=7)
    frontier.merge()
    assert [(one.url, one.level, one.depth) for one in frontier.waiting()] == [("https://a.test/?b=1&a=2", 3, 2)]


def test_a_held_url_is_not_released_by_a_better_link(frontier: World) -> None:
    frontier.add("https://a.test/", level=HELD)
    frontier.add("https://a.test/", level=SEED)
    assert [one.level for one in frontier.waiting()] == [HELD]
    assert frontier.visit() == []
    frontier.check()
