"""Filters in front of the seen index: they forget no key, keep up with all merges, and may never judge."""

from typing import Any

import numpy as np
import pytest

from frontier import admission
from frontier.admission import Link
from frontier.merge import Merger
from frontier.models import QueuedUrl
from frontier.seen import filters, runs
from frontier.seen.filters import FALSE_POSITIVES, FILTERS
from frontier.urls import URL
from tests.frontier.test_prechecks import KINDS, A, B, needs, on_sqlite
from tests.frontier.world import World


@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_forgets_no_key(kind: str) -> None:
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**64, 60_000, np.uint64)
    one = FILTERS[kind](30_000)
    one.add(keys[:20_000])
    one.add(keys[20_000:30_000])
    assert one.may_hold(keys[:30_000]).all()
    assert one.may_hold(keys[30_000:]).mean() < 2 * FALSE_POSITIVES
    assert one.may_hold(keys[:0]).tolist() == []


@on_sqlite
@pytest.mark.parametrize("kind", KINDS)
def test_the_runs_are_asked_only_for_what_may_be_known(frontier: World, choose, monkeypatch, kind: str) -> None:
    choose(kind)
    frontier.add(A)
    asked = []
    member = runs.member

    def counted(run: runs.Run, high: runs.U64, low: runs.U64) -> Any:
        if not len(run.value):
            asked.append(len(high))
        return member(run, high, low)

    monkeypatch.setattr(runs, "member", counted)
    frontier.add(A, *(f"https://a.test/{n}" for n in range(300)))
    assert 1 <= sum(asked) < 15


@on_sqlite
@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_learns_what_another_process_has_merged(frontier: World, choose, kind: str) -> None:
    choose(kind)
    frontier.add(A)
    frontier.admit(B)
    assert Merger(frontier.using).merge().new_urls == 1
    assert frontier.add(A, B).new_urls == 0
    assert frontier.urls() == [A, B]


@on_sqlite
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_filter_is_made_anew(frontier: World, choose, monkeypatch, kind: str) -> None:
    monkeypatch.setattr(filters, "MIN_CAPACITY", 10)
    choose(kind)
    for start in range(0, 200, 10):
        frontier.add(*(f"https://a.test/{n}" for n in range(start, start + 10)))
        assert frontier.add(*(f"https://a.test/{n}" for n in range(start + 10))).new_urls == 0


@on_sqlite
@needs("rbloom")
@pytest.mark.parametrize("rate", [0.01, 0.001])
def test_a_bloom_filter_as_the_judge_would_have_lost_urls(frontier: World, choose, rate: float) -> None:
    """250,000 different URLs, once each: what a filter of that size calls known is never fetched."""
    from rbloom import Bloom

    urls = [f"https://h{number % 500}.test/{number}" for number in range(250_000)]
    judge = Bloom(len(urls), rate)
    lost = 0
    for url in urls:
        lost += url in judge
        judge.add(url)
    # A filter that fills up is better than its rate before it is full: about a sixth of it on the whole.
    assert rate * len(urls) / 20 < lost < rate * len(urls)

    choose("bloom")
    for start in range(0, len(urls), 50_000):
        part = urls[start : start + 50_000]
        admission.admit(1, [Link(URL(url, url, url.split("/")[2]), 6, 1) for url in part], frontier.using)
        frontier.merge()
    assert QueuedUrl.objects.using(frontier.using).count() == len(urls)
