"""The judge of gaps, on arrivals that are written down by hand."""

from typing import Any

import pytest

from crawl.conduct import Gap, HostJudge
from crawl.store.arrivals import PAGE, PAUSE, UNSENT, Arrival

T = 1_796_000_000.0
TOLERANCE = 0.001


def asked(at: float, **told: Any) -> Arrival:
    """A request that was begun at T + at and arrived 10 ms later, with a delay of a second."""
    known: dict[str, Any] = {
        "begun": T + at,
        "arrived": T + at + 0.01,
        "ended": T + at + 0.02,
        "host": "a.test",
        "address": "192.0.2.1",
        "kind": PAGE,
        "result": "200",
        "gap": None,
        "delay": 1.0,
        "crawl_delay": None,
        "adaptive": None,
        "burst": 1,
        "until": None,
        "url": f"http://a.test/{at:g}",
    }
    return Arrival(**known | told)


def pause(at: float, until: float) -> Arrival:
    moment = {"begun": T + at, "arrived": T + at, "ended": T + at, "until": T + until}
    return asked(at, kind=PAUSE, result="connect: refused", delay=None, url="", **moment)


def judged(*arrivals: Arrival) -> list[Gap | None]:
    judge = HostJudge()
    return [judge.take(one) for one in arrivals]


def told(*arrivals: Arrival) -> list[tuple[float, float, str, bool]]:
    """The gaps: kept, due, cause, good or not."""
    gaps = [gap for gap in judged(*arrivals) if gap is not None]
    return [(round(gap.kept, 6), round(gap.due, 6), gap.cause, gap.is_kept(TOLERANCE)) for gap in gaps]


def test_gaps_lie_between_the_latest_arrival_and_the_soonest_next_one() -> None:
    assert told(asked(0), asked(1.01), asked(3)) == [(1.0, 1.0, "own delay", True), (1.98, 1.0, "own delay", True)]


def test_the_first_request_has_no_gap() -> None:
    assert judged(asked(0)) == [None]


def test_one_that_came_50_ms_too_early_is_seen_and_harms_no_later_one() -> None:
    assert told(asked(0), asked(0.96), asked(1.97)) == [
        (0.95, 1.0, "own delay", False),
        (1.0, 1.0, "own delay", True),
    ]


@pytest.mark.parametrize(("short", "is_kept"), [(0.0009, True), (0.0011, False)])
def test_the_tolerance_is_all_that_a_gap_may_be_short(short: float, is_kept: bool) -> None:
    [gap] = [gap for gap in judged(asked(0), asked(1.01 - short)) if gap]
    assert gap.is_kept(TOLERANCE) is is_kept


def test_a_slow_arrival_counts_as_late_as_it_may_have_come() -> None:
    assert told(asked(0, arrived=T + 0.3), asked(1.1)) == [(0.8, 1.0, "own delay", False)]


def test_an_arrival_before_its_own_beginning_is_a_clock_that_went_back_and_makes_no_gap_longer() -> None:
    assert told(asked(0, arrived=T - 5), asked(0.5)) == [(0.5, 1.0, "own delay", False)]


def test_a_request_within_a_retry_after_is_seen_and_so_is_the_next_one() -> None:
    busy = asked(0, result="429", until=T + 10)
    assert told(busy, asked(5), asked(9), asked(10.02)) == [
        (4.99, 9.99, "Retry-After", False),
        (3.99, 4.99, "Retry-After", False),
        (1.01, 1.0, "own delay", True),
    ]


def test_a_request_after_a_retry_after_is_good() -> None:
    assert told(asked(0, result="503", until=T + 10), asked(10)) == [(9.99, 9.99, "Retry-After", True)]


def test_of_two_waits_the_longer_one_holds() -> None:
    busy = [asked(0, until=T + 20), asked(20, until=T + 21), asked(20.5)]
    assert told(*busy)[-1] == (0.49, 1.0, "own delay", False)
    assert told(asked(0, until=T + 20), asked(2, until=T + 4), asked(6))[-1] == (3.99, 17.99, "Retry-After", False)


