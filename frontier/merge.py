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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from django.db import connections
from django.db.models import Max, QuerySet, Sum

from frontier.admission import waiting
from frontier.blocking import lock_changes, mark
from frontier.blocks import covering, in_force
from frontier.counts import Count, change, fold
from frontier.fill import Filled, NewQueues, fill
from frontier.lines import I64, Lines
from frontier.models import MAX_QUEUE_ID, Host, Inbox, Queue, SeenRun
from frontier.politeness import now_ms
from frontier.priority import HELD, POPULAR
from frontier.promote import ROWS_LOOKED_AT, Promotion, promote
from frontier.rebuild import rebuild
from frontier.router import inbox_alias
from frontier.schedule import activate_owners, next_due, put_due
from frontier.seen.filters import sieve
from frontier.seen.index import NAME, URL, Growth, SeenIndex
from frontier.seen.runs import U64, DamagedRun, Mask, Run
from frontier.sql import dialect
from frontier.state import hash_seed, seen_directory
from frontier.urls import host_key

U32 = npt.NDArray[np.uint32]

log = logging.getLogger(__name__)

# Links taken into one merge: a share of the URLs that are known, since every merge writes most pages of the
# queues once it takes as many links as there are pages. The bounds: with fewer links the fixed cost of a merge
# weighs, and more take memory and, on SQLite, keep the workers' writer waiting too long (400,000 links take about
# two seconds). At 10M URLs merges of 800,000 links took 515 MB in all and wrote 1,215 bytes a new URL.
FEWEST_LINKS, MOST_LINKS, LINKS_PER_KNOWN_URL = 400_000, 700_000, 0.25
# How long a link may wait for a merge, at most, when the workers have enough to do: a minute for 10M known URLs.
MOST_WAIT_MS, WAIT_MS_PER_KNOWN_URL = 60_000, 0.006
MOST_LATE = 50_000  # promotions that are kept for later
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
    names: Lines
    name_high: U64
    name_low: U64
    name_of_link: U32
    hash_high: U32
    hash_low: U64
    levels: npt.NDArray[np.uint8]
    depths: npt.NDArray[np.uint16]
    refs: Lines

    def forget_keys(self) -> None:
        """Frees what is not needed once the URLs are told apart: a third of the memory of a merge."""
        self.names = Lines()
        self.name_high = self.name_low = self.hash_low = np.empty(0, np.uint64)
        self.name_of_link = self.hash_high = np.empty(0, np.uint32)


class Distinct(NamedTuple):
    """URLs of a batch, each once, in key order. `places`: where each was met first; `levels`: its best one."""

    high: U64
    low: U64
    places: I64
    levels: I64

    def where(self, mask: Mask) -> "Distinct":
        """Those of them that a mask says."""
        return Distinct(self.high[mask], self.low[mask], self.places[mask], self.levels[mask])


