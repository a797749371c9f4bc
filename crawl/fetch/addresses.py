"""Clocks of server addresses: hosts that share a server share what it can bear.

A clock lives in one process and is forgotten with it: it spaces the requests of many hosts, each of which has a
clock of its own that is kept (frontier/schedule.py), and the gap between two of them is small.
"""

import math

# A place that nobody has taken up for so long is free again (seconds).
KEPT_SECONDS = 60.0
MAX_ADDRESSES = 100_000


class AddressClocks:
    """When a host may send its next request to an address. Times are seconds of any one clock.

    A host that must wait gets a place of its own in the row before the address, so it need not stand there:
    it may come back later, and those that came after it do not go first.
    """

    def __init__(self) -> None:
        self._sent: dict[str, float] = {}
        self._end: dict[str, float] = {}  # the last place in the row that was given out
        self._places: dict[tuple[str, str], float] = {}

    def ask(self, address: str, host: str, gap: float, now: float) -> float:
        """Returns `now`: the host sends its request now, or else when it should ask again."""
        place = self._places.pop((address, host), -math.inf)
        free = self._sent.get(address, -math.inf) + gap
        if place < now - KEPT_SECONDS:  # a host without a place goes behind all that have one
            place = max(now, free, self._end.get(address, -math.inf) + gap)
        else:
            place = max(now, free, place)
        self._end[address] = max(place, self._end.get(address, -math.inf))
        if place > now:
            self._places[address, host] = place
        else:
            self._sent[address] = now
        if len(self._sent) + len(self._places) > MAX_ADDRESSES:
            self._forget(now)
        return place

    def _forget(self, now: float) -> None:
        """Drops what is long over; if that is not enough, everything."""
        for kept in (self._sent, self._end, self._places):
            for key in [key for key, at in kept.items() if at < now - KEPT_SECONDS]:
                del kept[key]  # type: ignore[arg-type]
            if len(kept) > MAX_ADDRESSES // 2:
                kept.clear()
