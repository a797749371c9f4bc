"""The merge: inbox -> seen index -> back queues, in key order. Here, and only here, URLs are deduplicated.

One merge at a time per shard, under a lock. The order of its writes makes it safe to kill at any
point (see frontier/seen/index.py); inbox rows go last, and a row that is merged twice adds nothing.
"""

import fcntl
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from django.db import connections, transaction
from django.db.models import Max

from frontier.blocks import in_force
from frontier.fill import I64, fill
from frontier.models import MAX_QUEUE_ID, Host, Inbox, Queue
from frontier.rebuild import rebuild
from frontier.router import inbox_alias
from frontier.seen.index import NAME, URL, Growth, SeenIndex
from frontier.seen.runs import U64, DamagedRun, Run
from frontier.sql import dialect
from frontier.state import hash_seed, seen_directory
from frontier.urls import host_key

log = logging.getLogger(__name__)

# Links taken into one merge. It bounds the memory (about 150 bytes a link) and, on SQLite, the time
# that the workers' writer waits for the database: 400,000 links take about two seconds. A crawl that keeps up
# merges far fewer at a time.
MAX_LINKS = 400_000
ADVISORY_LOCK = 0x7472_6177  # "traw"


@dataclass(frozen=True, slots=True)
class Merged:
    """What one merge did. `busy`: another process was at it, nothing was done."""

    links: int = 0
    new_urls: int = 0
    new_hosts: int = 0
    busy: bool = False


@dataclass(slots=True)
class Batch:
    """Inbox rows as columns: one entry per link, and one per host name of each row."""

    rows: list[int]
    campaigns: I64
    names: list[str]
    name_high: U64
    name_low: U64
    name_of_link: I64
    hash_high: U64
    hash_low: U64
    levels: I64
    depths: I64
    refs: list[str]


