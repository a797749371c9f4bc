"""Links on their way in: packed by the worker, written down durably, merged later.

A link that `admit` has returned from is never lost: its inbox row is committed and stays until the
merge has stored the URL or found it known.
"""

from collections.abc import Iterable, Iterator
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


class Link(NamedTuple):
    """One URL to admit: its priority level (0 first ... 15 held) and its depth in links from a seed."""

    url: URL
    level: int
    depth: int


def admit(campaign: int, links: Iterable[Link], using: str = "default") -> int:
    """Writes links down for the merge; returns how many were left after dropping repeats among them."""
    rows = list(pack(campaign, links, hash_seed(using)))
    Inbox.objects.using(inbox_alias(using)).bulk_create(rows)
    return sum(row.links for row in rows)


def pack(campaign: int, links: Iterable[Link], seed: int) -> Iterator[Inbox]:
    """Links as inbox rows of at most MAX_LINKS_PER_ROW, each URL once (the first one counts)."""
    first: dict[str, Link] = {}
    for link in links:
        first.setdefault(link.url.canonical, link)
    left = iter(first.values())
    while batch := list(islice(left, MAX_LINKS_PER_ROW)):
        yield _row(campaign, batch, seed)


def _row(campaign: int, links: list[Link], seed: int) -> Inbox:
    urls, levels = [link.url for link in links], [link.level for link in links]
    if max(levels) > HELD:  # it would run over into the queue id of its row
        raise ValueError(f"a priority level is at most {HELD}")
    names: dict[str, int] = {}
    index = [names.setdefault(url.host, len(names)) for url in urls]
    return Inbox(
        campaign=campaign,
        links=len(links),
        received_at=now_ms(),
        names="\n".join(names),
        name_keys=b"".join([host_key(campaign, name, seed) for name in names]),
        name_index=np.array(index, "<u2").tobytes(),
        hashes=b"".join([url_hash(url.canonical, seed) for url in urls]),
        levels=bytes(levels),
        depths=np.minimum([link.depth for link in links], MAX_DEPTH).astype("<u2").tobytes(),
        refs="\n".join([to_reference(url.fetch, url.host) for url in urls]),
    )


def waiting(using: str = "default") -> tuple[int, int | None]:
    """How many links wait in the inbox, and since when (milliseconds since 1970), or None."""
    found: Any = Inbox.objects.using(inbox_alias(using)).order_by("id").values_list("links", "received_at")
    rows = list(found[:10_000])
    return sum(links for links, _ in rows), rows[0][1] if rows else None
