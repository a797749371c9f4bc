"""Reasons and lengths of waits, and the pace that follows from how a host answers. Pure functions."""

import time
from email.utils import formatdate
from typing import Any
from unittest import mock

import pytest

from crawl.fetch.response import Response
from crawl.fetch.waits import (
    ANSWERS_SLOWLY,
    REASON_CHARS,
    SERVER_ERRORS,
    adapts,
    asked,
    pace_of,
    spoken,
    why_so_slow,
)
from frontier.politeness import (
    ADAPTIVE_FACTOR,
    ADAPTIVE_MAX_MS,
    PARK_MS,
    Pace,
    adapted_ms,
    park_ms,
    slowed_ms,
)

DAY = 86_400
PLAN: Any = mock.Mock(delay_ms=1_000, burst=7, adaptive=True)
FIXED: Any = mock.Mock(delay_ms=1_000, burst=7, adaptive=False)
OWN_SERVER: Any = mock.Mock(delay_ms=0, burst=7, adaptive=True)


def answer(retry_after: str) -> Response:
    return Response("https://a.test/", 429, headers={"retry-after": retry_after})


@pytest.mark.parametrize(
    ("retry_after", "seconds", "text"),
    [
        ("2", 2, "asked to wait 2 s"),
        ("7200", 7200, "asked to wait 2 hours"),
        ("86400", DAY, "asked to wait 1 day"),
        ("86401", DAY, "asked to wait 24 hours, shortened to 1 day"),
        ("2592000", DAY, "asked to wait 30 days, shortened to 1 day"),
        ("9" * 30, DAY, "asked to wait 11,574.1 days, shortened to 1 day"),
    ],
)
def test_a_wait_that_was_asked_for_is_kept_up_to_a_day_and_told(retry_after: str, seconds: float, text: str) -> None:
    wish = asked(answer(retry_after))
    assert seconds * 1000 <= wish.ms <= seconds * 1000 + 1000
    assert wish.text == text
    assert len(f"HTTP 429, {text}") <= REASON_CHARS


def test_a_date_is_a_wait_as_well() -> None:
    wish = asked(answer(formatdate(time.time() + 30 * DAY, usegmt=True)))
    assert wish.ms >= DAY * 1000
    assert wish.text == "asked to wait 30 days, shortened to 1 day"


@pytest.mark.parametrize("value", ["", "0", "-5", "soon", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_what_is_no_wait_is_none(value: str) -> None:
    assert asked(answer(value)) == (0, "")


@pytest.mark.parametrize(
    ("seconds", "text"), [(59, "59 s"), (60, "1 minute"), (90, "90 s"), (150, "2.5 minutes"), (2.5 * DAY, "2.5 days")]
)
def test_seconds_are_spoken_as_people_say_them(seconds: float, text: str) -> None:
    assert spoken(seconds) == text


def test_the_delay_of_a_host_grows_with_its_time_to_answer_and_falls_when_it_recovers() -> None:
    delay = 0.0
    for _ in range(30):
        delay = adapted_ms(delay, 2_000, good=True)
    assert 0.95 * ADAPTIVE_FACTOR * 2_000 < delay <= ADAPTIVE_FACTOR * 2_000
    for _ in range(30):
        delay = adapted_ms(delay, 50, good=True)
    assert delay < 200


def test_one_slow_page_does_not_set_the_pace() -> None:
    assert adapted_ms(0, 1_300, good=True) < 1_000


def test_a_fast_error_never_speeds_a_host_up_and_a_slow_one_slows_it_down() -> None:
    assert adapted_ms(5_000, 2, good=False) == 5_000
    assert adapted_ms(5_000, 10_000, good=False) > 5_000


def test_the_adaptive_delay_is_bounded() -> None:
    delay = 0.0
    for _ in range(100):
        delay = slowed_ms(adapted_ms(delay, 10_000_000, good=True), max(delay, 1_000), 90_000)
    assert delay <= ADAPTIVE_MAX_MS


def test_errors_one_after_another_double_the_gap_and_never_shorten_it() -> None:
    assert slowed_ms(0, 1_000, 1_000) == 2_000
    assert slowed_ms(2_000, 2_000, 1_000) == 4_000
    assert slowed_ms(8_000, 8_000, 1_000) == 8_000
    assert slowed_ms(50_000, 50_000, 20_000) == ADAPTIVE_MAX_MS
    assert slowed_ms(9_000, 1_000, 1_000) == 9_000


@pytest.mark.parametrize(
    ("host_ms", "plan", "crawl_delay", "adaptive", "pace"),
    [
        (None, PLAN, None, 900, Pace(1_000, 7)),
        (None, PLAN, None, 4_000, Pace(4_000, 1)),
        (None, PLAN, 10.0, 4_000, Pace(10_000, 1)),
        (2_000, PLAN, None, 4_000, Pace(4_000, 1)),
        (0, PLAN, None, 4_000, Pace(0, 1)),
        (None, FIXED, None, 4_000, Pace(1_000, 7)),
        (None, OWN_SERVER, None, 4_000, Pace(0, 7)),
        (None, OWN_SERVER, 3.0, 4_000, Pace(3_000, 1)),
    ],
)
def test_the_pace_is_the_slowest_that_anything_asks_for(host_ms, plan, crawl_delay, adaptive, pace) -> None:
    assert pace_of(host_ms, plan, crawl_delay, adaptive) == pace


def test_a_delay_of_zero_is_for_ones_own_servers_and_means_what_it_says() -> None:
    assert adapts(None, PLAN)
    assert not adapts(None, OWN_SERVER)
    assert not adapts(0, PLAN)
    assert not adapts(None, FIXED)


@pytest.mark.parametrize(
    ("crawl_delay", "gap", "failing", "reason"),
    [
        (None, 1_000, False, ""),
        (0.5, 1_000, False, ""),
        (30.0, 30_000, False, "Crawl-delay of 30 s"),
        (2.0, 5_000, False, ANSWERS_SLOWLY),
        (None, 5_000, True, SERVER_ERRORS),
    ],
)
def test_the_reason_names_what_sets_the_pace(crawl_delay, gap, failing, reason) -> None:
    assert why_so_slow(None, PLAN, crawl_delay, Pace(gap), failing) == reason


def test_a_host_is_parked_for_an_hour_then_six_then_a_day_each_time() -> None:
    assert [park_ms(times, jitter=0) for times in (-1, 0, 1, 2, 30)] == [PARK_MS[0], *PARK_MS, PARK_MS[-1]]
    assert PARK_MS[0] < park_ms(0, jitter=1) <= 1.25 * PARK_MS[0]