class Merger:
    """Merges the inbox of one shard; keeps its runs mapped from one merge to the next."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.index = SeenIndex(seen_directory(using), using)
        self.lock = threading.Lock()

    def merge(self, max_links: int = MAX_LINKS) -> Merged:
        """Merges the oldest inbox rows, about `max_links` links of them."""
        if not self.lock.acquire(blocking=False):
            return Merged(busy=True)
        try:
            with merge_lock(self.using) as mine:
                if not mine:
                    return Merged(busy=True)
                batch = read_inbox(self.using, max_links)
                return self._merge(batch) if batch else Merged()
        finally:
            self.lock.release()

    def _merge(self, batch: Batch) -> Merged:
        self._refresh()
        queues = _Queues(self.index, self.using, batch)
        queue_of_link = queues.ids[batch.name_of_link]
        high = (queue_of_link << np.uint64(32)) | batch.hash_high
        order, high, low = _distinct(high, batch.hash_low)
        fresh = ~self.index.known(high, low)
        order, high, low = order[fresh], high[fresh], low[fresh]
        growths = [
            growth
            for growth in (
                self.index.prepare(NAME, queues.new_names()),
                self.index.prepare(URL, Run(high, low, np.empty(0, np.uint64))),
            )
            if growth
        ]
        arrival = np.sort(order)
        try:
            self._store(batch, queues, arrival, queue_of_link[arrival].astype(np.int64), growths)
        except BaseException:
            self.index.discard(growths)
            raise
        self.index.publish(growths)
        Inbox.objects.using(inbox_alias(self.using)).filter(id__in=batch.rows).delete()
        return Merged(len(batch.refs), len(arrival), len(queues.new_hosts))

    def _store(self, batch: Batch, queues: "_Queues", arrival: I64, of: I64, growths: list[Growth]) -> None:
        refs = [batch.refs[i] for i in arrival.tolist()]
        with transaction.atomic(using=self.using), connections[self.using].cursor() as cursor:
            queues.store(cursor)
            fill(cursor, self.using, of, batch.levels[arrival], batch.depths[arrival], refs)
            self.index.record(growths)

    def _refresh(self) -> None:
        try:
            self.index.refresh()
        except DamagedRun as damage:
            log.warning("seen index: %s; rebuilding it from the database", damage)
            rebuild(self.index, self.using)
        self.index.sweep()


class _Queues:
    """The queue of every name in a batch; makes the ids of new hosts and queues."""

    def __init__(self, index: SeenIndex, using: str, batch: Batch) -> None:
        self.using = using
        order, high, low = _distinct(batch.name_high, batch.name_low)
        found = index.ids(high, low)
        new = np.flatnonzero(found == 0)
        self.high, self.low = high[new], low[new]
        names = [batch.names[i] for i in order[new].tolist()]
        campaigns = batch.campaigns[order[new]].tolist()
        found[new] = np.arange(len(new), dtype=np.uint64) + np.uint64(self._next_id(Queue, len(new)))
        self.new_ids = found[new]
        self._hosts(index, names)
        hosts = [self._host_ids[name] for name in names]
        self.new_queues = list(zip(self.new_ids.tolist(), hosts, campaigns, strict=True))
        self.ids = found[_positions(batch.name_high, batch.name_low, high, low)]

    def _next_id(self, model: type[Host] | type[Queue], wanted: int) -> int:
        if not wanted:
            return 0
        highest = model.objects.using(self.using).aggregate(highest=Max("id"))["highest"] or 0
        if highest + wanted > MAX_QUEUE_ID:
            raise OverflowError("the frontier has given out all 2 billion queue ids")
        return int(highest) + 1

    def _hosts(self, index: SeenIndex, names: list[str]) -> None:
        """Finds or makes the host of each name; names may repeat in a batch of several campaigns."""
        seed = hash_seed(self.using)
        distinct = sorted(set(names))
        keys = np.frombuffer(b"".join([host_key(0, name, seed) for name in distinct]), ">u8").reshape(-1, 2)
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        high, low = keys[order, 0].astype(np.uint64), keys[order, 1].astype(np.uint64)
        found = index.ids(high, low)
        new = np.flatnonzero(found == 0)
        found[new] = np.arange(len(new), dtype=np.uint64) + np.uint64(self._next_id(Host, len(new)))
        ordered = [distinct[i] for i in order.tolist()]
        self._host_ids = dict(zip(ordered, found.tolist(), strict=True))
        self.new_hosts = [(int(found[i]), ordered[i]) for i in new.tolist()]
        self._new_host_run = Run(high[new], low[new], found[new])

    def new_names(self) -> Run:
        """The keys of the new hosts and queues, in order."""
        hosts = self._new_host_run
        high, low = np.r_[self.high, hosts.high], np.r_[self.low, hosts.low]
        order = np.lexsort((low, high))
        return Run(high[order], low[order], np.r_[self.new_ids, hosts.value][order])

    def store(self, cursor: Any) -> None:
        """Inserts the new hosts and queues in the caller's transaction."""
        sql = dialect(self.using)
        if self.new_hosts:
            cursor.execute(
                "INSERT INTO frontier_host(id, name, next_at, due_at, lease, active, blocked, gap_ms, failures, reason)"
                f" SELECT id, name, 0, 0, 0, false, false, 0, 0, '' FROM {sql.rows('id bigint, name text')} fresh",
                [sql.pack(self.new_hosts)],
            )
        if self.new_queues:
            cursor.execute(
                "INSERT INTO frontier_queue(id, host_id, campaign, next_seq, pending, held) SELECT id, host, campaign,"
                f" 0, 0, 0 FROM {sql.rows('id bigint, host bigint, campaign bigint')} fresh",
                [sql.pack(self.new_queues)],
            )
        if self.new_hosts:
            self._mark_blocked(cursor)

    def _mark_blocked(self, cursor: Any) -> None:
        """Links that were admitted before their domain was blocked must not open it again."""
        blocks = in_force(self.using)
        blocked = [host for host, name in self.new_hosts if blocks.covers(name)]
        if blocked:
            sql = dialect(self.using)
            cursor.execute(
                f"UPDATE frontier_host SET blocked = true, reason = 'blocked' WHERE id IN {sql.rows('id bigint')}",
                [sql.pack(blocked)],
            )


