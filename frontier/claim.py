"""Claims: which hosts may be visited now, and by whom.

A claim takes a lease on hosts; it never looks at a host that is not due (the index on `next_at`
holds active hosts only). A lease is a random token on the host row together with the time when it
ends, in `next_at`: when a worker dies, its hosts fall due again by themselves. Every later step has
the token in its condition, so a worker that was thought dead cannot disturb its successor.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from django.db import connections, transaction

from frontier.models import PRIORITY_BITS, SEQUENCE_BITS, Host
from frontier.politeness import now_ms
from frontier.sql import dialect

# The clock of a host whose lease was lost, given the time twice; a free host keeps its own.
AFTER_LOST_LEASE = "CASE WHEN lease <> 0 AND due_at < %s + gap_ms THEN %s + gap_ms ELSE due_at END"


class Claim(NamedTuple):
    """Hosts under one lease."""

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
    urls: list[QueuedVisit]


def claim(limit: int, *, lease_ms: int, horizon_ms: int = 0, using: str = "default", now: int = 0) -> Claim:
    """Leases up to `limit` hosts that are due within `horizon_ms`, the longest due first.

    The horizon is for clocks and not for leases: a lease may be renewed until it ends. A host whose
    last lease ran out may just have been sent a request that nobody could record, so it waits its gap
    from now on, or longer where its clock says so.
    """
    now = now or now_ms()
    sql = dialect(using)
    token = secrets.randbits(62) | 1
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        found = sql.numbers(
            cursor,
            "id",
            "FROM frontier_host WHERE active AND next_at <= %s AND (lease = 0 OR next_at <= %s)"
            f" ORDER BY next_at LIMIT %s {sql.SKIP_LOCKED}",
            [now + horizon_ms, now, limit],
        )
        hosts = sorted(found)
        if hosts:
            cursor.execute(
                f"UPDATE frontier_host SET due_at = {AFTER_LOST_LEASE}, lease = %s, next_at = %s"
                f" WHERE id IN {sql.rows('id bigint')}",
                [now, now, token, now + lease_ms, sql.pack(hosts)],
            )
    return Claim(token, hosts)


def open_visits(
    claimed: Claim,
    campaigns: Sequence[int],
    quota: Callable[[int, int | None], int],
    *,
    lease_ms: int,
    using: str = "default",
) -> list[Visit]:
    """Takes claimed hosts over from the claim's token and reads their first URLs.

    Only hosts that the token still holds are opened, and each under a new token of its own worker:
    a message that the broker delivers twice finds nothing the second time. `quota(gap_ms, delay_ms)`
    says how many URLs to take. A host that was blocked meanwhile or has nothing to visit in these
    campaigns is let go and stays out of claims until something is added to it or `wake` is called.
    """
    sql = dialect(using)
    token = secrets.randbits(62) | 1
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        hosts = sql.select(
            cursor,
            "id, name, due_at, gap_ms, delay_ms, failures, blocked",
            f"FROM frontier_host WHERE id IN {sql.rows('id bigint')} AND lease = %s ORDER BY id {sql.LOCK_ROWS}",
            [sql.pack(claimed.hosts), claimed.token],
        )
        queues = sql.select(
            cursor,
            "id, host_id, campaign",
            f"FROM frontier_queue WHERE host_id IN {sql.rows('id bigint')} AND pending > 0"
            f" AND campaign IN {sql.rows('id bigint')}",
            [sql.pack([host for host, *_, blocked in hosts if not blocked]), sql.pack(campaigns)],
        )
        of_host: dict[int, list[tuple[int, int]]] = {}
        for queue, host, campaign in queues:
            of_host.setdefault(host, []).append((queue, campaign))
        wanted = [
            (queue, max(1, quota(gap, delay) // len(of_host[host])))
            for host, _, _, gap, delay, *_ in hosts
            for queue, _ in of_host.get(host, ())
        ]
        taken: dict[int, list[QueuedVisit]] = {}
        owner = {queue: (host, campaign) for queue, host, campaign in queues}
        for row, depth, ref in sql.first_urls(cursor, sorted(wanted)) if wanted else ():
            host, campaign = owner[row >> (PRIORITY_BITS + SEQUENCE_BITS)]
            taken.setdefault(host, []).append(QueuedVisit(row, campaign, ref, depth))
        busy, idle = [h[0] for h in hosts if h[0] in taken], [h[0] for h in hosts if h[0] not in taken]
        cursor.execute(
            f"UPDATE frontier_host SET lease = %s, next_at = %s WHERE id IN {sql.rows('id bigint')}",
            [token, now_ms() + lease_ms, sql.pack(busy)],
        )
        cursor.execute(
            f"UPDATE frontier_host SET lease = 0, next_at = due_at, active = false WHERE id IN {sql.rows('id bigint')}",
            [sql.pack(idle)],
        )
    return [
        Visit(host, name, token, due, gap, delay, failures, taken[host])
        for host, name, due, gap, delay, failures, _ in hosts
        if host in taken
    ]


def renew(leases: Iterable[tuple[int, int]], *, lease_ms: int, using: str = "default") -> None:
    """Sets the end of leases (host id, token) anew; those that were lost stay lost."""
    sql = dialect(using)
    held = sql.pack(sorted(leases))
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        sql.lock_hosts(cursor, f"(id, lease) IN {sql.rows('id bigint, token bigint')}", [held])
        cursor.execute(
            "UPDATE frontier_host SET next_at = %s"
            f" FROM {sql.rows('id bigint, token bigint')} held"
            " WHERE frontier_host.id = held.id AND frontier_host.lease = held.token",
            [now_ms() + lease_ms, held],
        )


def wake(campaign: int, using: str = "default") -> None:
    """Makes the hosts of a campaign claimable again, after it was paused or stopped."""
    idle = (
        "NOT active AND NOT blocked AND id IN (SELECT host_id FROM frontier_queue WHERE campaign = %s AND pending > 0)"
    )
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        dialect(using).lock_hosts(cursor, idle, [campaign])
        cursor.execute(f"UPDATE frontier_host SET active = true WHERE {idle}", [campaign])


def free_all_leases(using: str = "default") -> int:
    """Gives back every leased host: for a start that knows that no worker is alive.

    Each host waits its own gap from now on, since the last request of a killed worker may not have
    been recorded. Returns the number of hosts.
    """
    now = now_ms()
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute(
            f"UPDATE frontier_host SET lease = 0, due_at = {AFTER_LOST_LEASE}, next_at = {AFTER_LOST_LEASE}"
            " WHERE lease <> 0",
            [now, now, now, now],
        )
        return int(cursor.rowcount)


def leased(using: str = "default") -> int:
    """How many hosts are leased now; bounded by what the workers hold, so the count is cheap.

    Leases that ran out do not count: that of a blocked host stays until the block is lifted.
    """
    return Host.objects.using(using).exclude(lease=0).filter(next_at__gt=now_ms()).count()
