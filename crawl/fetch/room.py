"""How many hosts a worker visits at once.

A visit that moves costs CPU, so there is room for a set number of them. One that waits for a slow answer costs a
connection and nothing else. If it kept its place, a thousand hosts that drip a byte a second would keep all others
out; so it gives its place to another host after a moment, as long as there are connections.
"""

import resource
import time
from collections.abc import Iterable

SLOW_SECONDS = 2.0  # a request that has been under way for so long is slow
# Slow visits beside those that move, as a multiple of these. Each holds a connection and its URLs, about 100 kB.
SLOW_SHARE = 3
MOST_FILES = 65_536
OTHER_FILES = 256  # that a process has open beside its connections


def allow_many_files() -> None:
    """Raises the soft limit on open files to the hard one: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Room:
    """`capacity`: hosts that can be visited at once, those that are slow included."""

    def __init__(self, moving: int) -> None:
        self._moving = moving
        self.capacity = moving

    def changed(self, asked_at: Iterable[float]) -> bool:
        """Looks at the visits: when each began the request that is under way (time.time()), 0.0 for none. Returns
        whether the capacity has grown, or fallen far enough to tell."""
        since = time.time() - SLOW_SECONDS
        slow = sum(1 for at in asked_at if 0.0 < at < since)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            files = MOST_FILES
        most = min(self._moving * SLOW_SHARE, max(0, files - OTHER_FILES - self._moving))
        capacity = self._moving + min(slow, most)
        if abs(capacity - self.capacity) <= self._moving // 50:
            return False
        grown = capacity > self.capacity
        self.capacity = capacity
        return grown or capacity == self._moving