def _distinct(high: U64, low: U64) -> tuple[I64, U64, U64]:
    """(positions, high, low) of each distinct key at its first occurrence, in key order."""
    order = np.argsort(high, kind="stable")
    high_sorted, low_sorted = high[order], low[order]
    same_high = high_sorted[1:] == high_sorted[:-1]
    if (same_high & (low_sorted[1:] < low_sorted[:-1])).any():
        order = np.lexsort((low, high))
        high_sorted, low_sorted = high[order], low[order]
        same_high = high_sorted[1:] == high_sorted[:-1]
    first = np.ones(len(order), bool)
    first[1:] = ~(same_high & (low_sorted[1:] == low_sorted[:-1]))
    return order[first].astype(np.int64), high_sorted[first], low_sorted[first]


def _positions(high: U64, low: U64, sorted_high: U64, sorted_low: U64) -> I64:
    """Where each key stands in a sorted set that has all of them."""
    at = np.searchsorted(sorted_high, high)
    while (wrong := sorted_low[at] != low).any():
        at[wrong] += 1
    return at.astype(np.int64)


def read_inbox(using: str, max_links: int) -> Batch | None:
    """The oldest inbox rows as columns, or None when there are none."""
    inbox = Inbox.objects.using(inbox_alias(using)).order_by("id")
    total, chosen = 0, []
    for key, links in inbox.values_list("id", "links")[:10_000]:
        chosen.append(key)
        total += links
        if total >= max_links:
            break
    if not chosen:
        return None
    rows = list(inbox.filter(id__in=chosen))
    counts = np.array([row.links for row in rows])
    names = "\n".join([row.names for row in rows]).split("\n")
    keys = np.frombuffer(b"".join([bytes(row.name_keys) for row in rows]), ">u8").reshape(-1, 2)
    name_counts = np.array([len(row.name_keys) // 16 for row in rows])
    offsets = np.cumsum(name_counts) - name_counts
    index = np.frombuffer(b"".join([bytes(row.name_index) for row in rows]), "<u2").astype(np.int64)
    hashes = np.frombuffer(b"".join([bytes(row.hashes) for row in rows]), [("high", ">u4"), ("low", ">u8")])
    return Batch(
        rows=chosen,
        campaigns=np.repeat(np.array([row.campaign for row in rows]), name_counts),
        names=names,
        name_high=keys[:, 0].astype(np.uint64),
        name_low=keys[:, 1].astype(np.uint64),
        name_of_link=index + np.repeat(offsets, counts),
        hash_high=hashes["high"].astype(np.uint64),
        hash_low=hashes["low"].astype(np.uint64),
        levels=np.frombuffer(b"".join([bytes(row.levels) for row in rows]), np.uint8).astype(np.int64),
        depths=np.frombuffer(b"".join([bytes(row.depths) for row in rows]), "<u2").astype(np.int64),
        refs="\n".join([row.refs for row in rows]).split("\n"),
    )


@contextmanager
def merge_lock(using: str) -> Iterator[bool]:
    """True for the one process that may grow the seen index of this shard, False for any other."""
    directory = seen_directory(using)
    directory.mkdir(parents=True, exist_ok=True)
    sql = dialect(using)
    with open(directory / "merge.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        with connections[using].cursor() as cursor:
            mine = sql.try_lock(cursor, ADVISORY_LOCK)
            try:
                yield mine
            finally:
                if mine:
                    sql.unlock(cursor, ADVISORY_LOCK)


@cache
def merger(using: str = "default") -> Merger:
    """The merger of this process."""
    return Merger(using)


def merge(using: str = "default", max_links: int = MAX_LINKS) -> Merged:
    """Merges the oldest links of the inbox into the frontier; see Merger.merge."""
    return merger(using).merge(max_links)
