"""Clocks and gaps: when a host may be sent its next request. Pure functions; all times in milliseconds."""

import random
import time
from typing import NamedTuple

# Doubling back-off of a host that does not answer: 10 s, 20 s, ... up to an hour.
BACKOFF_FIRST_MS = 10_000
BACKOFF_MAX_MS = 3_600_000
# A host that needs a second for an answer is asked every third second: it is busy with us a quarter of the time at
# most, whatever the delay. A quarter of each answer counts, so one slow page does not set the pace.
ADAPTIVE_FACTOR = 3
ADAPTIVE_SHARE = 0.25
ADAPTIVE_MAX_MS = 60_000.0
ERRORS_MOST = 8  # errors one after another slow a host down to an eighth of its pace
# When a host that failed again and again is tried once more: after an hour, six hours, and then every day.
PARK_MS = (3_600_000, 6 * 3_600_000, 24 * 3_600_000)


def now_ms() -> int:
    """The wall clock in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


class Pace(NamedTuple):
    """How fast a host may be asked: one request each `delay` (ms) in the long run, and `burst` of them one right
    after another once it was left alone for burst * delay."""

    delay: int
    burst: int = 1


def next_at(allowed_at: float, arrived_at: float, pace: Pace) -> float:
    """When the next request may arrive, given when this one was allowed to and when it did; all in milliseconds.

    A token bucket of `burst` tokens, one more every `delay`, needs no counter: the time from which the next
    request is allowed says it all (the virtual scheduling of ITU-T I.371). A time in the past is credit; it is
    capped by what the bucket holds. So a clock that is stored is a limiter that survives a restart.
    """
    full = arrived_at - (pace.burst - 2) * pace.delay
    return max(allowed_at + pace.delay, full)


def backoff_ms(failures: int, first_ms: int = BACKOFF_FIRST_MS, jitter: float | None = None) -> int:
    """The wait after so many failures in a row: doubling, capped, up to 25 % longer by chance, so
    that hosts that failed together do not come back together."""
    wait = min(first_ms << min(max(failures - 1, 0), 20), BACKOFF_MAX_MS)
    return int(wait * (1 + 0.25 * (random.random() if jitter is None else jitter)))


def adapted_ms(delay: float, answer_ms: float, good: bool) -> float:
    """The adaptive delay (ms) after an answer: it moves towards a multiple of the time to the first byte.

    An error never lowers it: a server that can do nothing any more refuses fast.
    """
    wanted = min(ADAPTIVE_FACTOR * answer_ms, ADAPTIVE_MAX_MS)
    if wanted < delay and not good:
        return delay
    return delay + (wanted - delay) * ADAPTIVE_SHARE


def slowed_ms(delay: float, gap_ms: float, own_ms: float) -> float:
    """The adaptive delay (ms) after one of several errors in a row: twice the gap that was kept, up to a multiple of
    the host's own delay."""
    return max(delay, min(2 * gap_ms, ERRORS_MOST * own_ms, ADAPTIVE_MAX_MS))


def park_ms(times: int, jitter: float | None = None) -> int:
    """How long a host is parked that was parked so many times before, without an answer in between; up to 25 % longer
    by chance."""
    wait = PARK_MS[min(max(times, 0), len(PARK_MS) - 1)]
    return int(wait * (1 + 0.25 * (random.random() if jitter is None else jitter)))