class Merger:
    """Merges the inbox of one shard; keeps its runs mapped from one merge to the next."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.index = SeenIndex(seen_directory(using), using, sieve())
        self.lock = threading.Lock()
        self._late: list[Promotion] = []  # for hosts that were being visited; after a restart they are forgotten

    def merge(self, max_links: int | None = None) -> Merged:
        """Merges the oldest inbox rows: about `max_links` links, or as many as fit the size of the frontier."""
        if not self.lock.acquire(blocking=False):
            return Merged(busy=True)
        try:
            with merge_lock(self.using) as mine:
                if not mine:
                    return Merged(busy=True)
                self._refresh()
                batch = read_inbox(self.using, max_links or batch_links(len(self.index)))
                return self._merge(batch) if batch else Merged()
        finally:
            self.lock.release()

    def _merge(self, batch: Batch) -> Merged:
        queues = _Queues(self.index, self.using, batch)
        distinct = _distinct(batch, queues.ids)
        batch.forget_keys()
        known = self.index.known(distinct.high, distinct.low)
        fresh = distinct.where(~known)
        better = distinct.where(known & (distinct.levels <= POPULAR))
        growths = [
            growth
            for growth in (
                self.index.prepare(NAME, queues.new_names()),
                self.index.prepare(URL, Run(fresh.high, fresh.low, np.empty(0, np.uint64))),
            )
            if growth
        ]
        try:
            self._store(batch, queues, fresh, better, growths)
        except BaseException:
            self.index.discard(growths)
            raise
        self.index.publish(growths)
        Inbox.objects.using(inbox_alias(self.using)).filter(id__in=batch.rows).delete()
        fold(self.using)
        return Merged(len(batch.refs), len(fresh.places), len(queues.new_hosts))

    def _store(self, batch: Batch, queues: "_Queues", fresh: Distinct, better: Distinct, growths: list[Growth]) -> None:
        sql = dialect(self.using)
        with sql.heavy_transaction(self.using), connections[self.using].cursor() as cursor:
            owners = (fresh.high >> np.uint64(32)).astype(np.int64)
            filled = fill(cursor, self.using, owners, fresh.levels, fresh.places, batch.depths, batch.refs, queues.made)
            queues.store(cursor, filled)
            rows = max(ROWS_LOOKED_AT, len(batch.refs))  # a twentieth of what the rest of the merge costs
            late = promote(cursor, self.using, self._late + _promotions(batch, better), rows)
            self.index.record(growths)
        self._late = late[-MOST_LATE:]

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
        order, starts = _ordered(batch.name_high, batch.name_low)
        places = order[starts]
        high, low = batch.name_high[places], batch.name_low[places]
        found = index.ids(high, low)
        new = np.flatnonzero(found == 0)
        self.high, self.low = high[new], low[new]
        hosts = self._hosts(index, batch.names.take(places[new]))
        # In the order of their hosts, and these by name: all their rows and index entries go in in order.
        by_host = np.argsort(hosts, kind="stable")
        self.new_ids = np.empty(len(new), np.uint64)
        self.new_ids[by_host] = self._next_ids(Queue, len(new))
        found[new] = self.new_ids
        self.made = NewQueues(int(self.new_ids.min()), batch.campaigns[places[new]][by_host]) if len(new) else None
        self.hosts = hosts[by_host]
        # Back from the order of the keys to that of the names.
        self.ids = np.empty(len(order), np.uint64)
        self.ids[order] = np.repeat(found, np.diff(np.r_[starts, len(order)]))

    def _next_ids(self, model: type[Host] | type[Queue], wanted: int) -> U64:
        if not wanted:
            return np.empty(0, np.uint64)
        highest = model.objects.using(self.using).aggregate(highest=Max("id"))["highest"] or 0
        if highest + wanted > MAX_QUEUE_ID:
            raise OverflowError("the frontier has given out all 2 billion queue ids")
        return np.arange(highest + 1, highest + 1 + wanted, dtype=np.uint64)

    def _hosts(self, index: SeenIndex, names: list[str]) -> I64:
        """Finds or makes the host of each new queue; names may repeat in a batch of several campaigns."""
        seed = hash_seed(self.using)
        keys = np.frombuffer(b"".join([host_key(0, name, seed) for name in names]), ">u8").reshape(-1, 2)
        high, low = keys[:, 0].astype(np.uint64), keys[:, 1].astype(np.uint64)
        order, starts = _ordered(high, low)
        places = order[starts]
        high, low = high[places], low[places]
        found = index.ids(high, low)
        new = np.flatnonzero(found == 0)
        met = [names[place] for place in places[new].tolist()]
        # Entries of the index of names that go in sorted touch each of its pages once: of 2 million names, half the
        # time of the same entries in the order of their hashes.
        by_name = sorted(range(len(met)), key=met.__getitem__)
        self.new_hosts = [met[place] for place in by_name]
        self.new_host_ids = self._next_ids(Host, len(new))
        found[new[by_name]] = self.new_host_ids
        self._new_host_run = Run(high[new], low[new], found[new])
        hosts = np.empty(len(names), np.int64)
        hosts[order] = np.repeat(found, np.diff(np.r_[starts, len(names)]))
        return hosts

    def new_names(self) -> Run:
        """The keys of the new hosts and queues, in order."""
        hosts = self._new_host_run
        high, low = np.r_[self.high, hosts.high], np.r_[self.low, hosts.low]
        order = np.lexsort((low, high))
        return Run(high[order], low[order], np.r_[self.new_ids, hosts.value][order])

    def store(self, cursor: Any, filled: Filled) -> None:
        """Inserts the new hosts and queues in the caller's transaction, with what was filled into them."""
        if self.made is None:
            return
        first, count = self.made.first, len(self.new_ids)
        known = np.searchsorted(filled.queues, first)
        urls, levels = np.zeros(count, np.int64), np.full(count, HELD)
        urls[filled.queues[known:] - first] = filled.counts[known:]
        levels[filled.queues[known:] - first] = filled.levels[known:]
        ids = np.arange(first, first + count)
        dialect(self.using).insert(
            cursor,
            "frontier_queue",
            "id bigint, host_id bigint, campaign bigint, next_seq bigint",
            [ids.tolist(), self.hosts.tolist(), self.made.campaigns.tolist(), urls.tolist()],
        )
        met = zip(*np.unique(self.made.campaigns, return_counts=True), strict=True)
        change(cursor, {int(campaign): Count(hosts=int(hosts)) for campaign, hosts in met})
        self._store_hosts(cursor, levels)
        # The others may be active already. All queues of a host at once, for the best level of them.
        others = np.ones(len(filled.queues), bool)
        first_new_host = self.new_host_ids[0] if len(self.new_host_ids) else MAX_QUEUE_ID + 1
        others[known:] = self.hosts[filled.queues[known:] - first] < first_new_host
        others &= filled.levels < HELD
        activate_owners(cursor, self.using, filled.queues[others], filled.levels[others])

    def _store_hosts(self, cursor: Any, levels: I64) -> None:
        """Inserts the new hosts, due at once if they have a URL to visit. `levels`: the best of each new queue."""
        ids = self.new_host_ids.astype(np.int64)
        if not len(ids):
            return
        covered = self._blocked()
        best = np.full(len(ids), HELD)
        own = np.flatnonzero(self.hosts >= ids[0])
        np.minimum.at(best, self.hosts[own] - ids[0], levels[own])
        best[covered] = HELD
        active = best < HELD
        rows = [ids.tolist(), self.new_hosts, active.tolist()]
        dialect(self.using).insert(cursor, "frontier_host", "id bigint, name text, active boolean", rows)
        due_at = np.full(len(ids), now_ms())
        put_due(cursor, self.using, np.array([ids, due_at, np.zeros_like(ids), best])[:, active])
        if covered:
            mark(cursor, ids[covered].tolist(), self.using)

    def _blocked(self) -> list[int]:
        """Which new hosts a block covers: links that were admitted before must not open their domain again."""
        if not in_force(self.using).blocked(self.new_hosts):
            return []
        # Looked up once more where no block can be lifted meanwhile: nothing would take the mark away again.
        lock_changes(self.using)
        covered = covering(self.new_hosts, self.using)
        return [place for place, name in enumerate(self.new_hosts) if name in covered]


