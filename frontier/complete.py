"""The end of visits: URLs done, clocks set, hosts given back, all in the caller's transaction."""

from collections.abc import Iterable
from typing import NamedTuple

from django.db import connections

from frontier.sql import dialect


class Clock(NamedTuple):
    """A host under lease and when its next request may be sent (ms since 1970)."""

    host: int
    token: int
    due_at: int
    gap_ms: int


class Release(NamedTuple):
    """A host to give back: its clock, its failures in a row, and why it waits ('' for politeness).

    A parked host is not claimed again until `frontier.claim.wake` or until a URL is added to it; what
    waits on it stays.
    """

    host: int
    token: int
    due_at: int
    gap_ms: int
    failures: int
    reason: str
    parked: bool = False


def finish(rows: Iterable[int], using: str = "default") -> None:
    """Takes visited URLs (queue row ids) out of their queues; rows that are gone already do not count twice."""
    with connections[using].cursor() as cursor:
        dialect(using).delete_urls(cursor, sorted(rows))


def set_clocks(clocks: Iterable[Clock], using: str = "default") -> None:
    """Stores when hosts under lease may be asked again, so that a crash cannot make anyone impolite."""
    sql = dialect(using)
    told = sorted(clocks)
    held = sql.pack([(clock.host, clock.token) for clock in told])
    with connections[using].cursor() as cursor:
        sql.lock_hosts(cursor, f"(id, lease) IN {sql.rows('id bigint, token bigint')}", [held])
        cursor.execute(
            "UPDATE frontier_host SET due_at = told.due, gap_ms = told.gap"
            f" FROM {sql.rows('id bigint, token bigint, due bigint, gap bigint')} told"
            " WHERE frontier_host.id = told.id AND frontier_host.lease = told.token",
            [sql.pack(told)],
        )


def release(visits: Iterable[Release], using: str = "default") -> None:
    """Gives hosts back, each claimable again when it is due, or idle when nothing waits on it.

    The host rows are locked before their queues are looked at (see frontier.fill.activate).
    """
    sql = dialect(using)
    done = sorted(visits)
    ids = sql.pack([visit.host for visit in done])
    with connections[using].cursor() as cursor:
        sql.lock_hosts(cursor, f"id IN {sql.rows('id bigint')}", [ids])
        cursor.execute(
            "UPDATE frontier_host SET lease = 0, due_at = told.due, next_at = told.due, gap_ms = told.gap,"
            " failures = told.failures, reason = told.reason, active = NOT blocked AND NOT told.parked AND EXISTS"
            " (SELECT 1 FROM frontier_queue WHERE host_id = frontier_host.id AND pending > 0)"
            " FROM "
            + sql.rows(
                "id bigint, token bigint, due bigint, gap bigint, failures smallint, reason text, parked boolean"
            )
            + " told WHERE frontier_host.id = told.id AND frontier_host.lease = told.token",
            [sql.pack(done)],
        )
