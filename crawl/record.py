"""The one writer of a process: everything that workers learn is stored here, in batches.

The order in which a batch is stored makes a kill harmless at any point:

1. requests go to the arrival log, where one is kept;
2. responses go to the WARC file, which is synced; more than is committed in step 4 is cut off later;
3. links go to the inbox, in a commit of its own;
4. one transaction: pages, fetches, counts, queue rows deleted, clocks, hosts given back.

A kill before 4 means that these pages are fetched again and their links offered twice, which the
merge takes for what it is. A kill can never mean that a page counts as done and its links are lost.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from django.db import Error as DatabaseError
from django.db import OperationalError, close_old_connections, connections, transaction

from crawl import rows
from crawl.discover import Discovery
from crawl.fetch.target import Outcome
from crawl.store.archive import Archive
from crawl.store.arrivals import Arrival, ArrivalLogs
from frontier.admission import Link, admit
from frontier.blocks import in_force
from frontier.claim import renew
from frontier.complete import Clock, Release, finish, settle

log = logging.getLogger(__name__)

# A batch is written when it has this many outcomes, when its first one is this old, or, sooner, when
# a host waits to be given back.
BATCH = 300
BATCH_SECONDS = 0.25
RELEASE_SECONDS = 0.05
# Outcomes that may wait before fetching pauses; each holds a page's bytes when WARC is on.
BEHIND = 2_000
RETRY_SECONDS = 1.0
LAST_TRIES = 20  # after so many a process that is to end does not wait for the disk or the database any longer


@dataclass(slots=True)
class Record:
    """One outcome with what was found in its body, the lease it was fetched under, and the new clock."""

    outcome: Outcome
    discovery: Discovery
    links: list[Link]
    clock: Clock | None
    refused: list[Link] = field(default_factory=list)  # to blocked domains


@dataclass(slots=True)
class Ended:
    """A visit that is over; `given_back`: URLs per run that were handed out and not asked for."""

    release: Release
    given_back: dict[int, int]
    committed: Callable[[], None]


@dataclass(slots=True)
class Batch:
    """What is written together. The flags keep a retry after a database error from storing things twice."""

    records: list[Record] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    robots: list[rows.RobotsRow] = field(default_factory=list)
    arrivals: dict[str, list[Arrival]] = field(default_factory=dict)
    """By the folder of their log. What is written is taken out."""
    since: float = 0.0
    archived: dict[int, rows.Stored] = field(default_factory=dict)
    archived_done: bool = False
    admitted_done: bool = False

    def __bool__(self) -> bool:
        return bool(self.records or self.ended or self.robots or self.arrivals)


class Writer(threading.Thread):
    """The thread that writes. Everything handed to it before `close` is stored before `close` returns."""

    def __init__(self, archive: Archive, logs: ArrivalLogs, after_commit: Callable[[int, int], None]) -> None:
        super().__init__(name="writer", daemon=True)
        self._archive = archive
        self._logs = logs
        self._after_commit = after_commit
        self._wake = threading.Condition()
        self._batch = Batch()
        self._jobs: list[Callable[[], None]] = []
        self._closing = False

    # --- called from other threads ----------------------------------------------------------------

    def record(self, record: Record) -> None:
        """Takes an outcome."""
        with self._wake:
            self._begin()
            self._batch.records.append(record)
            if len(self._batch.records) in (1, BATCH):
                self._wake.notify()

    def end(self, ended: Ended) -> None:
        """Takes the end of a visit."""
        with self._wake:
            self._begin()
            self._batch.ended.append(ended)
            self._wake.notify()

    def save_robots(self, row: rows.RobotsRow) -> None:
        """Takes a robots.txt that was fetched."""
        with self._wake:
            self._begin()
            self._batch.robots.append(row)

    def log_arrival(self, log: str, arrival: Arrival) -> None:
        """Takes a line of an arrival log (Plan.arrival_log)."""
        with self._wake:
            if not self._batch:
                self._batch.since = time.monotonic()
                self._wake.notify()
            self._batch.arrivals.setdefault(log, []).append(arrival)

    def ask(self, job: Callable[[], None]) -> None:
        """Runs a function on this thread after all that was handed over so far has been stored."""
        with self._wake:
            self._jobs.append(job)
            self._wake.notify()

    def behind(self) -> bool:
        """Whether so much waits that fetching should pause."""
        return len(self._batch.records) > BEHIND

    def renew(self, leases: list[int], lease_ms: int) -> None:
        """Renews leases (host id, token)."""
        self.ask(lambda: renew(leases, lease_ms=lease_ms))

    def close(self) -> None:
        """Stores what is left and ends the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self.join()

    # --- the thread itself ---------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._batch:
            self._batch.since = time.monotonic()

    def _ripe_in(self) -> float:
        batch = self._batch
        if self._jobs or self._closing or len(batch.records) >= BATCH:
            return 0
        if not batch:
            return 60
        return batch.since + (RELEASE_SECONDS if batch.ended else BATCH_SECONDS) - time.monotonic()

    def run(self) -> None:
        """Writes until `close`."""
        while True:
            with self._wake:
                while (wait := self._ripe_in()) > 0:
                    self._wake.wait(wait)
                batch, self._batch = self._batch, Batch()
                jobs, self._jobs = self._jobs, []
                last = self._closing and not batch and not jobs
            if batch:
                self._store(batch)
            for job in jobs:
                self._job(job)
            if last:
                break
        self._archive.close()
        connections.close_all()

    def _job(self, job: Callable[[], None]) -> None:
        try:
            job()
        except (DatabaseError, OSError) as error:
            log.warning("the database did not answer: %s", error)
            close_old_connections()

    def _store(self, batch: Batch) -> None:
        """Stores a batch, however often the database or the disk must be asked."""
        for tries in count():
            try:
                self._write(batch)
            except (OperationalError, OSError) as error:  # restarted, locked, out of reach, a full disk
                log.warning("%d results could not be stored, trying again: %s", len(batch.records), error)
                if self._closing and tries >= LAST_TRIES:
                    log.error("%d results are given up: their pages are fetched again", len(batch.records))
                    return
                close_old_connections()
                time.sleep(RETRY_SECONDS)
                continue
            except DatabaseError:
                self._one_by_one(batch)
            break
        for ended in batch.ended:
            ended.committed()
        self._after_commit(len(batch.ended), sum(len(record.links) for record in batch.records))

    def _one_by_one(self, batch: Batch) -> None:
        """A row that the database refuses must not take its whole batch with it: it is left to the lease."""
        log.exception("the database refused a batch of %d results; storing them one by one", len(batch.records))
        parts = [Batch(records=[record]) for record in batch.records]
        parts.append(Batch(ended=batch.ended, robots=batch.robots))
        for part in parts:
            try:
                self._write(part)
            except DatabaseError:
                log.exception("left out: %s", [record.outcome.target.url.fetch for record in part.records])

    def _write(self, batch: Batch) -> None:
        self._logs.write(batch.arrivals)
        if not batch.archived_done:
            self._archive.store(batch.records, batch.archived)
            batch.archived_done = True
        if not batch.admitted_done:
            _refuse_blocked(batch.records)
            for campaign, links in _links_by_campaign(batch.records).items():
                admit(campaign, links)
            batch.admitted_done = True
        leaving = {ended.release.host for ended in batch.ended}
        clocks = {record.clock.host: record.clock for record in batch.records if record.clock}
        done: dict[int, list[int]] = {}
        for target in (record.outcome.target for record in batch.records):
            if target.row is not None:
                done.setdefault(target.plan.campaign, []).append(target.row)
        with transaction.atomic(), connections["default"].cursor() as cursor:
            for campaign, taken in done.items():
                finish(campaign, taken)
            settle(
                [clock for host, clock in clocks.items() if host not in leaving],
                [ended.release for ended in batch.ended],
            )
            self._archive.save_positions()
            rows.store(cursor, batch.records, batch.archived)
            rows.store_robots(cursor, batch.robots)
            rows.count(cursor, batch.records, [ended.given_back for ended in batch.ended])
        self._archive.committed()


def _refuse_blocked(records: list[Record]) -> None:
    """Sorts out links to domains that are blocked for good; that they were there is counted.

    A block with an end is a pause: links to its hosts are kept, and wait on them until it ends.
    """
    ends = in_force().ends({link.url.host for record in records for link in record.links})
    blocked = {host for host, end in ends.items() if end == math.inf}
    if blocked:
        for record in records:
            record.refused = [link for link in record.links if link.url.host in blocked]
            record.links = [link for link in record.links if link.url.host not in blocked]


def _links_by_campaign(records: list[Record]) -> dict[int, list[Link]]:
    by_campaign: dict[int, list[Link]] = {}
    for record in records:
        if record.links:
            by_campaign.setdefault(record.outcome.target.plan.campaign, []).extend(record.links)
    return by_campaign
