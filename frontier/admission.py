"""Links on their way in: packed by the worker, written down durably, merged later.

A link that `admit` has returned from is never lost: its inbox row is committed and stays until the
merge has stored the URL or found it known.
"""

import sys
import threading
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import connections, transaction

from frontier.models import Inbox
from frontier.politeness import now_ms
from frontier.priority import HELD, POPULAR, POPULAR_LINKS
from frontier.router import inbox_alias
from frontier.seen import prechecks
from frontier.sql import dialect
from frontier.state import hash_seed
from frontier.urls import URL, host_key, to_reference, url_hash

# Links in one inbox row. The index of a host name in its row is 16 bits wide.
MAX_LINKS_PER_ROW = 20_000
MAX_DEPTH = (1 << 15) - 1
# Links that each half of `Recent` holds, about 100 bytes each.
RECENT_LINKS = 200_000

COLUMNS = {
    "campaign": "integer",
    "links": "integer",
    "received_at": "bigint",
    "names": "text",
    "name_keys": "bytea",
    "name_index": "bytea",
    "hashes": "bytea",
    "levels": "bytea",
    "depths": "bytea",
    "refs": "text",
}


class Link(NamedTuple):
    """One URL to admit: its priority level (see frontier/priority.py) and its depth in links from a seed."""

    url: URL
    level: int
    depth: int


class Recent:
    """The links that this process has met lately, with the number of times: bounded and exact.

    Pages of a site repeat their menus, so most links are offered again within seconds. What is in here
    is in the inbox or merged already, and need not be written once more; what is not in here is written,
    known or not. It forgets the older half when it is full; what is met again moves to the younger one.
    """

    def __init__(self) -> None:
        self.young: dict[bytes, int] = {}
        self.old: dict[bytes, int] = {}
        # Held until the links are written: nobody may take a link as known that then cannot be written.
        self.lock = threading.Lock()

    def sift(self, links: Iterable[Link], seed: int) -> dict[bytes, Link]:
        """Counts links in; returns what must be written, by URL hash: those that are not known to be
        written, and again those that have just become popular or are named by a sitemap or a seed."""
        met, met_before = self.young.get, self.old.get
        young = self.young
        fresh: dict[bytes, Link] = {}
        for link in links:
            key = url_hash(link[0][1], seed)
            times = met(key)
            if times is None:
                times = met_before(key, 0)
            young[key] = times = times + 1
            if times == 1 or link[1] < POPULAR:
                # A sitemap or a seed names it: that counts for a URL that waits already, too.
                if key not in fresh or link[1] < fresh[key][1]:
                    fresh[key] = link
            elif times == POPULAR_LINKS:
                first = fresh.get(key, link)
                if POPULAR < first[1] < HELD:
                    fresh[key] = first._replace(level=POPULAR)
        if len(young) >= RECENT_LINKS:
            self.old, self.young = young, {}
        return fresh

    def clear(self) -> None:
        """Forgets all links, since some that were counted in could not be written."""
        self.young, self.old = {}, {}


@lru_cache(maxsize=64)
def recent(campaign: int, using: str = "default") -> Recent:
    """The recent links of a campaign in this process."""
    return Recent()


def admit(campaign: int, links: Iterable[Link], using: str = "default") -> int:
    """Writes links down for the merge; returns how many were left after dropping repeats.

    A link is what one page says: who repeats it for the same page makes it look popular.
    """
    seed, known, written = hash_seed(using), recent(campaign, using), prechecks.written(using)
    with known.lock:
        try:
            fresh = known.sift(links, seed)
            if written is not None:
                leave_out(written, campaign, fresh)
            write_down(list(pack(campaign, list(fresh), list(fresh.values()), seed)), using)
            if written is not None:
                add_when_committed(written, campaign, fresh, using)
        except BaseException:
            known.clear()
            raise
    return len(fresh)


def leave_out(written: prechecks.Written, campaign: int, fresh: dict[bytes, Link]) -> None:
    """Takes the links out that another process, or this one long ago, has written down already.

    Only those that would tell nothing new: a level above POPULAR is that of the first who writes the URL down.
    """
    prefix = campaign.to_bytes(8, "big")
    asked = [key for key, link in fresh.items() if POPULAR < link[1] < HELD]
    for key, known in zip(asked, written.known([prefix + key for key in asked]), strict=True):
        if known:
            del fresh[key]


def add_when_committed(written: prechecks.Written, campaign: int, fresh: dict[bytes, Link], using: str) -> None:
    """Tells the set what was written, once no rollback can take it back: after the caller's transaction, if any.

    Not what is held: another page may find it where it is not, in the same merge.
    """
    prefix = campaign.to_bytes(8, "big")
    keys = [prefix + key for key, link in fresh.items() if link[1] < HELD]
    transaction.on_commit(lambda: written.add(keys), using=inbox_alias(using))


def write_down(rows: list[Inbox], using: str) -> None:
    """Adds inbox rows in one commit. Past the ORM, which would send the arrays to PostgreSQL as escaped literals."""
    alias = inbox_alias(using)
    names = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        dialect(alias).insert(
            cursor, "frontier_inbox", names, [[getattr(row, name) for row in rows] for name in COLUMNS]
        )


def pack(campaign: int, hashes: list[bytes], links: list[Link], seed: int) -> Iterator[Inbox]:
    """Links with their URL hashes as inbox rows of at most MAX_LINKS_PER_ROW."""
    for start in range(0, len(links), MAX_LINKS_PER_ROW):
        end = start + MAX_LINKS_PER_ROW
        yield _row(campaign, hashes[start:end], links[start:end], seed)


def _row(campaign: int, hashes: list[bytes], links: list[Link], seed: int) -> Inbox:
    # Comprehensions, not zip(*links): that makes an iterator per link, and so many objects at once start
    # the garbage collector over everything that the process holds (1.3 us a link instead of 0.4).
    levels = [link[1] for link in links]
    if max(levels) > HELD:  # it would run over into the queue id of its row
        raise ValueError(f"a priority level is at most {HELD}")
    # By host: its place among the names, the prefix that a reference leaves out, and where it ends.
    hosts: dict[str, tuple[int, str, int]] = {}
    index, refs = array("H"), []
    for (fetch, _, host), _, _ in links:
        known = hosts.get(host)
        if known is None:
            prefix = f"https://{host}/"
            known = hosts[host] = (len(hosts), prefix, len(prefix) - 1)
        index.append(known[0])
        # What to_reference does, without making the prefix anew for every link.
        refs.append(fetch[known[2] :] if fetch.startswith(known[1]) else to_reference(fetch, host))
    return Inbox(
        campaign=campaign,
        links=len(links),
        received_at=now_ms(),
        names="\n".join(hosts),
        name_keys=b"".join([host_key(campaign, name, seed) for name in hosts]),
        name_index=_little_endian(index),
        hashes=b"".join(hashes),
        levels=bytes(levels),
        depths=_little_endian(array("H", [min(link[2], MAX_DEPTH) for link in links])),
        refs="\n".join(refs),
    )


def _little_endian(numbers: "array[int]") -> bytes:
    """The bytes of an array as they are stored, on any machine."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def waiting(using: str = "default") -> tuple[int, int | None]:
    """How many links wait in the inbox, and since when (milliseconds since 1970), or None."""
    found: Any = Inbox.objects.using(inbox_alias(using)).order_by("id").values_list("links", "received_at")
    rows = list(found[:10_000])
    return sum(links for links, _ in rows), rows[0][1] if rows else None
