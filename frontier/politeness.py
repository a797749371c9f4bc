"""Clocks and gaps: when a host may be sent its next request. Pure functions; all times in milliseconds."""

import random
import time

# Doubling back-off of a host that does not answer: 10 s, 20 s, ... up to an hour.
BACKOFF_FIRST_MS = 10_000
BACKOFF_MAX_MS = 3_600_000


def now_ms() -> int:
    """The wall clock in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def backoff_ms(failures: int, first_ms: int = BACKOFF_FIRST_MS, jitter: float | None = None) -> int:
    """The wait after so many failures in a row: doubling, capped, up to 25 % longer by chance, so
    that hosts that failed together do not come back together."""
    wait = min(first_ms << min(max(failures - 1, 0), 20), BACKOFF_MAX_MS)
    return int(wait * (1 + 0.25 * (random.random() if jitter is None else jitter)))
