"""trawl's own frontier under the benchmark, through the calls that a crawl makes.

Django must be set up on a fresh data directory before this is imported (see bench/measure.py).
"""

from collections.abc import Sequence
from time import perf_counter

from django.core.management import call_command
from django.db import connections, transaction

from bench.design import CAMPAIGN, HASH_SEED, POLITE_MS, Visit
from frontier.admission import Link, admit
from frontier.claim import claim, open_visits
from frontier.complete import Release, finish, settle
from frontier.merge import MAX_LINKS, merge
from frontier.models import FrontierState, Host, QueuedUrl
from frontier.politeness import now_ms
from frontier.urls import from_reference

LEASE_MS = 60_000


class TrawlFrontier:
    """Admission, merge, claim and completion as crawl/record.py and crawl/tasks.py do them.

    A crawl that finds links faster than they are merged has a full inbox, so every merge here takes
    MAX_LINKS of them; it runs between the batches, where a crawl has it in another task.
    """

    link = Link

    def __init__(self) -> None:
        for alias in connections:
            call_command("migrate", database=alias, verbosity=0)
        FrontierState.objects.create(name="hash_seed", value=HASH_SEED)
        self.merge_seconds = 0.0
        self._waiting = 0

    def admit(self, links: Sequence[Link]) -> None:
        self._waiting += admit(CAMPAIGN, links)
        while self._waiting >= MAX_LINKS:
            self._merge()

    def _merge(self) -> None:
        started = perf_counter()
        self._waiting -= merge().links
        self.merge_seconds += perf_counter() - started

    def settle(self) -> None:
        while self._waiting:
            self._merge()
        _checkpoint()

    def held(self) -> tuple[int, int]:
        return QueuedUrl.objects.count(), Host.objects.count()

    def scatter(self) -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute("UPDATE frontier_host SET next_at = 1 + id * 7919 %% 999983, due_at = 0", [])
        _checkpoint()

    def claim(self, hosts: int) -> list[Visit]:
        claimed = claim(hosts, lease_ms=LEASE_MS)
        visits = open_visits(claimed, [CAMPAIGN], lambda gap_ms, delay_ms: 1, lease_ms=LEASE_MS)
        return [
            Visit(url.row, visit.host, visit.token, from_reference(url.ref, visit.name))
            for visit in visits
            for url in visit.urls
        ]

    def complete(self, visits: Sequence[Visit]) -> None:
        due = now_ms() + POLITE_MS
        with transaction.atomic():
            finish(int(visit.row) for visit in visits)
            settle([], [Release(visit.host, visit.token, due, POLITE_MS, 0, "") for visit in visits])


def _checkpoint() -> None:
    for alias in connections:
        with connections[alias].cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            cursor.fetchall()
