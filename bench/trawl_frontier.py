"""trawl's own frontier under the benchmark, through the calls that a crawl makes.

Django must be set up before this is imported (see bench/measure.py).
"""

from collections.abc import Sequence
from time import perf_counter, sleep

from django.db import connections, transaction
from django.db.backends.postgresql.base import DatabaseWrapper as PostgresWrapper

from bench.design import CAMPAIGN, HASH_SEED, POLITE_MS, Visit
from frontier.admission import Link, admit
from frontier.claim import claim, free_all_leases, open_visits
from frontier.complete import Release, finish, settle
from frontier.merge import batch_links, merge, merger
from frontier.models import FrontierState, Host, QueuedUrl
from frontier.politeness import now_ms
from frontier.urls import from_reference
from trawl_project.databases import migrate

LEASE_MS = 60_000


class TrawlFrontier:
    """Admission, merge, claim and completion as crawl/record.py and crawl/tasks.py do them.

    A crawl that finds links faster than they are merged has a full inbox, so every merge here takes as many
    as one takes at most; it runs between the batches, where a crawl has it in another task.
    """

    link = Link
    clusters = True

    def __init__(self) -> None:
        for alias in connections:
            migrate(alias)
        FrontierState.objects.get_or_create(name="hash_seed", defaults={"value": HASH_SEED})
        self.polite_ms = POLITE_MS
        self.merge_seconds = 0.0
        self._waiting = 0

    def resume(self) -> None:
        free_all_leases()  # what `trawl crawl` does

    def admit(self, links: Sequence[Link]) -> None:
        self._waiting += admit(CAMPAIGN, links)
        while self._waiting >= batch_links(len(merger("default").index)):
            self.merge()

    def merge(self) -> None:
        started = perf_counter()
        self._waiting -= merge().links
        self.merge_seconds += perf_counter() - started

    def settle(self) -> None:
        while self._waiting:
            self.merge()
        _checkpoint()

    def held(self) -> tuple[int, int]:
        return QueuedUrl.objects.count(), Host.objects.count()

    def scatter(self) -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE spread AS SELECT id & 2147483647 AS host FROM frontier_duehost")
            cursor.execute("DELETE FROM frontier_duehost")
            cursor.execute(
                "INSERT INTO frontier_duehost(id, due_at, gap_ms) SELECT (due / 1000 << 31) | host, due, 0 FROM"
                " (SELECT host, 1 + host * 7919 %% 999983 AS due FROM spread) scattered ORDER BY 1",
                [],
            )
            cursor.execute("DROP TABLE spread")
            if connections["default"].vendor == "postgresql":
                cursor.execute("VACUUM (ANALYZE)")
        _checkpoint()

    def claim(self, hosts: int, per_host: int = 1) -> list[Visit]:
        visits = [
            visit
            for one in claim(hosts, lease_ms=LEASE_MS)
            for visit in open_visits(one, [CAMPAIGN], lambda gap_ms, delay_ms: per_host, lease_ms=LEASE_MS)
        ]
        return [
            Visit(url.row, visit.host, visit.token, from_reference(url.ref, visit.name))
            for visit in visits
            for url in visit.urls
        ]

    def complete(self, visits: Sequence[Visit]) -> None:
        due = now_ms() + self.polite_ms
        hosts = {visit.host: visit.token for visit in visits}
        with transaction.atomic():
            finish(CAMPAIGN, [int(visit.row) for visit in visits])
            settle(
                [], [Release(host, token, due, self.polite_ms, 0, "", changed=False) for host, token in hosts.items()]
            )

    def close(self) -> None:
        close_connections()


def close_connections() -> None:
    """Closes the connections of this thread, and the pool's, which would keep the process waiting."""
    for connection in connections.all():
        connection.close()
        if isinstance(connection, PostgresWrapper):
            connection.close_pool()


def _checkpoint() -> None:
    """Brings what lies in the write-ahead logs to its place in the files."""
    for alias in connections:
        with connections[alias].cursor() as cursor:
            if connections[alias].vendor == "postgresql":
                cursor.execute("CHECKPOINT")
            else:
                while cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    sleep(0.01)  # the thread that a merge has started is still at it
                cursor.fetchall()
