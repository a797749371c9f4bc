"""Rebuilds the seen index from the database, which is the truth it is derived from.

Every known URL has a row in a back queue or in the records of whoever visits them. The second kind
is not the frontier's own, so it asks the module that settings.FRONTIER_HISTORY names.
"""

from collections.abc import Callable, Iterator
from typing import Protocol, cast

import numpy as np
from django.conf import settings
from django.db import transaction
from django.utils.module_loading import import_string

from frontier.lines import I64
from frontier.models import PRIORITY_BITS, SEQUENCE_BITS, Host, Queue, QueuedUrl
from frontier.seen.index import NAME, URL, SeenIndex
from frontier.seen.runs import U64, Run
from frontier.state import hash_seed
from frontier.urls import NO_RULES, InvalidURL, Rules, canonicalise, from_reference, host_key, url_hash

# Rows read at a time; their keys become one sorted run of the index.
CHUNK = 500_000


class History(Protocol):
    """What the frontier must be told about URLs that are no longer queued."""

    def rules(self, campaign: int) -> Rules:
        """The site rules by which the URLs of a campaign are made canonical."""

    def finished(self, using: str) -> Iterator[tuple[I64, U64, U64]]:
        """(queue ids, first 32 bits, last 64 bits of the URL hash) of all visited URLs, in chunks."""


class NoHistory:
    """For a frontier that stands alone: nothing is known but what is queued."""

    def rules(self, campaign: int) -> Rules:
        return NO_RULES

    def finished(self, using: str) -> Iterator[tuple[I64, U64, U64]]:
        return iter(())


def history() -> History:
    """The history that the settings name."""
    path: str = getattr(settings, "FRONTIER_HISTORY", "")
    return cast(History, import_string(path)() if path else NoHistory())


def rebuild(index: SeenIndex, using: str = "default", progress: Callable[[int], None] = lambda done: None) -> int:
    """Makes all runs anew and lists them in the manifest in one transaction; returns the known URLs.

    The caller holds the merge lock. `progress` is told the rows read so far. A kill on the way
    leaves the old manifest, whose damaged files lead here again.
    """
    index.clear()
    done = 0
    for run in _name_runs(index, using):
        index.grow(NAME, run)
    for high, low in _url_keys(using):
        done += len(high)
        order = np.lexsort((low, high))
        high, low = high[order], low[order]
        fresh = np.ones(len(high), bool)
        fresh[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        fresh &= ~index.known(high, low)
        index.grow(URL, Run(high[fresh], low[fresh], np.empty(0, np.uint64)))
        progress(done)
    from frontier.seen.written import begin_anew  # it brings redis along: 0.2 s that only a rebuild pays

    with transaction.atomic(using=using):
        index.record_all()
        begin_anew(using)  # what was purged is new again, also to who remembers having written it
    index.sweep()
    return len(index)


def _name_runs(index: SeenIndex, using: str) -> Iterator[Run]:
    seed = hash_seed(using)
    hosts = Host.objects.using(using).order_by("id").values_list("id", "name").iterator(CHUNK)
    queues = Queue.objects.using(using).order_by("id").values_list("id", "campaign", "host__name").iterator(CHUNK)
    for rows in (((i, 0, name) for i, name in hosts), queues):
        entries = [(host_key(campaign, name, seed), key) for key, campaign, name in rows]
        if entries:
            keys = np.frombuffer(b"".join([key for key, _ in entries]), ">u8").reshape(-1, 2).astype(np.uint64)
            order = np.lexsort((keys[:, 1], keys[:, 0]))
            values = np.array([value for _, value in entries], np.uint64)
            yield Run(keys[order, 0], keys[order, 1], values[order])


def _url_keys(using: str) -> Iterator[tuple[U64, U64]]:
    for queues, first, last in history().finished(using):
        yield (queues.astype(np.uint64) << np.uint64(32)) | first, last
    after = -1
    while rows := list(
        QueuedUrl.objects.using(using).filter(id__gt=after).order_by("id").values_list("id", "ref")[:CHUNK]
    ):
        after = rows[-1][0]
        yield _queued_keys(rows, using)


def _queued_keys(rows: list[tuple[int, str]], using: str) -> tuple[U64, U64]:
    seed, told = hash_seed(using), history()
    ids = [key >> (PRIORITY_BITS + SEQUENCE_BITS) for key, _ in rows]
    queues = Queue.objects.using(using).filter(id__gte=ids[0], id__lte=ids[-1])
    owners = {key: (name, campaign) for key, name, campaign in queues.values_list("id", "host__name", "campaign")}
    rules: dict[int, Rules] = {}
    hashes: list[bytes] = []
    for key, (_, ref) in zip(ids, rows, strict=True):
        name, campaign = owners[key]
        if campaign not in rules:
            rules[campaign] = told.rules(campaign)
        fetch = from_reference(ref, name)
        try:
            canonical = canonicalise(fetch, rules=rules[campaign]).canonical
        except InvalidURL:  # accepted by an older version; it keeps its place until it is fetched
            canonical = fetch
        hashes.append(url_hash(canonical, seed))
    parts = np.frombuffer(b"".join(hashes), [("high", ">u4"), ("low", ">u8")])
    high = (np.array(ids, np.uint64) << np.uint64(32)) | parts["high"].astype(np.uint64)
    return high, parts["low"].astype(np.uint64)
