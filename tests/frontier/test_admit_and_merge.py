"""What goes in comes out: each URL once, in its order, with its depth and its exact text."""

import itertools
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from frontier import admission, counts
from frontier import merge as merging
from frontier.admission import Link, Recent, admit, waiting
from frontier.fill import MAX_SEQUENCE, QueueFull, fill
from frontier.models import MAX_QUEUE_ID, Host, Inbox, Queue
from frontier.priority import HELD, POPULAR, POPULAR_LINKS
from frontier.sheet import MAX_DEPTH
from frontier.urls import canonicalise, to_reference
from tests.frontier.world import InThread, Killed, Waiting, World, die

A, B, C = "https://a.test/", "https://b.test/", "https://c.test/"


@pytest.mark.parametrize("order", list(itertools.permutations([(A, B), (B, A, B), (C, A)])))
def test_each_url_is_queued_once_whatever_the_order_of_the_rows(frontier: World, order) -> None:
    for urls in order:
        frontier.admit(*urls)
    merged = frontier.merge()
    assert frontier.urls() == [A, B, C]
    assert (merged.links, merged.new_urls, merged.new_hosts) == (6, 3, 3)
    frontier.check()


def test_each_url_is_queued_once_across_merges(frontier: World) -> None:
    assert frontier.add(A, B).new_urls == 2
    assert frontier.add(B, C).new_urls == 1
    assert frontier.add(A, B, C).new_urls == 0
    assert frontier.urls() == [A, B, C]
    frontier.check()


def test_a_url_that_was_visited_is_not_queued_again(frontier: World) -> None:
    frontier.add(A)
    [visit] = frontier.visit()
    frontier.leave(visit)
    assert frontier.add(A).new_urls == 0
    assert frontier.waiting() == []


def test_spellings_of_one_url_are_one_url_and_the_first_is_the_one_to_fetch(frontier: World) -> None:
    frontier.add("https://a.test/?b=1&a=2", "https://A.test:443/?a=2&b=1#top")
    assert frontier.urls() == ["https://a.test/?b=1&a=2"]


def test_a_url_in_two_campaigns_is_two_entries_on_one_host(frontier: World) -> None:
    frontier.admit(A, campaign=1)
    frontier.admit(A, campaign=2)
    assert frontier.merge().new_urls == 2
    assert frontier.add(A, campaign=3).new_urls == 1
    assert sorted((one.campaign, one.url) for one in frontier.waiting()) == [(1, A), (2, A), (3, A)]
    assert list(frontier.hosts()) == ["a.test"]
    frontier.check()


def test_a_merge_takes_the_oldest_rows_first_and_leaves_the_rest(frontier: World) -> None:
    for url in (A, B, C):
        frontier.admit(url)
    assert waiting(frontier.using) == (3, frontier.now)
    assert frontier.merge(max_links=2).links == 2
    assert frontier.urls() == [A, B]
    assert waiting(frontier.using) == (1, frontier.now)
    assert frontier.merge().links == 1
    assert waiting(frontier.using) == (0, None)
    assert frontier.merge().links == 0


def packed(links: list[Link]) -> list[Inbox]:
    """Links as inbox rows."""
    return list(Recent().sift(links, 1).rows(1, seed=1))


def test_a_link_that_was_written_down_lately_is_not_written_again(frontier: World) -> None:
    assert frontier.admit(A, B) == 2
    assert frontier.admit(B, C, afresh=False) == 1
    frontier.merge()
    assert sorted(frontier.urls()) == sorted([A, B, C])


