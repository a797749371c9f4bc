"""Links on their way into the inbox, as columns: what a worker has to say of each is kept, and nothing else."""

from array import array
from collections.abc import Iterator
from itertools import compress

import numpy as np

from frontier.models import Inbox
from frontier.politeness import now_ms
from frontier.priority import HELD
from frontier.seen.runs import Mask
from frontier.urls import URL_HASH_BYTES, host_key

# Links in one inbox row. The index of a host name in its row is 16 bits wide.
MAX_LINKS_PER_ROW = 20_000
MAX_DEPTH = (1 << 15) - 1


class Sheet:
    """One entry per link in each column; `owners` are places in `hosts`.

    Admission fills the columns itself, in one loop over links that it touches once (frontier/admission.py).
    """

    __slots__ = ("depths", "digests", "hosts", "levels", "owners", "refs")

    def __init__(self) -> None:
        self.digests: list[bytes] = []  # xxh3_128 of the canonical form, of which the inbox keeps the head
        self.levels: list[int] = []
        self.depths: list[int] = []
        self.owners = array("I")
        self.refs: list[str] = []
        # By host name: its place, the prefix that a reference leaves out, and where in a URL the reference begins.
        self.hosts: dict[str, tuple[int, str, int]] = {}

    def __len__(self) -> int:
        return len(self.refs)

    def without(self, mask: Mask) -> "Sheet":
        """A sheet without the links that a mask says."""
        kept = Sheet()
        keep = (~mask).tolist()
        kept.hosts = self.hosts
        kept.owners = array("I", compress(self.owners, keep))
        for name in ("digests", "levels", "depths", "refs"):
            setattr(kept, name, list(compress(getattr(self, name), keep)))
        return kept

    def rows(self, campaign: int, seed: int) -> Iterator[Inbox]:
        """The links as inbox rows of at most MAX_LINKS_PER_ROW.

        Raises ValueError for a level that would run over into the queue id of its row.
        """
        names = list(self.hosts)
        for start in range(0, len(self), MAX_LINKS_PER_ROW):
            part = slice(start, start + MAX_LINKS_PER_ROW)
            owners, index = np.unique(np.array(self.owners[part]), return_inverse=True)
            named = [names[owner] for owner in owners.tolist()]
            digests = np.frombuffer(b"".join(self.digests[part]), np.uint8).reshape(-1, 16)
            levels = np.array(self.levels[part])
            if levels.min() < 0 or levels.max() > HELD:
                raise ValueError(f"a priority level is between 0 and {HELD}")
            yield Inbox(
                campaign=campaign,
                links=len(levels),
                received_at=now_ms(),
                names="\n".join(named),
                name_keys=b"".join([host_key(campaign, name, seed) for name in named]),
                name_index=index.astype("<u2").tobytes(),
                hashes=digests[:, :URL_HASH_BYTES].tobytes(),
                levels=levels.astype(np.uint8).tobytes(),
                depths=np.minimum(self.depths[part], MAX_DEPTH).astype("<u2").tobytes(),
                refs="\n".join(self.refs[part]),
            )