def _distinct(batch: Batch, queue_of_name: U64) -> Distinct:
    high = queue_of_name[batch.name_of_link]
    high <<= np.uint64(32)
    high |= batch.hash_high
    order, starts = _ordered(high, batch.hash_low)
    levels = np.minimum.reduceat(batch.levels[order], starts).astype(np.int64)
    places = order[starts]
    batch.depths[places] = np.minimum.reduceat(batch.depths[order], starts)  # a seed may be linked from far away
    return Distinct(high[places], batch.hash_low[places], places, levels)


def _promotions(batch: Batch, better: Distinct) -> list[Promotion]:
    queues = (better.high >> np.uint64(32)).tolist()
    return list(map(Promotion, queues, better.levels.tolist(), batch.refs.take(better.places)))


def _ordered(high: U64, low: U64) -> tuple[I64, I64]:
    """(positions of all keys in key order, where in that each distinct key starts with its first occurrence)."""
    order = np.argsort(high, kind="stable")
    ordered = high[order]
    first = np.ones(len(order), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    # Different keys with the same high half are all but impossible (the half holds the queue and 32 bits of hash).
    ordered = low[order]
    if (~first[1:] & (ordered[1:] != ordered[:-1])).any():
        order = np.lexsort((low, high))
        ordered = low[order]
        first[1:] |= ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(first)


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
    rows = list(inbox.filter(id__in=chosen).defer("names", "refs"))
    counts = np.array([row.links for row in rows])
    keys = np.frombuffer(b"".join([bytes(row.name_keys) for row in rows]), ">u8").reshape(-1, 2)
    name_counts = np.array([len(row.name_keys) // 16 for row in rows])
    offsets = (np.cumsum(name_counts) - name_counts).astype(np.uint32)
    hashes = np.frombuffer(b"".join([bytes(row.hashes) for row in rows]), [("high", ">u4"), ("low", ">u8")])
    return Batch(
        rows=chosen,
        campaigns=np.repeat(np.array([row.campaign for row in rows]), name_counts),
        names=_lines(inbox, chosen, "names"),
        name_high=keys[:, 0].astype(np.uint64),
        name_low=keys[:, 1].astype(np.uint64),
        name_of_link=_joined([row.name_index for row in rows], "<u2") + np.repeat(offsets, counts),
        hash_high=hashes["high"].astype(np.uint32),
        hash_low=hashes["low"].astype(np.uint64),
        levels=_joined([row.levels for row in rows], np.uint8),
        depths=_joined([row.depths for row in rows], "<u2").astype(np.uint16),
        refs=_lines(inbox, chosen, "refs"),
    )


def _joined(columns: list[Any], kind: Any) -> Any:
    return np.frombuffer(b"".join([bytes(column) for column in columns]), kind)


def _lines(inbox: QuerySet[Inbox], rows: list[int], column: str) -> Lines:
    """A column of text, a few rows of it in memory at a time."""
    return Lines(text for (text,) in inbox.filter(id__in=rows).values_list(column).iterator(16))


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


def batch_links(known: int) -> int:
    """How many links one merge takes when so many URLs are known."""
    return min(MOST_LINKS, max(FEWEST_LINKS, int(known * LINKS_PER_KNOWN_URL)))


def ripe(using: str = "default") -> bool:
    """Whether a merge is worth while now: enough links wait, or they have waited long enough, or the workers are
    about to run out of hosts. Also when nothing waits, which a merge tells soonest."""
    links, since = waiting(using)
    known, now = SeenRun.objects.using(using).filter(kind=URL).aggregate(n=Sum("entries"))["n"] or 0, now_ms()
    if since is None or links >= batch_links(known) or now - since >= min(MOST_WAIT_MS, known * WAIT_MS_PER_KNOWN_URL):
        return True
    host = next_due(using)
    return host is None or host.due_at > now


@cache
def merger(using: str) -> Merger:
    """The merger of this process."""
    return Merger(using)


def merge(using: str = "default", max_links: int | None = None) -> Merged:
    """Merges the oldest links of the inbox into the frontier; see Merger.merge."""
    return merger(using).merge(max_links)
