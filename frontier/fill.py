"""Puts URLs into their back queues: the one place that gives out sequence numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connections

from frontier.models import HELD, PRIORITY_BITS, SEQUENCE_BITS
from frontier.sql import dialect

I64 = npt.NDArray[np.int64]

MAX_SEQUENCE = (1 << SEQUENCE_BITS) - 1


class QueueFull(Exception):
    """A host has had 268 million URLs queued in one campaign, which is a trap and not a site."""


def fill(cursor: Any, using: str, queues: I64, levels: I64, depths: I64, refs: list[str]) -> int:
    """Adds URLs in the caller's transaction; arrays of equal length, in order of arrival.

    Within a queue and level the order of arrival is kept. Returns how many hosts were touched.
    """
    if not len(queues):
        return 0
    sql = dialect(using)
    order = np.argsort((queues << PRIORITY_BITS) | levels, kind="stable")
    queues, levels = queues[order], levels[order]
    starts = np.flatnonzero(np.r_[True, queues[1:] != queues[:-1]])
    touched = queues[starts]
    counts = np.diff(np.r_[starts, len(queues)])
    held = np.add.reduceat((levels == HELD).astype(np.int64), starts)
    first = next_sequences(cursor, using, touched)
    if int((first + counts).max()) > MAX_SEQUENCE:
        raise QueueFull(f"queue {int(touched[(first + counts).argmax()])} has given out all its sequence numbers")
    rank = np.arange(len(queues)) - np.repeat(starts, counts)
    ids = (queues << (PRIORITY_BITS + SEQUENCE_BITS)) | (levels << SEQUENCE_BITS) | (np.repeat(first, counts) + rank)
    places = order.tolist()
    sql.insert_urls(cursor, ids.tolist(), depths[order].tolist(), [refs[i] for i in places])
    grown = sql.pack(zip(touched.tolist(), counts.tolist(), held.tolist(), strict=True))
    cursor.execute(
        "UPDATE frontier_queue SET next_seq = next_seq + grown.n, pending = pending + grown.n - grown.h,"
        f" held = held + grown.h FROM {sql.rows('id bigint, n bigint, h bigint')} grown"
        " WHERE frontier_queue.id = grown.id",
        [grown],
    )
    activate(cursor, using, touched)
    return len(touched)


def next_sequences(cursor: Any, using: str, queues: I64) -> I64:
    """The next sequence number of each queue (sorted ids); their rows stay locked until the commit."""
    sql = dialect(using)
    found = sql.numbers(
        cursor,
        "next_seq",
        f"FROM frontier_queue WHERE id IN {sql.rows('id bigint')} ORDER BY id {sql.LOCK_ROWS}",
        [sql.pack(queues.tolist())],
    )
    if len(found) != len(queues):
        raise LookupError(f"{len(queues) - len(found)} of {len(queues)} queues do not exist")
    return np.array(found, np.int64)


def activate(cursor: Any, using: str, queues: I64) -> None:
    """Lets the hosts of these queues be claimed.

    The host rows are locked before they are looked at: somebody may be finding the host idle in
    this very moment, and the URL that was just added must not wait for the next one.
    """
    sql = dialect(using)
    ids = sql.pack(queues.tolist())
    owned = f"SELECT host_id FROM frontier_queue WHERE id IN {sql.rows('id bigint')} AND pending > 0"
    sql.lock_hosts(cursor, f"id IN ({owned})", [ids])
    cursor.execute(
        f"UPDATE frontier_host SET active = true WHERE NOT active AND NOT blocked AND id IN ({owned})", [ids]
    )


def refill(urls: list[tuple[int, int, int, str]], using: str = "default") -> None:
    """Queues known URLs again, in the caller's transaction: (queue id, level, depth, reference) each."""
    if not urls:
        return
    queues, levels, depths, refs = zip(*urls, strict=True)
    with connections[using].cursor() as cursor:
        fill(cursor, using, np.array(queues), np.array(levels), np.array(depths), list(refs))
