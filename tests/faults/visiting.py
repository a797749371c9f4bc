"""Visits of the real engine without a database: what it would store is kept in lists."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crawl.fetch.engine import Engine, Options
from crawl.fetch.limits import Limits
from crawl.fetch.target import Known, Target
from crawl.fetch.visit import HostVisit
from crawl.pages import key_of
from crawl.plan import Plan
from crawl.record import Ended, Record
from crawl.scope import Scope
from frontier.claim import Visit
from frontier.urls import NO_RULES, canonicalise, url_hash

# Seconds. What takes a minute in a crawl is over in six here.
SHORT = Limits(connect_seconds=2, total_seconds=6, slow_seconds=2, slowest_bytes_per_second=64)


class Kept:
    """Stands where the writer stands, and keeps what comes."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ended: list[Ended] = []
        self._change = threading.Condition()

    def record(self, record: Record) -> None:
        self.records.append(record)

    def end(self, ended: Ended) -> None:
        with self._change:
            self.ended.append(ended)
            self._change.notify()

    def wait(self, visits: int, seconds: float = 60) -> None:
        """Waits until so many visits have ended."""
        with self._change:
            assert self._change.wait_for(lambda: len(self.ended) >= visits, seconds), "a visit has not ended"

    def behind(self) -> bool:
        return False

    def save_robots(self, row: Any) -> None:
        pass


class VisitingEngine(Engine):
    """The engine with its loop alone."""

    def __init__(self, data: Path, limits: Limits = SHORT, **changed: Any) -> None:
        usual: dict[str, Any] = {"overrides": (("*.test", "127.0.0.1"),), "allow_networks": ("127.0.0.0/8",)}
        options = Options(data, **(usual | changed))
        super().__init__(options, lambda hosts, links: None)
        self.kept = Kept()
        kept: Any = self.kept
        self.writer = self._robots_fetcher.writer = kept
        self.loop.limits = limits
        seeds = [canonicalise("http://seed.test/")]
        scope = Scope("any", seeds, ports="any")
        self.plan = Plan(1, 1, NO_RULES, scope, 0, 1, 0, False, None, "trawl-tests", True, False)
        self._hosts = 0

    def if_unknown(self, target: Target, then: HostVisit) -> None:
        target.key = key_of(target.key.queue, url_hash(target.url.canonical, 0))
        then.take_redirect(target)

    def begin(self, urls: Iterable[str], failures: int = 0, known: Known | None = None, **lease: Any) -> HostVisit:
        """Begins the visit of the host of these URLs, which failed so often before."""
        self._hosts += 1
        parsed = [canonicalise(url) for url in urls]
        targets = deque(
            Target(url, key_of(self._hosts, url_hash(url.canonical, 0)), self.plan, 0, known=known) for url in parsed
        )
        due_at = int(time.time() * 1000)
        leased = Visit(self._hosts, parsed[0].host, 1, due_at, 0, lease.get("delay_ms"), failures, "", [])
        visit = HostVisit(leased, targets, self)
        self._committed[id(visit)] = lambda: None
        self.loop.submit(lambda: self._begin(visit))
        return visit

    def records_of(self, host: str) -> list[Record]:
        """What was recorded of a host (name:port or name), in order."""
        return [record for record in self.kept.records if record.outcome.target.url.host == host]

    def release_of(self, visit: HostVisit) -> Any:
        """How the host of a visit was given back."""
        return next(one.release for one in self.kept.ended if one.release.host == visit.lease.host)


@contextmanager
def visiting(data: Path, limits: Limits = SHORT, **options: Any) -> Iterator[VisitingEngine]:
    """A running engine of this kind; `options`: what is other than usual."""
    engine = VisitingEngine(data, limits, **options)
    engine.loop.start()
    try:
        yield engine
    finally:
        engine.resolver.close()
        engine.loop.close()
