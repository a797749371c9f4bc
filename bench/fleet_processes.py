"""The processes of bench/fleet.py: workers that admit, and the one that merges, watches the inbox and counts."""

import multiprocessing
import statistics
import threading
import time
from collections.abc import Sequence
from itertools import islice
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

from bench.design import CAMPAIGN
from bench.measure import BATCH_PAGES, set_up_django
from bench.storage import peak_rss_mb
from bench.stream import Totals, fingerprint, parsed
from frontier.urls import canonicalise, from_reference

SAMPLE_SECONDS = 0.25
IDLE_SECONDS = 0.02  # until the merger looks at an empty inbox again
START_SECONDS = 120  # for all processes to be ready
QUEUES_PER_READ = 20_000  # when all URLs are read back


class Together(NamedTuple):
    """What the processes share: where the frontier is, two moments to wait for each other, and what they tell."""

    data: Path
    database: str | None
    prepared: Barrier
    start: Barrier
    working: "Synchronized[int]"
    told: "Queue[dict[str, Any]]"


def run_fleet(files: Sequence[Path], data: Path, database: str | None, totals: Totals) -> dict[str, Any]:
    """One round: a worker per file, and the merger. Raises RuntimeError when one of them fails."""
    context = multiprocessing.get_context("spawn")
    parties = len(files) + 1
    told: Queue[dict[str, Any]] = context.Queue()
    working = context.Value("i", len(files))
    shared = Together(data, database, context.Barrier(parties), context.Barrier(parties), working, told)
    processes: list[BaseProcess] = [context.Process(target=work, args=(file, shared)) for file in files]
    processes.append(context.Process(target=merge_all, args=(shared, totals)))
    for process in processes:
        process.start()
    _watch(processes)
    reports = [told.get(timeout=10) for _ in processes]
    workers = [report for report in reports if "offered" in report]
    measured = next(report for report in reports if "offered" not in report)
    return measured | {
        "offered_per_s": totals.offered / measured["wall_s"],
        "new_per_s": totals.distinct / measured["wall_s"],
        "workers_s": max(worker["ended_at"] for worker in workers) - measured["started_at"],
        "worker_cpu_us_per_link": statistics.mean(worker["cpu_s"] / worker["offered"] for worker in workers) * 1e6,
        "worker_rss_mb": max(worker["rss_mb"] for worker in workers),
    }


def _watch(processes: Sequence[BaseProcess]) -> None:
    running = {process.sentinel: process for process in processes}
    try:
        while running:
            ready = wait(list(running))
            for sentinel, ended in [(key, process) for key, process in running.items() if key in ready]:
                del running[sentinel]
                ended.join()
                if ended.exitcode:
                    raise RuntimeError(f"a process of the fleet ended with {ended.exitcode}")
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()  # before their files are deleted


def work(file: Path, shared: Together) -> None:
    """A worker: reads pages, canonicalises their links, admits them."""
    shared.prepared.wait(START_SECONDS)
    set_up_django(shared.data, shared.database)
    from bench.trawl_frontier import close_connections
    from frontier.admission import Link, admit

    with file.open(encoding="ascii") as pages:
        shared.start.wait(START_SECONDS)
        offered, cpu = 0, time.process_time()
        while batch := list(islice(pages, BATCH_PAGES)):
            links = [Link(canonicalise(url), level, level) for page in batch for level, url in parsed(page)]
            admit(CAMPAIGN, links)
            offered += len(links)
        cpu = time.process_time() - cpu
    with shared.working.get_lock():
        shared.working.value -= 1
    shared.told.put({"offered": offered, "cpu_s": cpu, "ended_at": time.monotonic(), "rss_mb": peak_rss_mb()})
    close_connections()


def merge_all(shared: Together, totals: Totals) -> None:
    """The merger: makes the tables, merges until the workers are done and nothing is left, counts."""
    set_up_django(shared.data, shared.database)
    from bench.trawl_frontier import TrawlFrontier
    from frontier.merge import merge

    frontier = TrawlFrontier()
    shared.prepared.wait(START_SECONDS)
    shared.start.wait(START_SECONDS)
    started, cpu, merges = time.monotonic(), time.process_time(), 0
    ended = started
    with InboxAges() as ages:
        while True:
            last = not shared.working.value
            if merge().links:
                merges += 1
                ended = time.monotonic()
            elif last:
                break
            else:
                time.sleep(IDLE_SECONDS)
    cpu = time.process_time() - cpu
    rss = peak_rss_mb()
    whole = frontier.held() == (totals.distinct, totals.hosts) and digest() == totals.digest
    shared.told.put(
        {
            "started_at": started,
            "wall_s": ended - started,
            "merges": merges,
            "merger_cpu_us_per_link": cpu / totals.offered * 1e6,
            "merger_rss_mb": rss,
            "inbox_age_median_s": statistics.median(ages.seconds),
            "inbox_age_max_s": max(ages.seconds),
            "exact": whole,
        }
    )
    frontier.close()


class InboxAges:
    """Samples how long the oldest link in the inbox has been waiting, from a thread of its own."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "InboxAges":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        from django.db import connections

        from frontier.models import Inbox

        try:
            while True:
                oldest = Inbox.objects.order_by("id").values_list("received_at", flat=True).first()
                self.seconds.append(max(0.0, time.time() - oldest / 1000) if oldest else 0.0)
                if self._over.wait(SAMPLE_SECONDS):
                    break
        finally:
            connections.close_all()


def digest() -> int:
    """The sum of the fingerprints of all URLs that wait, modulo 2^64: read back one by one, as a claim reads them."""
    from django.db import connection
    from django.db.models import Max

    from frontier.models import Queue as BackQueue

    highest = BackQueue.objects.aggregate(highest=Max("id"))["highest"] or 0
    total = 0
    with connection.cursor() as cursor:
        for first in range(0, highest + 1, QUEUES_PER_READ):
            cursor.execute(
                "SELECT u.ref, h.name FROM frontier_queuedurl u JOIN frontier_queue q ON q.id = u.id >> 32"
                " JOIN frontier_host h ON h.id = q.host_id WHERE u.id >= %s AND u.id < %s",
                [first << 32, (first + QUEUES_PER_READ) << 32],
            )
            total += sum(fingerprint(from_reference(ref, name)) for ref, name in cursor.fetchall())
    return total % (1 << 64)
