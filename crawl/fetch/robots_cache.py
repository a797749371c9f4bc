"""The rules of origins that this process visits, and how long they hold. The files themselves are in the database."""

import time
from dataclasses import dataclass

from crawl.fetch.robots import ROBOTS_LIFETIME_SECONDS, ROBOTS_STALE_SECONDS, ROBOTS_UNREACHABLE_SECONDS, Robots
from frontier.politeness import backoff_ms

MAX_ROBOTS_KEPT = 20_000
ROBOTS_MIN_LIFETIME_SECONDS = 3600  # a file that may not be kept at all would be asked for with every visit
RETIRE_SECONDS = 3600.0  # what is kept in memory of a host that was not visited for so long is dropped


@dataclass(slots=True)
class KeptRobots:
    """The rules of an origin: when they were fetched, until when they hold, when they were last looked at (all
    time.time()), and how often in a row a newer file could not be had."""

    robots: Robots
    fetched: float
    expires: float
    used: float
    failures: int = 0


class RobotsCache:
    """Robots by origin. Read on the fetch loop's thread, filled from any."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptRobots] = {}

    def get(self, origin: str) -> Robots | None:
        """The rules of an origin, or None when they must be fetched."""
        kept, now = self._kept.get(origin), time.time()
        if kept is None or kept.expires <= now:
            return None
        kept.used = now
        return kept.robots

    def knows(self, origin: str) -> bool:
        """Whether there are rules of an origin, expired ones included."""
        return origin in self._kept

    def keep(self, origin: str, robots: Robots, expires: float, fetched: float = 0.0) -> None:
        """Remembers rules until a time of time.time(), and for use beyond it where no newer ones can be had."""
        while len(self._kept) >= MAX_ROBOTS_KEPT:
            self._kept.pop(next(iter(self._kept)), None)  # other threads do the same
        now = time.time()
        self._kept[origin] = KeptRobots(robots, fetched or now, expires, now)

    def go_on_with_old(self, origin: str) -> bool:
        """Lets expired rules hold for a while longer, since the file cannot be fetched; False when there are none
        that are young enough. RFC 9309 sections 2.3.1.4 and 2.4."""
        kept, now = self._kept.get(origin), time.time()
        if kept is None or kept.fetched < now - ROBOTS_STALE_SECONDS:
            return False
        kept.failures += 1
        kept.expires = now + backoff_ms(kept.failures, ROBOTS_UNREACHABLE_SECONDS * 1000) / 1000
        return True

    def retire(self) -> None:
        """Forgets the rules of hosts that nobody has visited for long."""
        since = time.time() - RETIRE_SECONDS
        for origin in [origin for origin, kept in list(self._kept.items()) if kept.used < since]:
            self._kept.pop(origin, None)


def lifetime_seconds(cache_control: str, crawl_delay_seconds: float = 0) -> float:
    """How long a robots.txt holds: what its max-age says, but at least an hour and at most a day (RFC 9309 section
    2.4), which is also what it is without one.

    With a Crawl-delay beyond that every visit would be spent on asking for robots.txt anew, so it is two of them.
    """
    held: float = ROBOTS_LIFETIME_SECONDS
    for part in cache_control.lower().split(","):
        name, _, value = part.strip().partition("=")
        if name in ("no-cache", "no-store"):
            held = 0
        elif name == "max-age" and value.strip('"').isdecimal():
            held = min(held, int(value.strip('"')[:9]))
    return max(held, ROBOTS_MIN_LIFETIME_SECONDS, 2 * crawl_delay_seconds)
