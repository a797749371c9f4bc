"""Requests to a host outside its visits: the robots.txt of one host may lie on another, and `trawl fetch` asks beside
a crawl.

Such a request keeps the host's gap as well. It is booked on the host's row, which every visit reads when it is opened,
so no later visit comes too close; and a host that is being visited is not asked at all. `book` takes what is free now;
a `Reservation` also gets its turn between the visits of a host that has one after the other.
"""

from typing import Any, NamedTuple

import numpy as np
from django.db import connections, transaction

from frontier.politeness import now_ms
from frontier.schedule import HOST_BITS, HOST_MASK, LEASE_MASK, put_due
from frontier.sql import dialect

# A host that is being visited, or whose booking somebody else has, is looked at again after so long.
VISITED_MS = 2_000
# A reservation looks again after so long,
LOOK_MS = 200
# gives the visit that is under way so long to end before it is made anew,
VISIT_MS = 40_000
# and has room for so many requests: robots.txt, the page, and where that redirects to.
REQUESTS = 3
# A visit that would have to wait longer than 30 s gives its host back at once. So when the reservation ends early, the
# host does not sit in a visit that still waits.
LEAST_MS = 31_000


class Standing(NamedTuple):
    """A host: when its clock and the bookings of others let it be asked (ms since 1970), the gap it wants and the delay
    that the operator set for it (ms), why it waits, and the lease of the visit that is under way, 0 if none is."""

    host: int
    free_at: int
    booked_until: int
    gap_ms: int
    delay_ms: int | None
    reason: str
    lease: int


class Turn(NamedTuple):
    """When a host may be asked (ms since 1970), if the turn is one's own; else when to look again."""

    at: int
    is_mine: bool


