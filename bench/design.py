"""What a frontier design must do to be measured by bench/measure.py."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from frontier.urls import URL

CAMPAIGN = 1
# One hash seed for all designs, so that none of them has luckier keys.
HASH_SEED = 0x7472_6177_6C
POLITE_MS = 1000


class Link(NamedTuple):
    """A link as a design gets it, as frontier.admission.Link: parsed, with its priority level and its depth."""

    url: URL
    level: int
    depth: int


class Visit(NamedTuple):
    """A claimed URL: its row's key, the host with its lease token (0: it has none), and what to fetch."""

    row: int | bytes | str
    host: int
    token: int
    url: str


class Design(Protocol):
    """A frontier on disk. Every method returns when its work would survive a power cut.

    `polite_ms` is how long a claimed host is left alone, POLITE_MS until somebody sets it. `clusters` says
    whether the URLs of a host can be claimed together; without it `per_host` is taken as 1.
    """

    merge_seconds: float
    polite_ms: int
    clusters: bool

    @property
    def link(self) -> Callable[[URL, int, int], Any]:
        """Makes a link of the type that `admit` takes."""

    def resume(self) -> None:
        """What a start on existing data does before its first claim, when no other process is alive."""

    def admit(self, links: Sequence[Any]) -> None:
        """Takes the links of one batch of pages; merges when its own threshold says so."""

    def merge(self) -> None:
        """Merges once, whatever the threshold says."""

    def settle(self) -> None:
        """Merges what is left, and brings what lies in logs to its place in the files."""

    def held(self) -> tuple[int, int]:
        """How many URLs and hosts the design has, counted in its tables."""

    def scatter(self) -> None:
        """Makes every host due at another time in the past, in no order of the keys: a crawl in full swing."""

    def claim(self, hosts: int, per_host: int = 1) -> list[Visit]:
        """The first URLs of each of up to so many hosts that are due."""

    def complete(self, visits: Sequence[Visit]) -> None:
        """The end of these visits, in one transaction."""

    def close(self) -> None:
        """Lets go of all connections."""
