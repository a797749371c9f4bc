"""Clocks and gaps: when a host may be sent its next request. Pure functions; all times in milliseconds."""

import random
import time
from typing import NamedTuple

# Doubling back-off of a host that does not answer: 10 s, 20 s, ... up to an hour.
BACKOFF_FIRST_MS = 10_000
BACKOFF_MAX_MS = 3_600_000


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