class Reservation:
    """The next requests to a host, for somebody who waits until the visit that is under way has ended.

    A reservation that is not ended lapses by itself.
    """

    def __init__(self, name: str, using: str = "default") -> None:
        self.name = name
        self._using = using
        self._until = 0
        self._ahead = 0  # the lease of a visit that may have been opened before the booking was there to be read
        self._clock = 0
        self._made: set[int] = set()  # ends of the bookings

    def turn(self, gap_ms: int, flight_ms: int, not_before: int = 0) -> Turn | None:
        """Books the next request, which arrives at most `flight_ms` after its turn, with at least a gap after it.

        `not_before`: when the caller's own last request lets it be (ms since 1970). None: the frontier does not know
        the host, so nobody visits it.
        """
        now = now_ms()
        found = self.standing(now)
        if found is None:
            return None
        if now < found.booked_until:
            return Turn(now + LOOK_MS, is_mine=False)
        gap = max(gap_ms, found.gap_ms)
        start = max(now, found.free_at, not_before)
        if start + flight_ms + gap > self._until:
            if found.lease:
                start = max(start, now + VISIT_MS)
            if not self._put(found.host, start + max(flight_ms + REQUESTS * gap, LEAST_MS), now):
                return Turn(now + LOOK_MS, is_mine=False)
            # A visit that is opened from here on knows of it. The one that is under way may not, and it, or another
            # that ended in between, may have moved the clock.
            found = self.standing(now)
            if found is None:
                return None
            self._ahead = found.lease
        if found.lease and found.lease == self._ahead:
            return Turn(now + LOOK_MS, is_mine=False)
        return Turn(max(found.free_at, not_before), is_mine=True)

    def standing(self, now: int) -> Standing | None:
        """How the host stands but for the booking."""
        found = standing(self.name, now, self._using, booked=self._until)
        if found is None:
            return None
        # A visit that would have to wait for long ends at once, and leaves as the clock what it was told to wait for,
        # up to 1 ms later. That is no reason for the booking itself to wait.
        if not self._made & {found.free_at, found.free_at - 1}:
            self._clock = found.free_at
        return found._replace(free_at=self._clock)

    def _put(self, host: int, until: int, now: int) -> bool:
        with connections[self._using].cursor() as cursor:
            cursor.execute(
                "UPDATE frontier_host SET booked_until = %s"
                " WHERE id = %s AND (booked_until <= %s OR booked_until = %s)",
                [until, host, now, self._until],
            )
            if cursor.rowcount:
                self._until = until
                self._made.add(until)
            return bool(cursor.rowcount)

    def end(self, until: int) -> None:
        """The host may be asked again at a time (ms since 1970)."""
        if not self._until:
            return
        with transaction.atomic(using=self._using), connections[self._using].cursor() as cursor:
            cursor.execute(
                "UPDATE frontier_host SET booked_until = %s"
                " WHERE name = %s AND (booked_until = %s OR booked_until < %s)",
                [until, self.name, self._until, until],
            )
            self._bring_forward(cursor, max(until, self._clock))
        self._until = self._ahead = 0

    def _bring_forward(self, cursor: Any, due_at: int) -> None:
        """A host that waits for the end of the booking becomes due earlier."""
        rows = dialect(self._using).select(
            cursor,
            "id, due_at, gap_ms",
            f"FROM (SELECT d.id, d.due_at, d.gap_ms FROM frontier_duehost d JOIN frontier_host h"
            f" ON d.id >= %s AND d.id & {HOST_MASK} = h.id WHERE h.name = %s) waiting",
            [now_ms() // 1000 << HOST_BITS, self.name],
        )
        for key, clock, gap in rows:
            if due_at < clock and self._made & {clock, clock - 1}:
                cursor.execute("DELETE FROM frontier_duehost WHERE id = %s", [key])
                if cursor.rowcount:  # nobody has claimed it since
                    level = (key >> HOST_BITS) - clock // 1000
                    put_due(cursor, self._using, np.array([[key & HOST_MASK], [due_at], [gap], [level]], np.int64))


def book(name: str, gap_ms: int, using: str = "default") -> int | None:
    """Takes the next request to a host, with at least a gap after it.

    Returns 0: it may be sent now; a time (ms since 1970): ask again then; None: the frontier does not know the host,
    so nobody visits it.
    """
    now = now_ms()
    before = standing(name, now, using)
    if before is None:
        return None
    if refused := _refused(before, now):
        return refused
    until = now + max(gap_ms, before.gap_ms)
    with connections[using].cursor() as cursor:
        cursor.execute(
            "UPDATE frontier_host SET booked_until = %s WHERE id = %s AND booked_until <= %s",
            [until, before.host, now],
        )
        if not cursor.rowcount:
            return now + VISITED_MS
    # A visit that is opened from here on knows of it. One that was opened, and perhaps ended, in between is seen now.
    after = standing(name, now, using, booked=until)
    return _refused(after, now) if after else None


def end_booking(name: str, arrived_at: int, until: int, using: str = "default") -> None:
    """The request that was booked has arrived (ms since 1970): the host may be asked again at another time, and not
    before its own gap is over, which the caller need not know."""
    found = standing(name, now_ms(), using)
    if found is None:
        return
    with connections[using].cursor() as cursor:
        cursor.execute(
            "UPDATE frontier_host SET booked_until = %s WHERE id = %s",
            [max(until, arrived_at + found.gap_ms), found.host],
        )


def standing(name: str, now: int, using: str = "default", booked: int = 0) -> Standing | None:
    """How a host stands; None: the frontier does not know it. `booked`: a booking that is the caller's own.

    One statement, since a host moves between the tables. Looks through the hosts that are leased, and those that wait
    for a time to come: neither are many.
    """
    due = f"h.active AND d.id >= %s AND d.id & {HOST_MASK} = h.id"
    leased = f"h.active AND l.id & {HOST_MASK} = h.id"
    with connections[using].cursor() as cursor:
        rows = dialect(using).select(
            cursor,
            "host, due_at, gap_ms, delay_ms, booked_until, reason,"
            " leased, lease_ends, leased_clock, leased_gap, clock, gap",
            "FROM (SELECT h.id AS host, CASE WHEN h.active THEN 0 ELSE h.due_at END AS due_at, h.gap_ms, h.delay_ms,"
            " h.booked_until, h.reason,"
            f" (SELECT max(l.id) FROM frontier_leasedhost l WHERE {leased}) AS leased,"
            " (SELECT max(e.ends_at) FROM frontier_leasedhost l JOIN frontier_lease e"
            f" ON e.id & {LEASE_MASK} = l.id >> {HOST_BITS} WHERE {leased}) AS lease_ends,"
            f" (SELECT max(l.due_at) FROM frontier_leasedhost l WHERE {leased}) AS leased_clock,"
            f" (SELECT max(l.gap_ms) FROM frontier_leasedhost l WHERE {leased}) AS leased_gap,"
            f" (SELECT max(d.due_at) FROM frontier_duehost d WHERE {due}) AS clock,"
            f" (SELECT max(d.gap_ms) FROM frontier_duehost d WHERE {due}) AS gap"
            " FROM frontier_host h WHERE h.name = %s) found",
            [now // 1000 << HOST_BITS, now // 1000 << HOST_BITS, name],
        )
    if not rows:
        return None
    host, due_at, gap_ms, delay_ms, booked_until, reason, *clocks = rows[0]
    leased_id, lease_ends, leased_clock, leased_gap, clock, gap = (value or 0 for value in clocks)
    gap = max(gap_ms, delay_ms or 0, leased_gap, gap)
    free_at, lease = max(due_at, leased_clock, clock), leased_id >> HOST_BITS
    if lease and lease_ends <= now:  # its worker has died, perhaps after a request that was not recorded
        free_at, lease = max(free_at, lease_ends + gap), 0
    return Standing(host, free_at, 0 if booked_until == booked else booked_until, gap, delay_ms, reason, lease)


def _refused(before: Standing, now: int) -> int:
    """When to ask again; 0: it need not be."""
    if before.lease or now < before.booked_until:
        return now + VISITED_MS
    return before.free_at if before.free_at > now else 0
