"""A request to a host outside its visits: the robots.txt of one host may lie on another.

Such a request keeps the other host's gap as well. It is booked on that host's row, which every visit reads when it
is opened, so no later visit comes too close; and a host that is being visited is not asked at all.
"""

from typing import NamedTuple

from django.db import connections

from frontier.politeness import now_ms
from frontier.schedule import HOST_BITS, HOST_MASK
from frontier.sql import dialect

# A host that is being visited, or whose booking somebody else has, is looked at again after so long.
VISITED_MS = 2_000


class _Standing(NamedTuple):
    """A host: when its clock and the bookings of others let it be asked (ms since 1970), the gap it wants (ms), and
    whether somebody is visiting it."""

    host: int
    free_at: int
    booked_until: int
    gap_ms: int
    visited: bool


def book(name: str, gap_ms: int, using: str = "default") -> int | None:
    """Takes the next request to a host, with at least a gap after it.

    Returns 0: it may be sent now; a time (ms since 1970): ask again then; None: the frontier does not know the host,
    so nobody visits it.
    """
    now = now_ms()
    before = _standing(name, now, using)
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
    after = _standing(name, now, using, booked=until)
    return _refused(after, now) if after else None


def _refused(standing: _Standing, now: int) -> int:
    """When to ask again; 0: it need not be."""
    if standing.visited or now < standing.booked_until:
        return now + VISITED_MS
    return standing.free_at if standing.free_at > now else 0


def _standing(name: str, now: int, using: str, booked: int = 0) -> _Standing | None:
    """One statement, since a host moves between the tables. Looks through the hosts that are leased, and those that
    wait for a time to come: neither are many. `booked`: a booking that is the caller's own."""
    due = f"h.active AND d.id >= %s AND d.id & {HOST_MASK} = h.id"
    with connections[using].cursor() as cursor:
        rows = dialect(using).select(
            cursor,
            "host, due_at, gap_ms, delay_ms, booked_until, leased, clock, gap",
            "FROM (SELECT h.id AS host, CASE WHEN h.active THEN 0 ELSE h.due_at END AS due_at, h.gap_ms, h.delay_ms,"
            " h.booked_until,"
            f" (SELECT count(*) FROM frontier_leasedhost l WHERE h.active AND l.id & {HOST_MASK} = h.id) AS leased,"
            f" (SELECT max(d.due_at) FROM frontier_duehost d WHERE {due}) AS clock,"
            f" (SELECT max(d.gap_ms) FROM frontier_duehost d WHERE {due}) AS gap"
            " FROM frontier_host h WHERE h.name = %s) found",
            [now // 1000 << HOST_BITS, now // 1000 << HOST_BITS, name],
        )
    if not rows:
        return None
    host, due_at, gap_ms, delay_ms, booked_until, leased, clock, gap = rows[0]
    if booked_until == booked:
        booked_until = 0
    return _Standing(host, max(due_at, clock or 0), booked_until, max(gap_ms, delay_ms or 0, gap or 0), bool(leased))


def end_booking(name: str, until: int, using: str = "default") -> None:
    """The request that was booked has arrived: the host may be asked again at a time (ms since 1970)."""
    with connections[using].cursor() as cursor:
        cursor.execute("UPDATE frontier_host SET booked_until = %s WHERE name = %s", [until, name])
