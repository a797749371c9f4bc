"""The clock of a host is a token bucket, whatever the moments at which requests arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.politeness import Pace, next_at

T = 1_800_000_000_000.0


def asked_as_soon_as_allowed(pace: Pace, number: int, allowed: float = 0.0, at: float = T, takes: float = 0.0):
    """The moments (after T) of so many requests; each takes its time to arrive."""
    moments = []
    for _ in range(number):
        at = max(at, allowed) + takes
        moments.append(at - T)
        allowed = next_at(allowed, at, pace)
    return moments


def test_without_a_burst_every_request_waits_the_delay() -> None:
    assert asked_as_soon_as_allowed(Pace(1_000), 4) == [0, 1_000, 2_000, 3_000]
    assert asked_as_soon_as_allowed(Pace(1_000), 3, takes=200) == [200, 1_400, 2_600]


def test_a_burst_is_given_at_once_and_then_one_request_each_delay() -> None:
    assert asked_as_soon_as_allowed(Pace(1_000, 4), 7) == [0, 0, 0, 0, 1_000, 2_000, 3_000]


def test_a_burst_comes_back_while_the_host_is_left_alone() -> None:
    pace, allowed = Pace(1_000, 3), 0.0
    for at in (0, 0, 0):
        allowed = next_at(allowed, T + at, pace)
    assert asked_as_soon_as_allowed(pace, 4, allowed, at=T + 2_000) == [2_000, 2_000, 3_000, 4_000]
    assert asked_as_soon_as_allowed(pace, 4, allowed, at=T + 60_000) == [60_000, 60_000, 60_000, 61_000]


def test_without_a_delay_nobody_waits() -> None:
    assert asked_as_soon_as_allowed(Pace(0), 3) == [0, 0, 0]


def test_a_wait_that_was_asked_for_leaves_one_request_and_no_burst() -> None:
    assert asked_as_soon_as_allowed(Pace(1_000, 10), 3, allowed=T + 30_000) == [30_000, 31_000, 32_000]


class Bucket:
    """The token bucket of the textbooks, with a count of tokens."""

    def __init__(self, pace: Pace) -> None:
        self.pace, self.tokens, self.at = pace, float(pace.burst), T

    def fill(self, at: float) -> float:
        return min(self.pace.burst, self.tokens + (at - self.at) / self.pace.delay)

    def next(self) -> float:
        missing = 1 - self.tokens
        return self.at + missing * self.pace.delay

    def take(self, at: float) -> None:
        self.tokens, self.at = self.fill(at) - 1, at


@given(
    delay=st.sampled_from([100, 1_000, 7_000]),
    burst=st.integers(1, 20),
    waits=st.lists(st.floats(0, 50_000), max_size=40),
)
def test_it_is_the_token_bucket_of_the_textbooks(delay: int, burst: int, waits: list[float]) -> None:
    pace = Pace(delay, burst)
    bucket, allowed, at = Bucket(pace), 0.0, T
    for wait in waits:
        at = max(at, allowed) + wait
        bucket.take(at)
        allowed = next_at(allowed, at, pace)
        assert max(allowed, at) == pytest.approx(max(bucket.next(), at), abs=1)
