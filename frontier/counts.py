"""How many URLs wait in each campaign: exact, cheap to read, and nobody waits for anybody to keep it.

A row on each queue would have to be written at every completion, on a page of its own; one row per
campaign would make workers wait for each other and for the merge. So every transaction that adds or
removes URLs appends what it changed, and the merge folds the rows into one now and then.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.db import connections, transaction
from django.db.models import Sum

from frontier.models import SEQUENCE_BITS, Change, QueuedUrl
from frontier.priority import HELD

# Rows that are left lying before they are folded.
MOST_CHANGES = 256
# Rows folded at a time, each a parameter: SQLite allows 32,766 unless built for more.
MOST_FOLDED = 10_000


class Count(NamedTuple):
    """Of one campaign: URLs that may be claimed, URLs that are held, hosts that were ever met."""

    urls: int = 0
    held: int = 0
    hosts: int = 0


def change(cursor: Any, counts: Mapping[int, Count]) -> None:
    """Records what the caller's transaction changes, by campaign."""
    for campaign, count in counts.items():
        if any(count):
            cursor.execute(
                "INSERT INTO frontier_change(campaign, urls, held, hosts) VALUES (%s, %s, %s, %s)", [campaign, *count]
            )


def waiting(campaign: int, using: str = "default") -> Count:
    """What waits in a campaign now."""
    sums = Change.objects.using(using).filter(campaign=campaign).aggregate(u=Sum("urls"), h=Sum("held"), n=Sum("hosts"))
    return Count(sums["u"] or 0, sums["h"] or 0, sums["n"] or 0)


def queued(using: str = "default") -> int:
    """All URLs that wait, held ones included."""
    sums = Change.objects.using(using).aggregate(u=Sum("urls"), h=Sum("held"))
    return (sums["u"] or 0) + (sums["h"] or 0)


def fold(using: str = "default") -> None:
    """Folds the changes of each campaign into one row, when there are many. Only for the holder of the merge lock."""
    rows = Change.objects.using(using)
    if rows.count() < MOST_CHANGES:
        return
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        ids = list(rows.values_list("id", flat=True)[:MOST_FOLDED])
        sums = rows.filter(id__in=ids).values_list("campaign").annotate(Sum("urls"), Sum("held"), Sum("hosts"))
        totals = {campaign: Count(*counts) for campaign, *counts in sums}
        rows.filter(id__in=ids).delete()
        change(cursor, totals)


def in_queue(queue: int, using: str = "default", most: int = 1_000_000) -> Count:
    """What waits in one back queue, counted in its rows; at most `most` of them."""
    first, held, end = queue << 32, (queue << 32) | (HELD << SEQUENCE_BITS), (queue + 1) << 32
    rows = QueuedUrl.objects.using(using).order_by("id")
    urls = rows.filter(id__gte=first, id__lt=held)[:most].count()
    return Count(urls, rows.filter(id__gte=held, id__lt=end)[:most].count(), 1)


def by_level(queues: list[int], using: str = "default", most: int = 10_000) -> dict[int, int]:
    """How many URLs wait in some back queues, by level; at most `most` of each level in each queue are counted."""
    rows, found = QueuedUrl.objects.using(using).order_by("id"), dict.fromkeys(range(HELD + 1), 0)
    for queue in queues:
        for level in found:
            first = (queue << 32) | (level << SEQUENCE_BITS)
            found[level] += rows.filter(id__gte=first, id__lt=first + (1 << SEQUENCE_BITS))[:most].count()
    return {level: urls for level, urls in found.items() if urls}


def urls_of(queue: str) -> str:
    """SQL: FROM and WHERE for the URLs that may be claimed in the queue whose id this expression is."""
    held = HELD << SEQUENCE_BITS
    return f"FROM frontier_queuedurl WHERE id >= ({queue} << 32) AND id < (({queue} << 32) | {held})"


def has_urls(queue: str) -> str:
    """SQL: whether there are any."""
    return f"EXISTS (SELECT 1 {urls_of(queue)})"


def first_level_of(queue: str) -> str:
    """SQL: the best level of the URLs that may be claimed in the queue whose id this expression is; NULL for none."""
    return f"(SELECT id >> {SEQUENCE_BITS} & {HELD} {urls_of(queue)} ORDER BY id LIMIT 1)"


def first_level(host: str) -> str:
    """SQL: the same over all queues of a host."""
    return f"(SELECT min({first_level_of('q.id')}) FROM frontier_queue q WHERE q.host_id = {host})"


def is_live(campaign: str) -> str:
    """SQL: whether URLs of the campaign whose id this expression is wait on a host that is visited now or will be by
    itself. Part of one statement: a host that moves from one table to the other must not be missed in between."""
    scheduled = (
        "EXISTS (SELECT 1 FROM {} h JOIN frontier_queue q ON q.host_id = h.id & 2147483647"
        f" WHERE q.campaign = {campaign} AND {has_urls('q.id')})"
    )
    return f"({scheduled.format('frontier_leasedhost')} OR {scheduled.format('frontier_duehost')})"


class Parked(NamedTuple):
    """Hosts with URLs of a campaign that are neither visited nor will be by themselves, and those URLs: hosts that
    did not answer, and blocked ones, with the name of one of these."""

    hosts: int
    urls: int
    blocked_hosts: int
    blocked_urls: int
    blocked_name: str


def parked(campaign: int, using: str = "default") -> Parked:
    """What of a campaign waits for somebody. Counts the URLs of those hosts."""
    found: dict[bool, tuple[int, int, str]] = {}
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT b, count(*), sum(n), min(name) FROM"
            f" (SELECT h.blocked OR h.reason = 'blocked' AS b, h.name, (SELECT count(*) {urls_of('q.id')}) AS n"
            " FROM frontier_queue q JOIN frontier_host h ON h.id = q.host_id"
            f" WHERE q.campaign = %s AND (h.blocked OR NOT h.active) AND {has_urls('q.id')}) waiting GROUP BY b",
            [campaign],
        )
        for blocked, hosts, urls, name in cursor.fetchall():
            found[bool(blocked)] = int(hosts), int(urls), name
    hosts, urls, _ = found.get(False, (0, 0, ""))
    return Parked(hosts, urls, *found.get(True, (0, 0, "")))
