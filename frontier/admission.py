"""Links on their way in: packed by the worker, written down durably, merged later.

A link that `admit` has returned from is never lost: its inbox row is committed and stays until the
merge has stored the URL or found it known.
"""

import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from django.db import connections, transaction

from frontier.models import Inbox
from frontier.priority import HELD, POPULAR, POPULAR_LINKS
from frontier.router import inbox_alias
from frontier.seen import prechecks
from frontier.sheet import Sheet
from frontier.sql import dialect
from frontier.state import hash_seed
from frontier.urls import URL, URL_HASH_BYTES, to_reference, url_digest

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

    def sift(self, links: Iterable[Link], seed: int) -> Sheet:
        """Counts links in; returns what must be written: those that are not known to be written, and again those
        that have just become popular or are named by a sitemap or a seed."""
        # One loop with everything in it, since most of its time goes into fetching each link's objects from
        # memory: told apart here and written down in a second loop, links took 2.1 us each instead of 1.5.
        met, met_before, young, sheet = self.young.get, self.old.get, self.young, Sheet()
        digests, levels, depths, owners, refs = sheet.digests, sheet.levels, sheet.depths, sheet.owners, sheet.refs
        hosts = sheet.hosts
        for (fetch, canonical, host), level, depth in links:
            digest = url_digest(canonical.encode(), seed)
            times = met(digest)
            if times is None:
                times = met_before(digest, 0)
            young[digest] = times = times + 1
            if times == POPULAR_LINKS and POPULAR < level < HELD:
                level = POPULAR
            elif times > 1 and level >= POPULAR:
                continue
            # Else it is new, or a sitemap or a seed names it: that counts for a URL that waits already, too.
            known = hosts.get(host)
            if known is None:
                prefix = f"https://{host}/"
                known = hosts[host] = (len(hosts), prefix, len(prefix) - 1)
            owner, prefix, start = known
            digests.append(digest)
            levels.append(level)
            depths.append(depth)
            owners.append(owner)
            # What to_reference does, without making the prefix anew for every link.
            refs.append(fetch[start:] if fetch.startswith(prefix) else to_reference(fetch, host))
        if len(young) >= RECENT_LINKS:
            self.old, self.young = young, {}
        return sheet

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
            sheet = known.sift(links, seed)
            if written is not None:
                sheet = leave_out(written, campaign, sheet)
            write_down(list(sheet.rows(campaign, seed)), using)
            if written is not None:
                add_when_committed(written, campaign, sheet, using)
        except BaseException:
            known.clear()
            raise
    return len(sheet)


def leave_out(written: prechecks.Written, campaign: int, sheet: Sheet) -> Sheet:
    """Takes the links out that another process, or this one long ago, has written down already.

    Only those that would tell nothing new: a level above POPULAR is that of the first who writes the URL down.
    """
    levels = np.array(sheet.levels, np.int64)
    asked = np.flatnonzero((levels > POPULAR) & (levels < HELD))
    keys = _keys(campaign, sheet, asked.tolist())
    known = np.zeros(len(sheet), bool)
    known[asked] = written.known(keys)
    return sheet.without(known)


def add_when_committed(written: prechecks.Written, campaign: int, sheet: Sheet, using: str) -> None:
    """Tells the set what was written, once no rollback can take it back: after the caller's transaction, if any.

    Not what is held: another page may find it where it is not, in the same merge.
    """
    keys = _keys(campaign, sheet, [place for place, level in enumerate(sheet.levels) if level < HELD])
    transaction.on_commit(lambda: written.add(keys), using=inbox_alias(using))


def _keys(campaign: int, sheet: Sheet, places: list[int]) -> list[bytes]:
    prefix = campaign.to_bytes(8, "big")
    return [prefix + sheet.digests[place][:URL_HASH_BYTES] for place in places]


def write_down(rows: list[Inbox], using: str) -> None:
    """Adds inbox rows in one commit. Past the ORM, which would send the arrays to PostgreSQL as escaped literals."""
    alias = inbox_alias(using)
    names = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        dialect(alias).insert(
            cursor, "frontier_inbox", names, [[getattr(row, name) for row in rows] for name in COLUMNS]
        )


def waiting(using: str = "default") -> tuple[int, int | None]:
    """How many links wait in the inbox, and since when (milliseconds since 1970), or None."""
    found: Any = Inbox.objects.using(inbox_alias(using)).order_by("id").values_list("links", "received_at")
    rows = list(found[:10_000])
    return sum(links for links, _ in rows), rows[0][1] if rows else None
