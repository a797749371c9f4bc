"""The end of visits: URLs done, clocks set, hosts given back, all in the caller's transaction."""

from collections.abc import Iterable
from typing import Any, NamedTuple

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


def settle(clocks: Iterable[Clock], visits: Iterable[Release] = (), using: str = "default") -> None:
    """Stores what became of leased hosts: the clocks of those that stay, and those that are given back.

    A host that is given back is claimable again when it is due, or idle when nothing waits on it. All
    rows are locked in one pass and in key order: before their queues are looked at (see
    frontier.fill.activate), and so that no other pass over the hosts can deadlock with this one.
    """
    sql = dialect(using)
    kept, done = sorted(clocks), sorted(visits)
    held = sorted([(clock.host, clock.token) for clock in kept] + [(visit.host, visit.token) for visit in done])
    with connections[using].cursor() as cursor:
        sql.lock_hosts(cursor, f"(id, lease) IN {sql.rows('id bigint, token bigint')}", [sql.pack(held)])
        if kept:
            _set_clocks(cursor, using, kept)
        if done:
            _give_back(cursor, using, done)


def _set_clocks(cursor: Any, using: str, clocks: list[Clock]) -> None:
    """Keeps a crash from making anyone impolite: what was asked for last is on record."""
    sql = dialect(using)
    cursor.execute(
        "UPDATE frontier_host SET due_at = told.due, gap_ms = told.gap"
        f" FROM {sql.rows('id bigint, token bigint, due bigint, gap bigint')} told"
        " WHERE frontier_host.id = told.id AND frontier_host.lease = told.token",
        [sql.pack(clocks)],
    )


def _give_back(cursor: Any, using: str, visits: list[Release]) -> None:
    sql = dialect(using)
    columns = "id bigint, token bigint, due bigint, gap bigint, failures smallint, reason text, parked boolean"
    cursor.execute(
        "UPDATE frontier_host SET lease = 0, due_at = told.due, next_at = told.due, gap_ms = told.gap,"
        " failures = told.failures, reason = told.reason, active = NOT blocked AND NOT told.parked AND EXISTS"
        " (SELECT 1 FROM frontier_queue WHERE host_id = frontier_host.id AND pending > 0)"
        f" FROM {sql.rows(columns)} told"
        " WHERE frontier_host.id = told.id AND frontier_host.lease = told.token",
        [sql.pack(visits)],
    )
