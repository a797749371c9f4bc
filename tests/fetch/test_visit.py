"""The clock with which a visit gives its host back, without a server."""

import time
from collections import deque
from typing import Any
from unittest import mock

import pytest

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


def ended(lease: Visit, plan: Any) -> Release:
    """The end of a visit whose worker is told to stop before the first request."""
    around = mock.Mock()
    around.behind.return_value = around.blocked.return_value = around.halted.return_value = False
    around.stopping.side_effect = [False, True]
    around.robots.return_value = ALL_ALLOWED
    url = canonicalise("https://a.test/")
    visit = HostVisit(lease, deque([Target(url, Key(1, 2, 3), plan, 0)]), around)
    visit.begin()
    release: Release = around.finish.call_args.args[1]
    assert not around.loop.fetch.called
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