def test_links_whose_writing_failed_are_written_the_next_time(frontier: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        die(patch, admission, "write_down")
        with pytest.raises(Killed):
            frontier.admit(A)
    assert frontier.admit(A, afresh=False) == 1


def test_what_was_written_down_lately_is_forgotten_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontier.admission.RECENT_LINKS", 2)
    recent = Recent()
    links = [Link(canonicalise(f"https://a.test/{i}"), 6, 1) for i in range(5)]
    for link in links:
        assert len(recent.sift([link], 1)) == 1
    assert [len(recent.sift([link], 1)) for link in reversed(links)] == [0, 0, 1, 1, 1]


def test_a_link_that_is_met_again_is_remembered_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontier.admission.RECENT_LINKS", 2)
    recent = Recent()
    menu, *links = [Link(canonicalise(f"https://a.test/{i}"), 6, 1) for i in range(POPULAR_LINKS - 1)]
    assert len(recent.sift([menu], 1)) == 1
    for link in links:
        assert recent.sift([link, menu], 1).refs == [to_reference(link.url.fetch, link.url.host)]


def test_repeats_among_the_links_of_a_page_are_written_down_once(frontier: World) -> None:
    assert frontier.admit(A, B, A) == 2
    assert frontier.admit() == 0
    assert frontier.inbox_rows() == 1


def test_many_links_become_rows_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontier.sheet.MAX_LINKS_PER_ROW", 3)
    links = [Link(canonicalise(f"https://h{i}.test/"), 4, 1) for i in range(8)]
    assert [row.links for row in packed(links)] == [3, 3, 2]


# --- order ---------------------------------------------------------------------------------------------------


def test_urls_of_a_level_come_out_in_the_order_in_which_they_came_in(frontier: World) -> None:
    urls = [f"https://a.test/{i * 7919 % 100}" for i in range(100)]
    frontier.admit(*urls[:30])
    frontier.admit(*urls[20:60])  # ten of them again
    frontier.merge()
    frontier.add(*urls[60:])
    assert [one.url for one in frontier.waiting()] == urls
    [visit] = frontier.visit(quota=100)
    assert [f"https://a.test{url.ref}" for url in visit.urls] == urls


def test_a_lower_level_goes_first_also_when_it_comes_last(frontier: World) -> None:
    for level in (9, 0, 14, 3):
        frontier.add(f"https://a.test/{level}a", f"https://a.test/{level}b", level=level)
    [visit] = frontier.visit(quota=5)
    assert [url.ref for url in visit.urls] == ["/0a", "/0b", "/3a", "/3b", "/9a"]


def test_held_urls_are_counted_apart_and_never_claimed(frontier: World) -> None:
    frontier.add("https://a.test/held", B, level=HELD)
    frontier.add("https://a.test/free", level=HELD - 1)
    frontier.check()
    assert counts.waiting(1, frontier.using) == (1, 2, 2)
    found = {name: counts.in_queue(queue, frontier.using) for queue, name in frontier.queues().items()}
    assert found == {"a.test": (1, 1, 1), "b.test": (0, 1, 1)}
    [visit] = frontier.visit()
    assert [url.ref for url in visit.urls] == ["/free"]
    frontier.leave(visit)
    frontier.now += 10_000
    assert frontier.claim().hosts == []
    assert frontier.urls() == ["https://a.test/held", B]


@pytest.mark.parametrize("level", [HELD + 1, 255, 256, -1])
def test_a_level_that_does_not_exist_is_refused(level: int) -> None:
    with pytest.raises(ValueError, match=r"level|range"):
        packed([Link(canonicalise(A), level, 1)])


# --- exactness -----------------------------------------------------------------------------------------------

EXACT = [
    "https://a.test/",
    "http://a.test/",
    "http://a.test//double",
    "https://a.test//double",
    "https://a.test:8443/port",
    "http://a.test:443/odd",
    "http://a.test:8080/?q",
    "https://a.test/?back\\slash=\\N\\.\\t",
    "https://a.test/?quote='\"",
    "https://a.test/b%C3%BCcher/%E4%B8%AD%E6%96%87",
    "https://xn--bcher-kva.example/b%C3%BCcher?stra%C3%9Fe=%F0%9F%98%80",
    "https://a.test/%25%00%0A%09",
    "https://a.test/{json}[1]",
    "https://[2001:db8::1]/six",
    "http://[2001:db8::1]:8080/six",
    "https://192.0.2.1/four",
    "https://a.test/" + "x" * 7_985,
    "https://a.test/?" + "%E4" * 2_600,
]


@pytest.mark.parametrize("url", EXACT, ids=lambda url: url[:40])
def test_a_reference_comes_back_exactly(frontier: World, url: str) -> None:
    frontier.add(url, level=2, depth=7)
    assert frontier.waiting() == [Waiting(1, canonicalise(url).fetch, 2, 7)]
    assert frontier.add(url).new_urls == 0


def test_all_of_them_at_once_are_as_many_urls(frontier: World) -> None:
    assert frontier.add(*EXACT).new_urls == len(EXACT)
    assert frontier.urls() == sorted(canonicalise(url).fetch for url in EXACT)
    frontier.restart()
    assert frontier.add(*reversed(EXACT)).new_urls == 0
    frontier.check()


def test_depths_come_back_up_to_the_greatest(frontier: World) -> None:
    frontier.add(A, depth=0)
    frontier.add(B, depth=MAX_DEPTH)
    frontier.add(C, depth=1_000_000)
    assert [(one.url, one.depth) for one in sorted(frontier.waiting())] == [(A, 0), (B, MAX_DEPTH), (C, MAX_DEPTH)]


# --- hashes that collide ---------------------------------------------------------------------------------------


def first_32_bits_equal(canonical: bytes, seed: int) -> bytes:
    return bytes(4) + xxh3_128_digest(canonical, seed)[4:]


def only_one_byte_differs(canonical: bytes, seed: int) -> bytes:
    """At most 256 hashes, all with equal high halves; the URLs of these tests have a number of their own."""
    return bytes(11) + bytes([int(canonical.rsplit(b"/", 1)[1])]) + bytes(4)


@pytest.mark.parametrize("shortened", [first_32_bits_equal, only_one_byte_differs])
def test_urls_whose_keys_have_equal_high_halves_are_told_apart(frontier: World, monkeypatch, shortened) -> None:
    for module in ("frontier.admission", "frontier.urls.key"):
        monkeypatch.setattr(f"{module}.url_digest", shortened)
    urls = [f"https://a.test/{i * 37 % 251}" for i in range(200)]
    for start in range(0, 200, 20):
        frontier.admit(*urls[start : start + 20])
        frontier.admit(*urls[: start + 20 : 3])
        assert frontier.merge().new_urls == 20
    assert [one.url for one in frontier.waiting()] == urls
    frontier.move_to("elsewhere")
    assert frontier.add(*urls).new_urls == 0
    assert frontier.add("https://a.test/251").new_urls == 1
    frontier.check()


# --- any order -------------------------------------------------------------------------------------------------

page = st.tuples(
    st.integers(1, 2),  # campaign
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(POPULAR + 1, HELD), st.integers(0, 3)), max_size=8
    ),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(merges=st.lists(st.lists(page, max_size=4), max_size=4))
