"""Links on their way in: packed by the worker, written down durably, merged later.

A link that `admit` has returned from is never lost: its inbox row is committed and stays until the
merge has stored the URL or found it known.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
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
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def __contains__(self, url_hash: bytes) -> bool:
        return url_hash in self._young or url_hash in self._old

    def update(self, hashes: Iterable[bytes]) -> None:
        """Adds hashes whose inbox rows are committed."""
        self._young.update(hashes)
        if len(self._young) >= RECENT_LINKS:
            self._old, self._young = self._young, set()


@lru_cache(maxsize=64)
def recent(campaign: int, using: str = "default") -> Recent:
    """The recent links of a campaign in this process."""
    return Recent()


def admit(campaign: int, links: Iterable[Link], using: str = "default") -> int:
    """Writes links down for the merge; returns how many were left after dropping repeats."""
    seed, known = hash_seed(using), recent(campaign, using)
    fresh: dict[bytes, Link] = {}
    for link in links:
        key = url_hash(link.url.canonical, seed)
        if key not in fresh and key not in known:
            fresh[key] = link
    rows = list(pack(campaign, fresh, seed))
    Inbox.objects.using(inbox_alias(using)).bulk_create(rows)
    known.update(fresh)
    return len(fresh)


def pack(campaign: int, links: Mapping[bytes, Link], seed: int) -> Iterator[Inbox]:
    """Links by their URL hash as inbox rows of at most MAX_LINKS_PER_ROW."""
    left = iter(links.items())
    while batch := list(islice(left, MAX_LINKS_PER_ROW)):
        yield _row(campaign, [key for key, _ in batch], [link for _, link in batch], seed)


def _row(campaign: int, hashes: list[bytes], links: list[Link], seed: int) -> Inbox:
    levels = [link.level for link in links]
    if max(levels) > HELD:  # it would run over into the queue id of its row
        raise ValueError(f"a priority level is at most {HELD}")
    names: dict[str, int] = {}
    prefixes: dict[str, str] = {}
    index, refs = [], []
    for link in links:
        fetch, _, host = link.url
        prefix = prefixes.get(host)
        if prefix is None:
            prefix = prefixes[host] = f"https://{host}/"
            names[host] = len(names)
        index.append(names[host])
        # What to_reference does, without making the prefix anew for every link.
        refs.append(fetch[len(prefix) - 1 :] if fetch.startswith(prefix) else to_reference(fetch, host))
    return Inbox(
        campaign=campaign,
        links=len(links),
        received_at=now_ms(),
        names="\n".join(names),
        name_keys=b"".join([host_key(campaign, name, seed) for name in names]),
        name_index=np.array(index, "<u2").tobytes(),
        hashes=b"".join(hashes),
        levels=bytes(levels),
        depths=np.minimum([link.depth for link in links], MAX_DEPTH).astype("<u2").tobytes(),
        refs="\n".join(refs),
    )


def waiting(using: str = "default") -> tuple[int, int | None]:
    """How many links wait in the inbox, and since when (milliseconds since 1970), or None."""
    found: Any = Inbox.objects.using(inbox_alias(using)).order_by("id").values_list("links", "received_at")
    rows = list(found[:10_000])
    return sum(links for links, _ in rows), rows[0][1] if rows else None
