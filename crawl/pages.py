"""Where a page's row is, given its URL: the id is made from the URL's key, so no index is needed."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from django.db import connections

from crawl.models import Campaign, Page
from frontier.lines import I64
from frontier.models import Queue
from frontier.seen.runs import U64
from frontier.sql import dialect
from frontier.state import hash_seed
from frontier.urls import NO_RULES, URL, Rules, url_hash

# Rows read at a time when all pages are gone through.
CHUNK = 200_000


class Key(NamedTuple):
    """A page's identity: its back queue, and the URL's hash as 32 bits and as 64 bits (signed)."""

    queue: int
    first: int
    rest: int


def key_of(queue: int, url_hash: bytes) -> Key:
    """The key of a URL by its 12-byte hash in the queue of its host and campaign."""
    return Key(queue, int.from_bytes(url_hash[:4], "big"), int.from_bytes(url_hash[4:], "big", signed=True))


class Place(NamedTuple):
    """The row that a key has or would have: its id, by how far it was moved on, and whether it is there."""

    id: int
    probe: int
    exists: bool


def places(keys: Iterable[Key], using: str = "default") -> dict[Key, Place]:
    """The place of each key. Two URLs of a queue that share 32 bits of hash (one pair in 2 billion) get
    neighbouring rows; the remaining 64 bits tell which is which."""
    sql = dialect(using)
    found: dict[Key, Place] = {}
    taken: set[int] = set()
    asked = dict.fromkeys(sorted(set(keys)), 0)
    with connections[using].cursor() as cursor:
        while asked:
            ids = {key: (key.queue << 32) + key.first + probe for key, probe in asked.items()}
            there = dict(
                sql.select(
                    cursor,
                    "id, hash",
                    f"FROM crawl_page WHERE id IN {sql.rows('id bigint')}",
                    [sql.pack(sorted(set(ids.values())))],
                )
            )
            for key, row in ids.items():
                if there.get(row) == key.rest:
                    found[key] = Place(row, asked.pop(key), True)
                elif row not in there and row not in taken:
                    found[key] = Place(row, asked.pop(key), False)
                else:
                    asked[key] += 1
                    continue
                taken.add(row)
    return found


class KnownHistory:
    """What the frontier asks when it rebuilds its seen index (settings.FRONTIER_HISTORY)."""

    def rules(self, campaign: int) -> Rules:
        """The site rules of a campaign."""
        row = Campaign.objects.filter(id=campaign).first()
        return Rules.from_dict(row.url_rules) if row and row.url_rules else NO_RULES

    def finished(self, using: str) -> Iterator[tuple[I64, U64, U64]]:
        """(queue ids, first 32 bits, last 64 bits of the URL hash) of all visited URLs, in chunks."""
        after = -1
        pages = Page.objects.using(using).order_by("id")
        while rows := list(pages.filter(id__gt=after).values_list("id", "probe", "hash")[:CHUNK]):
            after = rows[-1][0]
            table = np.array(rows, np.int64)
            home = table[:, 0] - table[:, 1]
            yield home >> 32, (home & 0xFFFF_FFFF).astype(np.uint64), table[:, 2].view(np.uint64)


def no_longer_queued(sender: Any, queues: list[int], using: str, **kwargs: Any) -> None:
    """Pages whose queues were purged wait no more."""
    for queue in queues:
        rows = Page.objects.using(using).filter(id__gte=queue << 32, id__lt=(queue + 1) << 32, queued=True)
        rows.update(queued=False)


def page_of(campaign: Campaign, url: URL) -> Page | None:
    """What the campaign knows of a URL that it has fetched."""
    queue = Queue.objects.filter(host__name=url.host, campaign=campaign.pk).first()
    if queue is None:
        return None
    key = key_of(queue.pk, url_hash(url.canonical, hash_seed()))
    place = places([key])[key]
    return Page.objects.get(id=place.id) if place.exists else None
