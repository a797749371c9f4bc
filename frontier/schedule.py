"""When hosts may be visited: the moves of a host between due, leased and idle.

An active host has exactly one row, in DueHost or in LeasedHost; an idle one has neither, and its clock
is on its own row. Both tables are short rows in the order in which they are read and written, so a claim
of 512 hosts and their return touch a few pages and not a thousand.

Only an idle host can be made due here, under the lock of its row: so no host stands there twice.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from django.db import connections

from frontier.counts import first_level, first_level_of
from frontier.lines import I64
from frontier.models import DueHost, Host
from frontier.politeness import now_ms
from frontier.priority import SEED
from frontier.sql import dialect

Number = TypeVar("Number", int, I64)

HOST_BITS = 31
HOST_MASK = (1 << HOST_BITS) - 1
LEASE_MASK = 0xFFFF_FFFF
# A host on which only URLs of level n wait lets hosts pass that became due up to n times this much later,
# if their URLs are of level 0. It still waits its turn and no longer, so none starves.
LEVEL_MS = 1000
MOST_PUT_OFF_MS = 15 * LEVEL_MS


def due_key(host: Number, due_at: Number, level: Number) -> Number:
    """The id of a DueHost row, or of many."""
    return ((due_at + level * LEVEL_MS) // 1000 << HOST_BITS) | host


def leased_key(host: int, lease: int) -> int:
    """The id of a LeasedHost row. Of a lease 32 bits: none is alive when the numbers come round."""
    return ((lease & LEASE_MASK) << HOST_BITS) | host


def put_due(cursor: Any, using: str, hosts: I64) -> None:
    """Makes hosts due that are in no other state: rows of host id, clock (ms since 1970), gap (ms), and the best
    level of the URLs that wait on it; shape (4, n).

    A clock may lie in the past: the host has a burst to its credit, or nobody has visited it for long. It
    takes its place behind those that have been waiting.
    """
    host, due_at, gap, level = hosts
    _insert(cursor, using, "frontier_duehost", due_key(host, np.maximum(due_at, now_ms()), level), due_at, gap)


def put_leased(cursor: Any, using: str, lease: int, hosts: I64) -> None:
    """Puts hosts under a lease that are in no other state: rows of host id, clock and gap; shape (3, n)."""
    host, due_at, gap = hosts
    _insert(cursor, using, "frontier_leasedhost", leased_key(0, lease) | host, due_at, gap)


def _insert(cursor: Any, using: str, table: str, keys: I64, due_at: I64, gap: I64) -> None:
    order = np.argsort(keys)
    columns = [column[order].tolist() for column in (keys, due_at, gap)]
    dialect(using).insert(cursor, table, "id bigint, due_at bigint, gap_ms bigint", columns)


class NextHost(NamedTuple):
    """The host that is claimed next, its clock and why it waits ('' for politeness)."""

    name: str
    due_at: int
    reason: str


def next_due(using: str = "default") -> NextHost | None:
    """The host that is claimed next, or None when all are idle or leased."""
    row = DueHost.objects.using(using).order_by("id").first()
    if row is None:
        return None
    host = Host.objects.using(using).get(id=row.host_id)
    return NextHost(host.name, row.due_at, host.reason)


class Slot(NamedTuple):
    """Where a host stands in the schedule: its clock, when its lease ends (None: nobody holds it), and its gap (ms)."""

    due_at: int
    lease_ends_at: int | None
    gap_ms: int


def slots(hosts: Iterable[int], using: str = "default") -> dict[int, Slot]:
    """Where active hosts stand. Reads the whole schedule: for look-ups, not for the crawl itself."""
    wanted = dialect(using).pack(sorted(hosts))
    rows = dialect(using).rows("id bigint")
    with connections[using].cursor() as cursor:
        found = dialect(using).select(
            cursor,
            "host, due_at, ends_at, gap_ms",
            f"FROM (SELECT id & {HOST_MASK} AS host, due_at, NULL AS ends_at, gap_ms FROM frontier_duehost"
            f" WHERE id & {HOST_MASK} IN {rows} UNION ALL SELECT h.id & {HOST_MASK}, h.due_at, l.ends_at, h.gap_ms"
            f" FROM frontier_leasedhost h JOIN frontier_lease l ON l.id = h.id >> {HOST_BITS}"
            f" WHERE h.id & {HOST_MASK} IN {rows}) slots",
            [wanted, wanted],
        )
    return {host: Slot(due_at, ends_at, gap_ms) for host, due_at, ends_at, gap_ms in found}


def activate(cursor: Any, using: str, condition: str, params: Sequence[Any]) -> None:
    """Makes the idle ones of the hosts that meet an SQL condition due, if URLs wait on them and no block covers them.

    All their rows are locked before their queues are looked at: somebody may be finding a host idle in this
    very moment, and the URL that was just added must not wait for the next one.
    """
    sql = dialect(using)
    sql.lock_rows(cursor, "frontier_host", condition, params)
    found = sql.columns(
        cursor,
        "id, due_at, gap_ms, level",
        f"FROM (SELECT id, due_at, gap_ms, {first_level('frontier_host.id')} AS level FROM frontier_host"
        f" WHERE NOT active AND NOT blocked AND {condition}) found WHERE level IS NOT NULL",
        params,
    )
    _begin(cursor, using, found)


def activate_owners(cursor: Any, using: str, queues: I64, levels: I64) -> None:
    """The same for the hosts of queues to which URLs were added, with the best level of these.

    A host that is parked for a time does not come back for a link, of which a dead host may get many, but for a seed.
    """
    if not len(queues):
        return
    sql = dialect(using)
    owners = f"id IN (SELECT host_id FROM frontier_queue WHERE id IN {sql.rows('id bigint')})"
    sql.lock_rows(cursor, "frontier_host", owners, [sql.pack(queues.tolist())])
    found = sql.columns(
        cursor,
        "id, due_at, gap_ms, level",
        "FROM (SELECT h.id, h.due_at, h.gap_ms, min(told.filled & 15) AS level"
        f" FROM {sql.rows('filled bigint')} told JOIN frontier_queue q ON q.id = told.filled >> 4"
        " JOIN frontier_host h ON h.id = q.host_id WHERE NOT h.active AND NOT h.blocked"
        f" AND (h.parked_until IS NULL OR told.filled & 15 = {SEED})"
        " GROUP BY h.id, h.due_at, h.gap_ms) found",
        [sql.pack((queues << 4 | levels).tolist())],
    )
    _begin(cursor, using, found)


def _begin(cursor: Any, using: str, hosts: I64) -> None:
    if hosts.size:
        sql = dialect(using)
        cursor.execute(
            f"UPDATE frontier_host SET active = true, parked_until = NULL WHERE id IN {sql.rows('id bigint')}",
            [sql.pack(sorted(hosts[0].tolist()))],
        )
        hosts[1][hosts[1] == 0] = now_ms()  # never visited
        put_due(cursor, using, hosts)


def rest(cursor: Any, using: str, hosts: Sequence[tuple[int, int, int]]) -> None:
    """Makes hosts idle that have left both tables: (host id, due_at, gap) each. The caller has locked their rows."""
    if hosts:
        sql = dialect(using)
        cursor.execute(
            "UPDATE frontier_host SET active = false, due_at = told.due, gap_ms = told.gap"
            f" FROM {sql.rows('id bigint, due bigint, gap bigint')} told WHERE frontier_host.id = told.id",
            [sql.pack(hosts)],
        )


def take_back(cursor: Any, using: str, condition: str, params: Sequence[Any], now: int) -> int:
    """Ends the leases that meet an SQL condition; their hosts are due again. Returns the number of hosts.

    The last request of a worker that died may not have been recorded, so each host waits its own gap from
    now on, or longer where its clock says so.
    """
    sql = dialect(using)
    leases = sql.columns(cursor, "id", f"FROM frontier_lease WHERE {condition} ORDER BY id {sql.SKIP_LOCKED}", params)
    if not leases.size:
        return 0
    ids = sql.pack([lease & LEASE_MASK for lease in leases[0].tolist()])
    held = f"id >> {HOST_BITS} IN {sql.rows('id bigint')}"
    sql.lock_rows(cursor, "frontier_leasedhost", held, [ids])
    keys, due_at, gap = sql.columns(cursor, "id, due_at, gap_ms", f"FROM frontier_leasedhost WHERE {held}", [ids])
    cursor.execute(f"DELETE FROM frontier_leasedhost WHERE {held}", [ids])
    cursor.execute(f"DELETE FROM frontier_lease WHERE id IN {sql.rows('id bigint')}", [sql.pack(leases[0].tolist())])
    put_due(cursor, using, np.array([keys & HOST_MASK, np.maximum(due_at, now + gap), gap, np.zeros_like(gap)]))
    return len(keys)


def with_urls(cursor: Any, using: str, hosts: Sequence[int]) -> dict[int, int]:
    """The best level that waits on each of the hosts on which a URL may be claimed."""
    sql = dialect(using)
    found = sql.columns(
        cursor,
        "host, level",
        f"FROM (SELECT q.host_id AS host, min({first_level_of('q.id')}) AS level FROM frontier_queue q"
        f" WHERE q.host_id IN {sql.rows('id bigint')} GROUP BY q.host_id) found WHERE level IS NOT NULL",
        [sql.pack(hosts)],
    )
    return dict(found.T.tolist())