def test_what_is_queued_is_what_was_admitted_first(frontier: World, merges) -> None:
    with mock.patch("frontier.admission.POPULAR_LINKS", 1_000):
        _admitted_first(frontier, merges)


def _admitted_first(frontier: World, merges: Any) -> None:
    frontier.clear()
    expected: dict[tuple[int, str], Waiting] = {}
    for pages in merges:
        for campaign, links in pages:
            found = [(f"https://h{host}.test/{path}", level, depth) for host, path, level, depth in links]
            for url, level, depth in found:
                expected.setdefault((campaign, url), Waiting(campaign, url, level, depth))
            admit(campaign, [Link(canonicalise(url), level, depth) for url, level, depth in found], frontier.using)
        frontier.merge()
    waiting = frontier.waiting()
    assert sorted(waiting) == sorted(expected.values())
    arrival = {key: number for number, key in enumerate(expected)}
    for host, campaign in itertools.product(range(4), (1, 2)):
        queue = [one for one in waiting if one.campaign == campaign and f"//h{host}." in one.url]
        assert queue == sorted(queue, key=lambda one: (one.level, arrival[one.campaign, one.url]))
    frontier.check()


# --- the ends of the numbers -------------------------------------------------------------------------------------


def test_the_last_queue_id_can_be_used_and_no_further_one(frontier: World) -> None:
    frontier.add(A)
    Queue.objects.using(frontier.using).update(id=MAX_QUEUE_ID - 1)
    Host.objects.using(frontier.using).update(id=MAX_QUEUE_ID - 1)
    assert frontier.add(B).new_urls == 1
    assert B in [f"https://{visit.name}{visit.urls[0].ref}" for visit in frontier.visit()]
    frontier.admit(C)
    with pytest.raises(OverflowError):
        frontier.merge()


def test_a_queue_gives_out_each_sequence_number_once_and_says_when_there_are_no_more(frontier: World) -> None:
    frontier.add(A)
    Queue.objects.using(frontier.using).update(next_seq=MAX_SEQUENCE - 1)
    assert frontier.add("https://a.test/last", level=HELD).new_urls == 1
    frontier.check()
    frontier.admit("https://a.test/more")
    with pytest.raises(QueueFull, match="queue 1 "):
        frontier.merge()
    frontier.check()
    assert frontier.inbox_rows() == 1


# --- several mergers -----------------------------------------------------------------------------------------------


def test_a_second_merger_is_told_that_one_is_busy(frontier: World, monkeypatch) -> None:
    told: list[merging.Merged] = []

    def fill_while_others_try(*args):
        another = merging.Merger(frontier.using)
        told.extend([frontier.merge(), another.merge()])
        return fill(*args)

    monkeypatch.setattr(merging, "fill", fill_while_others_try)
    assert frontier.add(A) == merging.Merged(1, 1, 1)
    assert told == [merging.Merged(busy=True)] * 2
    assert frontier.urls() == [A]


def test_a_merger_on_another_machine_is_told_that_one_is_busy(frontier: World, settings, monkeypatch, tmp_path) -> None:
    if frontier.using == "default":
        pytest.skip("an SQLite database is used on one machine")
    told: list[merging.Merged] = []

    def fill_while_another_tries(*args):
        own, settings.DATA_DIR = settings.DATA_DIR, tmp_path / "elsewhere"
        told.append(InThread(merging.Merger(frontier.using).merge).result())
        settings.DATA_DIR = own
        return fill(*args)

    monkeypatch.setattr(merging, "fill", fill_while_another_tries)
    frontier.add(A)
    assert told == [merging.Merged(busy=True)]
    monkeypatch.setattr(merging, "fill", fill)
    assert frontier.add(B).new_urls == 1
