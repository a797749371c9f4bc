"""Links on their way in: packed by the worker, written down durably, merged later.

A link that `admit` has returned from is never lost: its inbox row is committed and stays until the
merge has stored the URL or found it known.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from frontier.models import HELD, Inbox
from frontier.politeness import now_ms
from frontier.router import inbox_alias
from frontier.state import hash_seed
from frontier.urls import URL, host_key, to_reference, url_hash

# Links in one inbox row. The index of a host name in its row is 16 bits wide.
MAX_LINKS_PER_ROW = 20_000
MAX_DEPTH = (1 << 15) - 1
# Links that each half of `Recent` holds, about 90 bytes each.
RECENT_LINKS = 200_000


class Link(NamedTuple):
    """One URL to admit: its priority level (0 first ... 15 held) and its depth in links from a seed."""

    url: URL
    level: int
    depth: int


class Recent:
    """The links that this process has written down lately: a bounded, exact set of URL hashes.

    Pages of a site repeat their menus, so most links are offered again within seconds. What is in here
    is in the inbox or merged already, and need not be written once more; what is not in here is written,
    known or not. It forgets the older half when it is full.
    """

    def __init__(self) -> None:
        self.young: set[bytes] = set()
        self.old: set[bytes] = set()

    def update(self, hashes: Iterable[bytes]) -> None:
        """Adds hashes whose inbox rows are committed."""
        self.young.update(hashes)
        if len(self.young) >= RECENT_LINKS:
            self.old, self.young = self.young, set()


@lru_cache(maxsize=64)
def recent(campaign: int, using: str = "default") -> Recent:
    """The recent links of a campaign in this process."""
    return Recent()


def admit(campaign: int, links: Iterable[Link], using: str = "default") -> int:
    """Writes links down for the merge; returns how many were left after dropping repeats."""
    seed, known = hash_seed(using), recent(campaign, using)
    young, old = known.young, known.old
    fresh: dict[bytes, Link] = {}
    for link in links:
        key = url_hash(link[0][1], seed)
        if key not in young and key not in old and key not in fresh:
            fresh[key] = link
    rows = list(pack(campaign, list(fresh), list(fresh.values()), seed))
    Inbox.objects.using(inbox_alias(using)).bulk_create(rows)
    known.update(fresh)
    return len(fresh)


def pack(campaign: int, hashes: list[bytes], links: list[Link], seed: int) -> Iterator[Inbox]:
    """Links with their URL hashes as inbox rows of at most MAX_LINKS_PER_ROW."""
    for start in range(0, len(links), MAX_LINKS_PER_ROW):
        end = start + MAX_LINKS_PER_ROW
        yield _row(campaign, hashes[start:end], links[start:end], seed)


def _row(campaign: int, hashes: list[bytes], links: list[Link], seed: int) -> Inbox:
    urls, levels, depths = zip(*links, strict=True)
    if max(levels) > HELD:  # it would run over into the queue id of its row
        raise ValueError(f"a priority level is at most {HELD}")
    # By host: its place among the names, the prefix that a reference leaves out, and where it ends.
    hosts: dict[str, tuple[int, str, int]] = {}
    index, refs = [], []
    for fetch, _, host in urls:
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
        name_index=np.array(index, "<u2").tobytes(),
        hashes=b"".join(hashes),
        levels=bytes(levels),
        depths=np.minimum(depths, MAX_DEPTH).astype("<u2").tobytes(),
        refs="\n".join(refs),
    )


def waiting(using: str = "default") -> tuple[int, int | None]:
    """How many links wait in the inbox, and since when (milliseconds since 1970), or None."""
    found: Any = Inbox.objects.using(inbox_alias(using)).order_by("id").values_list("links", "received_at")
    rows = list(found[:10_000])
    return sum(links for links, _ in rows), rows[0][1] if rows else None