def test_a_back_off_is_kept_or_not() -> None:
    failed = asked(0, result="disconnect")
    assert told(failed, pause(0.02, 10), asked(10)) == [(9.99, 9.99, "back-off", True)]
    assert told(failed, pause(0.02, 10), asked(3)) == [(2.99, 9.99, "back-off", False)]


def test_a_request_that_was_never_sent_is_no_arrival_but_the_pause_after_it_holds() -> None:
    dead = asked(0, kind=UNSENT, result="connect")
    assert told(dead, asked(0.1), asked(0.2, kind=UNSENT), asked(1.11)) == [(1.0, 1.0, "own delay", True)]
    assert told(dead, pause(0.5, 2.5), asked(1)) == [(0.5, 2.0, "back-off", False)]
    assert told(dead, pause(0.5, 2.5), asked(2.5)) == [(2.0, 2.0, "back-off", True)]


def burst(*times: float, size: int = 3) -> list[tuple[float, float, str, bool]]:
    return told(*(asked(at, arrived=T + at, burst=size) for at in times))


def test_three_of_a_burst_may_come_at_once_and_a_fourth_not() -> None:
    assert [gap[2:] for gap in burst(0, 0.01, 0.02)] == [("burst", True)] * 2
    assert burst(0, 0.01, 0.02, 0.9)[-1][2:] == ("own delay", False)
    assert burst(0, 0.01, 0.02, 1.0, 2.0, 3.0)[-3:] == [
        (0.98, 0.98, "own delay", True),
        (1.0, 1.0, "own delay", True),
        (1.0, 1.0, "own delay", True),
    ]


def test_a_burst_comes_back_with_time_and_not_beyond_its_size() -> None:
    assert [gap[3] for gap in burst(0, 0, 0, 2, 2, 2)] == [True, True, True, True, False]
    assert [gap[3] for gap in burst(0, 0, 0, 60, 60, 60, 60)] == [True] * 5 + [False]


def test_a_pause_leaves_one_request_and_no_burst() -> None:
    told_at = [asked(0, burst=3, until=T + 60), asked(60, burst=3), asked(60.1, burst=3)]
    assert [gap[2:] for gap in told(*told_at)] == [("Retry-After", True), ("own delay", False)]


@pytest.mark.parametrize("slow", [{"crawl_delay": 1.0}, {"adaptive": 2.0}])
def test_a_host_that_is_asked_slowly_gets_no_burst_whatever_the_log_says(slow: dict[str, float]) -> None:
    assert not told(asked(0, burst=9, **slow), asked(0.5, burst=9, **slow))[0][3]


def test_a_crawl_delay_holds_from_the_request_on_before_which_it_was_known() -> None:
    gaps = told(asked(0), asked(1.5), asked(3, crawl_delay=4.0), asked(5.51, crawl_delay=4.0))
    assert gaps[0] == (1.49, 1.0, "own delay", True)
    assert gaps[1] == (1.49, 4.0, "Crawl-delay", False), "it was known when this one was sent"
    assert gaps[2] == (2.5, 4.0, "Crawl-delay", False)
    assert told(asked(0, crawl_delay=4.0), asked(1.5))[0] == (1.49, 1.0, "own delay", True), "it was taken back"


def test_the_longest_delay_is_named() -> None:
    for known, cause in (
        ({"crawl_delay": 0.5}, "own delay"),
        ({"crawl_delay": 2.0, "adaptive": 2.0}, "Crawl-delay"),
        ({"crawl_delay": 2.0, "adaptive": 2.1}, "adaptive"),
    ):
        assert told(asked(0), asked(5, **known))[0][2] == cause


def test_a_delay_of_zero_is_never_broken() -> None:
    [gap] = [gap for gap in judged(asked(0, delay=0.0), asked(0.005, delay=0.0)) if gap]
    assert (gap.ratio, gap.is_kept(0)) == (None, True)
