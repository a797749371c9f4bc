"""The end of visits: URLs done, clocks set, hosts given back, all in the caller's transaction."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from django.db import connections

from frontier.counts import Count, change
from frontier.models import SEQUENCE_BITS
from frontier.priority import HELD
from frontier.schedule import leased_key, put_due, rest, with_urls
from frontier.sql import dialect


class Clock(NamedTuple):
    """A host under lease and when its next request may be sent (ms since 1970)."""

    host: int
    token: int
    due_at: int
    gap_ms: int


class Release(NamedTuple):
    """A host to give back: its clock, its failures in a row, and why it waits ('' for politeness).

    `changed`: whether failures and reason may differ from what `open_visits` said; when not, no row is written.

    A parked host is not claimed again until `frontier.claim.wake`; what waits on it stays. With `parked_until` (ms
    since 1970) it comes back by itself then, or with a seed; without, with any URL that is added to it.
    """

    host: int
    token: int
    due_at: int
    gap_ms: int
    failures: int
    reason: str
    parked: bool = False
    changed: bool = True
    parked_until: int = 0


def finish(campaign: int, rows: Iterable[int], using: str = "default") -> None:
    """Takes visited URLs of a campaign (queue row ids) out of their queues; those that are gone already do
    not count twice."""
    with connections[using].cursor() as cursor:
        free: list[int] = []
        held: list[int] = []
        for row in sorted(rows):
            (held if row >> SEQUENCE_BITS & HELD == HELD else free).append(row)
        gone = [dialect(using).delete_urls(cursor, part) if part else 0 for part in (free, held)]
        change(cursor, {campaign: Count(-gone[0], -gone[1])})


def settle(clocks: Iterable[Clock], visits: Iterable[Release] = (), using: str = "default") -> None:
    """Stores what became of leased hosts: the clocks of those that stay, and those that are given back.

    A host that is given back is due again, or idle when nothing waits on it. Hosts whose lease was lost are
    left alone.
    """
    kept = {leased_key(clock.host, clock.token): clock for clock in clocks}
    done = {leased_key(visit.host, visit.token): visit for visit in visits}
    if not kept and not done:
        return
    with connections[using].cursor() as cursor:
        held = _still_held(cursor, using, sorted(kept.keys() | done.keys()))
        _set_clocks(cursor, using, [(key, kept[key].due_at, kept[key].gap_ms) for key in held if key in kept])
        ended = [key for key in held if key in done]
        if ended:
            sql = dialect(using)
            cursor.execute(f"DELETE FROM frontier_leasedhost WHERE id IN {sql.rows('id bigint')}", [sql.pack(ended)])
            _give_back(cursor, using, {done[key].host: done[key] for key in ended})


def _still_held(cursor: Any, using: str, keys: list[int]) -> list[int]:
    """Which leased hosts (keys in order) are so still, their rows locked: in one pass and in key order, so that
    no other pass over them can deadlock with this one."""
    sql = dialect(using)
    found = f"FROM frontier_leasedhost WHERE id IN {sql.rows('id bigint')} ORDER BY id {sql.LOCK_ROWS}"
    held: list[int] = sql.columns(cursor, "id", found, [sql.pack(keys)])[0].tolist()
    return held


def _set_clocks(cursor: Any, using: str, clocks: list[tuple[int, int, int]]) -> None:
    """Keeps a crash from making anyone impolite: what was asked for last is on record."""
    if clocks:
        sql = dialect(using)
        cursor.execute(
            "UPDATE frontier_leasedhost SET due_at = told.due, gap_ms = told.gap"
            f" FROM {sql.rows('id bigint, due bigint, gap bigint')} told WHERE frontier_leasedhost.id = told.id",
            [sql.pack(clocks)],
        )


def _give_back(cursor: Any, using: str, ended: dict[int, Release]) -> None:
    """Makes hosts due again that have just left their lease, or idle."""
    sql = dialect(using)
    busy = with_urls(cursor, using, [host for host in sorted(ended) if not ended[host].parked])
    idle = sorted(ended.keys() - busy.keys())
    changed = sorted((host, one.failures, one.reason) for host, one in ended.items() if one.changed)
    locked = sorted({*idle, *(host for host, *_ in changed)})
    if locked:
        sql.lock_rows(cursor, "frontier_host", f"id IN {sql.rows('id bigint')}", [sql.pack(locked)])
    if changed:
        cursor.execute(
            "UPDATE frontier_host SET failures = told.failures, reason = told.reason"
            f" FROM {sql.rows('id bigint, failures smallint, reason text')} told WHERE frontier_host.id = told.id",
            [sql.pack(changed)],
        )
    if idle and sql.LOCK_ROWS:  # the merge may have added a URL since
        busy |= with_urls(cursor, using, [host for host in idle if not ended[host].parked])
    due = [(host, ended[host].due_at, ended[host].gap_ms, level) for host, level in busy.items()]
    put_due(cursor, using, np.array(due, np.int64).reshape(-1, 4).T)
    rest(cursor, using, [(host, ended[host].due_at, ended[host].gap_ms) for host in idle if host not in busy])
    parked = [(host, one.parked_until) for host, one in sorted(ended.items()) if one.parked and one.parked_until]
    if parked:
        cursor.execute(
            "UPDATE frontier_host SET parked_until = told.until"
            f" FROM {sql.rows('id bigint, until bigint')} told WHERE frontier_host.id = told.id",
            [sql.pack(parked)],
        )
