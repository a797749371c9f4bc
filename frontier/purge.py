"""Purging: takes the waiting URLs of blocked hosts out of their queues. An act of its own, never part of a block.

Hosts, queues and what is known of them stay, for their ids must never be given out again. A purged URL stays known
to the seen index, so a link to it does not queue it again, also after the block is lifted; once the index is made
anew from the database (`trawl rebuild_seen`, or because a file of it was lost) it is new again, unless it was
visited before. So a purge cannot be taken back, except by a rebuild and by finding the links once more.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db import connections, transaction
from django.dispatch import Signal

from frontier.blocking import below, lock_changes
from frontier.counts import Count, change
from frontier.models import SEQUENCE_BITS, Queue, QueuedUrl
from frontier.priority import HELD
from frontier.sql import dialect

# URLs deleted in one transaction, about 0.1 s; and hosts looked at for them.
URLS, HOSTS = 10_000, 500

# Sent in the transaction that leaves back queues without a URL: queues (ids), using. Whoever keeps records of
# URLs that wait to be visited again learns here that they do not.
purged = Signal()


class Extent(NamedTuple):
    """Blocked hosts and the URLs that wait on them; both counts end at a bound."""

    hosts: int
    urls: int


class Purged(NamedTuple):
    """What one transaction did: hosts that are done with, URLs deleted."""

    hosts: int
    urls: int


def extent(domains: list[str] | None, using: str = "default", most: int = 10_000) -> Extent:
    """How much a purge of these domains (None: of all blocks) would take; neither number exceeds `most`."""
    hosts = _hosts(0, domains, most, using)
    urls = 0
    for queue in Queue.objects.using(using).filter(host__in=hosts).values_list("id", flat=True)[:most]:
        rows = QueuedUrl.objects.using(using).filter(id__gte=queue << 32, id__lt=(queue + 1) << 32)
        urls += rows.order_by()[: most - urls].count()
        if urls >= most:
            break
    return Extent(len(hosts), urls)


def purge(domains: list[str] | None, using: str = "default") -> Iterator[Purged]:
    """Deletes what waits on the blocked hosts of these domains (None: of all blocks), a transaction at a time.

    A host whose block is lifted meanwhile keeps what is left. A kill keeps what is done; the next call goes on.
    """
    after = 0
    while True:
        with transaction.atomic(using=using):
            lock_changes(using)
            hosts = _hosts(after, domains, HOSTS, using)
            if not hosts:
                return
            queues = Queue.objects.using(using).filter(host__in=hosts).order_by("host", "id")
            urls, unfinished = _empty(list(queues.values_list("id", "host", "campaign")), using)
        done = [host for host in hosts if unfinished is None or host < unfinished]
        after = done[-1] if done else after
        yield Purged(len(done), urls)


def _empty(queues: list[tuple[int, int, int]], using: str) -> tuple[int, int | None]:
    """Deletes the first URLS rows of some (queue, host, campaign); returns how many were deleted, and the host
    that has more."""
    room, gone = URLS, 0
    emptied: list[int] = []
    counts: dict[int, Count] = {}
    unfinished = None
    with connections[using].cursor() as cursor:
        for queue, host, campaign in queues:
            ids = _first(cursor, queue, room + 1, using)
            held = (queue << 32) | (HELD << SEQUENCE_BITS)
            kinds = [key for key in ids[:room] if key < held], [key for key in ids[:room] if key >= held]
            # Counted by what is really deleted: a visit that was under way may have finished some just now.
            deleted = [dialect(using).delete_urls(cursor, kind) if kind else 0 for kind in kinds]
            before = counts.get(campaign, Count())
            counts[campaign] = before._replace(urls=before.urls - deleted[0], held=before.held - deleted[1])
            gone += sum(deleted)
            if len(ids) > room:
                unfinished = host
                break
            room -= len(ids)
            emptied.append(queue)
        change(cursor, counts)
    if emptied:
        purged.send(sender=Queue, queues=emptied, using=using)
    return gone, unfinished


def _first(cursor: Any, queue: int, most: int, using: str) -> list[int]:
    """Ids of the first rows of a queue."""
    rest = "FROM frontier_queuedurl WHERE id >= %s AND id < %s ORDER BY id LIMIT %s"
    [found] = dialect(using).columns(cursor, "id", rest, [queue << 32, (queue + 1) << 32, most])
    ids: list[int] = found.tolist()
    return ids


def _hosts(after: int, domains: list[str] | None, most: int, using: str) -> list[int]:
    """Ids of the next blocked hosts."""
    chosen, params = below(domains) if domains is not None else ("true", [])
    with connections[using].cursor() as cursor:
        rest = f"FROM frontier_host WHERE blocked AND id > %s AND {chosen} ORDER BY id LIMIT %s"
        [found] = dialect(using).columns(cursor, "id", rest, [after, *params, most])
    ids: list[int] = found.tolist()
    return ids
