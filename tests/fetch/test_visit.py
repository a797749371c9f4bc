"""The clock with which a visit gives its host back, without a server."""

import time
from collections import deque
from typing import Any
from unittest import mock

import pytest

from crawl.fetch.errors import Kind
from crawl.fetch.response import Response
from crawl.fetch.robots import Robots
from crawl.fetch.target import Target
from crawl.fetch.visit import HostVisit
from crawl.fetch.waits import pace_of
from crawl.pages import Key
from frontier.claim import Visit
from frontier.complete import Release
from frontier.politeness import Pace
from frontier.urls import canonicalise

ALL_ALLOWED = Robots.from_status(404, b"", "trawl")


def begun(lease: Visit, plan: Any) -> tuple[HostVisit, Any]:
    """A visit whose worker is told to stop before the first request, and its surroundings."""
    around = mock.Mock()
    around.behind.return_value = around.blocked.return_value = around.halted.return_value = False
    around.stopping.side_effect = [False, True]
    around.robots.return_value = ALL_ALLOWED
    url = canonicalise("https://a.test/")
    visit = HostVisit(lease, deque([Target(url, Key(1, 2, 3), plan, 0)]), around)
    visit.begin()
    assert not around.loop.fetch.called
    assert len(visit.targets) + bool(visit.waiting) == 1
    return visit, around


def ended(lease: Visit, plan: Any) -> Release:
    """The end of such a visit."""
    visit, around = begun(lease, plan)
    release: Release = around.finish.call_args.args[1]
    assert len(visit.targets) == 1  # it stays in its queue
    return release


@pytest.mark.parametrize("gap_ms", [0, 1_000])
@pytest.mark.parametrize("burst", [1, 20])
def test_a_visit_without_a_request_gives_the_host_back_as_it_was(gap_ms: int, burst: int) -> None:
    due_at = int(time.time() * 1000) - 500
    lease = Visit(1, "a.test", 1, due_at, gap_ms, None, 0, "", [])
    release = ended(lease, mock.Mock(delay_ms=1_000, burst=burst))
    assert due_at <= release.due_at <= due_at + 1
    assert not release.changed


@pytest.mark.parametrize(("delay_ms", "seconds"), [(50, 2.0), (100, 2.0), (5_000, 6.9)])
def test_a_delay_that_was_made_longer_holds_for_the_first_request_of_a_visit(delay_ms: int, seconds: float) -> None:
    """The host is due in two seconds, 100 ms after its last request."""
    now = int(time.time())
    lease = Visit(1, "a.test", 1, (now + 2) * 1000, 100, None, 0, "", [])
    _, around = begun(lease, mock.Mock(delay_ms=delay_ms, burst=1))
    assert around.loop.call_at.call_args.args[0] == pytest.approx(now + seconds)


def test_the_first_visit_of_a_host_waits_for_nothing() -> None:
    due_at = int(time.time() * 1000)
    release = ended(Visit(1, "a.test", 1, due_at, 0, None, 0, "", []), mock.Mock(delay_ms=5_000, burst=1))
    assert due_at <= release.due_at <= due_at + 1


@pytest.mark.parametrize(
    ("host_ms", "crawl_delay", "pace"),
    [
        (None, None, Pace(1_000, 7)),
        (None, 0.0, Pace(1_000, 7)),
        (None, 0.2, Pace(1_000, 1)),
        (None, 30.0, Pace(30_000, 1)),
        (50, None, Pace(50, 1)),
        (50, 2.0, Pace(2_000, 1)),
    ],
)
def test_only_a_host_that_nobody_set_a_delay_for_gets_bursts(host_ms, crawl_delay, pace) -> None:
    assert pace_of(host_ms, mock.Mock(delay_ms=1_000, burst=7), crawl_delay) == pace


def test_a_retry_after_holds_for_both_schemes_of_a_name() -> None:
    lease = Visit(1, "a.test", 1, 0, 0, None, 0, "", [])
    visit, around = begun(lease, mock.Mock(delay_ms=1_000, burst=1, adaptive=True, arrival_log=False, cookies=False))
    visit.targets.append(Target(canonicalise("http://a.test/"), Key(1, 2, 4), mock.Mock(delay_ms=1_000), 0))
    busy = Response("https://a.test/robots.txt", 503, headers={"retry-after": "60"}, error=Kind.ROBOTS_UNREACHABLE)
    around.finish.reset_mock()
    before = time.time()
    visit.robots_done(visit.targets.popleft(), busy)
    release: Release = around.finish.call_args.args[1]
    assert release.due_at >= (before + 60) * 1000
    assert len(visit.targets) == 2
