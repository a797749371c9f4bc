"""Claims: which hosts may be visited now, and by whom.

A claim takes hosts that are due out of the schedule and puts them under a lease, which ends by itself
when the worker dies. It never looks at a host that is not due, and writes no row of a host. Every later
step names the lease, so a worker that was thought dead cannot disturb its successor.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from django.db import connections, transaction
from django.db.models import F

from frontier.counts import has_urls
from frontier.models import PRIORITY_BITS, SEQUENCE_BITS, Host, Lease, LeasedHost
from frontier.politeness import now_ms
from frontier.schedule import HOST_BITS, HOST_MASK, MOST_PUT_OFF_MS, activate, leased_key, put_leased, rest, take_back
from frontier.sql import dialect


class Claim(NamedTuple):
    """Hosts under one lease, for one worker."""

    token: int
    hosts: list[int]


class QueuedVisit(NamedTuple):
    """A URL of a visit: the row that waits for it, its campaign, its reference and its depth."""

    row: int
    campaign: int
    ref: str
    depth: int


class Visit(NamedTuple):
    """One host under lease with the URLs to ask it for, in their order; `due_at` in ms since 1970."""

    host: int
    name: str
    token: int
    due_at: int
    gap_ms: int
    delay_ms: int | None
    failures: int
    reason: str
    urls: list[QueuedVisit]


def claim(
    limit: int,
    *,
    lease_ms: int,
    horizon_ms: int = 0,
    groups: Callable[[list[int]], Iterable[list[int]]] = lambda hosts: [hosts],
    using: str = "default",
    now: int = 0,
) -> list[Claim]:
    """Leases up to `limit` hosts that are due within `horizon_ms`, the longest due first.

    `groups` divides the host ids into those of one claim each. Hosts whose lease has ended are due again
    first, each after its gap. The horizon is for clocks and not for leases: a lease may be renewed until it ends.
    """
    now = now or now_ms()
    sql = dialect(using)
    with sql.light_transaction(using), connections[using].cursor() as cursor:
        take_back(cursor, using, "ends_at <= %s", [now], now)
        due = sql.columns(
            cursor,
            "id, due_at, gap_ms",
            f"FROM frontier_duehost WHERE id < %s AND due_at <= %s ORDER BY id LIMIT %s {sql.SKIP_LOCKED}",
            [((now + horizon_ms + MOST_PUT_OFF_MS) // 1000 + 1) << HOST_BITS, now + horizon_ms, limit],
        )
        found = np.array([due[0] & HOST_MASK, due[1], due[2]])
        parts = [hosts for hosts in groups(sorted(found[0].tolist())) if hosts]
        if not parts:
            return []
        cursor.execute(
            f"INSERT INTO frontier_lease(ends_at) VALUES {', '.join(['(%s)'] * len(parts))} RETURNING id",
            [now + lease_ms] * len(parts),
        )
        claims = [Claim(token, hosts) for (token,), hosts in zip(cursor.fetchall(), parts, strict=True)]
        for one in claims:
            put_leased(cursor, using, one.token, found[:, np.isin(found[0], one.hosts)])
        cursor.execute(f"DELETE FROM frontier_duehost WHERE id IN {sql.rows('id bigint')}", [sql.pack(due[0].tolist())])
    return claims


def open_visits(
    claimed: Claim,
    campaigns: Sequence[int],
    quota: Callable[[int, int | None], int],
    *,
    lease_ms: int,
    using: str = "default",
) -> list[Visit]:
    """Reads the first URLs of claimed hosts, for a worker that is going to visit them.

    A claim is opened once: a message that the broker delivers twice finds nothing the second time, and
    neither does one that comes after the end of the lease. `quota(gap_ms, delay_ms)` says how many URLs to
    take. A host that was blocked meanwhile or has nothing to visit in these campaigns is let go and stays
    out of claims until something is added to it or `wake` is called.
    """
    sql = dialect(using)
    now = now_ms()
    with sql.light_transaction(using), connections[using].cursor() as cursor:
        cursor.execute(
            "UPDATE frontier_lease SET opened = true, ends_at = %s WHERE id = %s AND NOT opened AND ends_at > %s",
            [now + lease_ms, claimed.token, now],
        )
        if not cursor.rowcount:
            return []
        found = _hosts(cursor, using, claimed.token, campaigns, quota)
        idle = [host for host, one in found.items() if not one.urls]
        if idle and sql.LOCK_ROWS:  # the merge may have added a URL since
            sql.lock_rows(cursor, "frontier_host", f"id IN {sql.rows('id bigint')}", [sql.pack(idle)])
            found |= _hosts(cursor, using, claimed.token, campaigns, quota, only=idle)
            idle = [host for host in idle if not found[host].urls]
        if idle:
            keys = [leased_key(host, claimed.token) for host in idle]
            cursor.execute(f"DELETE FROM frontier_leasedhost WHERE id IN {sql.rows('id bigint')}", [sql.pack(keys)])
            rest(cursor, using, [(host, found[host].due_at, found[host].gap_ms) for host in idle])
    return [visit for visit in found.values() if visit.urls]


def _hosts(
    cursor: Any,
    using: str,
    lease: int,
    campaigns: Sequence[int],
    quota: Callable[[int, int | None], int],
    only: Sequence[int] | None = None,
) -> dict[int, Visit]:
    """The hosts under a lease with the URLs to visit: none where the host is blocked, or has nothing in these
    campaigns. `only`: not all hosts of the lease but these."""
    sql = dialect(using)
    # A host with several queues divides the quota among those that have something.
    full = f" AND {has_urls('q.id')}" if len(campaigns) > 1 else ""
    asked = ", ".join(["%s"] * len(campaigns)) or "NULL"
    rows = sql.select(
        cursor,
        "host, name, due_at, gap_ms, delay_ms, failures, reason, queue, campaign",
        "FROM (SELECT h.id AS host, h.name, CASE WHEN h.booked_until > l.due_at THEN h.booked_until ELSE l.due_at END"
        " AS due_at, l.gap_ms, h.delay_ms, h.failures, h.reason, q.id AS queue,"
        f" q.campaign FROM frontier_leasedhost l JOIN frontier_host h ON h.id = l.id & {HOST_MASK}"
        f" LEFT JOIN frontier_queue q ON q.host_id = h.id AND NOT h.blocked AND q.campaign IN ({asked})"
        f"{full} WHERE l.id >= %s AND l.id <= %s ORDER BY l.id) opened",
        [*campaigns, leased_key(0, lease), leased_key(HOST_MASK, lease)],
    )
    if only is not None:
        rows = [row for row in rows if row[0] in only]
    visits: dict[int, Visit] = {}
    owners: dict[int, tuple[int, Visit]] = {}
    for host, name, due, gap, delay, failures, reason, queue, campaign in rows:
        visit = visits.setdefault(host, Visit(host, name, lease, due, gap, delay, failures, reason, []))
        if queue is not None:
            owners[queue] = campaign, visit
    shares = Counter(visit.host for _, visit in owners.values())
    wanted = sorted(
        (queue, max(1, quota(visit.gap_ms, visit.delay_ms) // shares[visit.host]))
        for queue, (_, visit) in owners.items()
    )
    for row, depth, ref in sql.first_urls(cursor, wanted) if wanted else ():
        campaign, visit = owners[row >> (PRIORITY_BITS + SEQUENCE_BITS)]
        visit.urls.append(QueuedVisit(row, campaign, ref, depth))
    return visits


def renew(leases: Iterable[int], *, lease_ms: int, using: str = "default") -> None:
    """Sets the end of leases (tokens) anew; those that have ended stay so."""
    sql = dialect(using)
    now = now_ms()
    with sql.light_transaction(using), connections[using].cursor() as cursor:
        cursor.execute(
            f"UPDATE frontier_lease SET ends_at = %s WHERE ends_at > %s AND id IN {sql.rows('id bigint')}",
            [now + lease_ms, now, sql.pack(sorted(set(leases)))],
        )


def wake(campaign: int, using: str = "default") -> None:
    """Makes the idle hosts of a campaign due, after it was paused or stopped."""
    idle = (
        "NOT active AND NOT blocked AND id IN (SELECT host_id FROM frontier_queue q"
        f" WHERE campaign = %s AND {has_urls('q.id')})"
    )
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        activate(cursor, using, idle, [campaign])


def wake_host(host: int, using: str = "default") -> bool:
    """Makes one host due that is parked or idle and on which URLs wait, at the time its clock says; returns whether it
    is due now. One that waits for its time, or that is blocked, stays as it is."""
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        activate(cursor, using, "id = %s", [host])
    active: bool = Host.objects.using(using).filter(id=host, active=True).exists()
    return active


def unpark(using: str = "default") -> bool:
    """Makes parked hosts due whose time has come, where URLs wait on them; returns whether there were any."""
    over, now = "parked_until <= %s", now_ms()
    sql = dialect(using)
    with connections[using].cursor() as cursor:
        if not sql.select(cursor, "id", f"FROM frontier_host WHERE {over} LIMIT 1", [now]):
            return False
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        activate(cursor, using, over, [now])
        cursor.execute(f"UPDATE frontier_host SET parked_until = NULL WHERE {over}", [now])
    return True


def free_all_leases(using: str = "default") -> int:
    """Gives back every leased host: for a start that knows that no worker is alive.

    Each host waits its own gap from now on, since the last request of a killed worker may not have
    been recorded. Returns the number of hosts.
    """
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        return take_back(cursor, using, "1 = 1", [], now_ms())


def leased(using: str = "default") -> int:
    """How many hosts are leased now; bounded by what the workers hold, so the count is cheap."""
    alive = Lease.objects.using(using).filter(ends_at__gt=now_ms()).values("id")
    held = LeasedHost.objects.using(using).annotate(lease=F("id").bitrightshift(HOST_BITS))
    return held.filter(lease__in=alive).count()
