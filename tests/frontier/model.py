"""The frontier as it is meant, in plain Python, for the state machine to compare with."""

from collections import defaultdict
from dataclasses import dataclass, field

from frontier.priority import HELD, POPULAR
from tests.frontier.world import Waiting

CAMPAIGNS = (1, 2)


@dataclass
class ModelHost:
    """What the frontier should know of a host. `second`: its place among the due ones, if it is one of them."""

    due_at: int = 0
    lease: int = 0
    gap_ms: int = 0
    active: bool = False
    blocked: bool = False
    second: int = 0

    def due(self, due_at: int, level: int, now: int) -> None:
        self.lease, self.active = 0, True
        self.due_at, self.second = due_at, max(due_at, now) // 1000 + level

    def idle(self) -> None:
        self.lease, self.active, self.second = 0, False, 0


@dataclass
class ModelLease:
    ends_at: int
    opened: bool = False


@dataclass
class Model:
    """The frontier as it is meant: lists and sets."""

    inbox: list[list[Waiting]] = field(default_factory=list)
    known: set[tuple[int, str]] = field(default_factory=set)
    queued: list[Waiting] = field(default_factory=list)  # in order of arrival
    finished: set[tuple[int, str]] = field(default_factory=set)
    hosts: dict[str, ModelHost] = field(default_factory=lambda: defaultdict(ModelHost))
    leases: dict[int, ModelLease] = field(default_factory=dict)
    # Levels that a URL was offered at: it may be moved to the better ones of them while it waits.
    offers: dict[tuple[int, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    blocks: set[str] = field(default_factory=set)
    running: set[int] = field(default_factory=lambda: set(CAMPAIGNS))

    def queue(self, name: str, campaign: int) -> list[Waiting]:
        """What may be claimed, in its order."""
        own = [w for w in self.queued if w.campaign == campaign and host_of(w.url) == name and w.level < HELD]
        return sorted(own, key=lambda w: w.level)  # stable: in order of arrival

    def best_level(self, name: str) -> int | None:
        """The best level that waits on a host in any campaign."""
        return min((w.level for campaign in CAMPAIGNS for w in self.queue(name, campaign)), default=None)

    def activate(self, name: str, now: int) -> None:
        host, level = self.hosts[name], self.best_level(name)
        if not host.active and not host.blocked and level is not None:
            host.due(host.due_at or now, level, now)

    def take_back(self, tokens: list[int], now: int) -> int:
        """Returns how many hosts come back."""
        held = [host for host in self.hosts.values() if host.lease in tokens]
        for host in held:
            host.due(max(host.due_at, now + host.gap_ms), 0, now)
        for token in tokens:
            del self.leases[token]
        return len(held)

    def offer(self, rows: int) -> None:
        for row in self.inbox[:rows]:
            for link in row:
                self.offers[link.campaign, link.url].add(link.level)

    def moved(self, waiting: list[Waiting]) -> None:
        """Follows the moves of URLs that wait to better levels. It is not said which are made, but which may be."""
        level_of = {(w.campaign, w.url): w.level for w in self.queued}
        moved = []
        for found in waiting:
            key = found.campaign, found.url
            old = level_of.get(key, found.level)
            if found.level != old:
                assert found.level < old < HELD
                assert found.level <= POPULAR
                assert found.level in self.offers[key]
                moved.append(found)
        keys = {(w.campaign, w.url) for w in moved}
        self.queued = [w for w in self.queued if (w.campaign, w.url) not in keys] + moved

    def merge(self, rows: int, now: int) -> None:
        batch = [link for row in self.inbox[:rows] for link in row]
        found: dict[str, int] = {}
        best: dict[tuple[int, str], Waiting] = {}
        for link in batch:
            key = link.campaign, link.url
            met = best.get(key, link)
            best[key] = met._replace(level=min(link.level, met.level), depth=min(link.depth, met.depth))
        for link in batch:
            if (link.campaign, link.url) not in self.known:
                self.known.add((link.campaign, link.url))
                link = best[link.campaign, link.url]
                self.queued.append(link)
                name = host_of(link.url)
                if name not in self.hosts:
                    self.hosts[name].blocked = self.covered(name)
                found[name] = min(link.level, found.get(name, HELD))
        for name, level in found.items():
            host = self.hosts[name]
            # A parked host comes back with any new URL that may be claimed.
            if level < HELD and not host.active and not host.blocked:
                host.due(host.due_at or now, level, now)

    def covered(self, name: str) -> bool:
        return any(name == one or name.endswith("." + one) for one in self.blocks)

    def mark(self, domain: str, now: int) -> None:
        for name, host in self.hosts.items():
            if name == domain or name.endswith("." + domain):
                if self.covered(name):
                    host.blocked = True
                elif host.blocked:
                    host.blocked = False
                    self.activate(name, now)


def host_of(url: str) -> str:
    return url.split("/")[2]
