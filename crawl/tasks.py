"""The Celery tasks: each loads, calls, and sends the next ones. What they do is elsewhere.

Beat ticks `dispatch`, `merge` and `sweep`; a worker that has given hosts back or found links sends
the next one at once, so the ticks are only the safety net.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec

from celery import shared_task
from celery.signals import worker_ready, worker_shutdown, worker_shutting_down
from django.conf import settings
from django.db import OperationalError, close_old_connections
from django.db.models import Sum

from crawl import campaigns, samples
from crawl.disk import shortage
from crawl.engine_options import engine_options
from crawl.fetch.engine import WORKER_ALIVE_MS, Engine, close_engine, engine, running_engine
from crawl.models import Worker
from crawl.plan import Plans
from crawl.targets import build_visits
from frontier import claim as claims
from frontier import merge as merging
from frontier.blocking import sweep_marks
from frontier.politeness import now_ms
from frontier.shards import queue_of
from trawl_project.celery import VISIT_TASK_SECONDS, VISIT_THREADS, fetch_queues

# Hosts in one message. A Celery task costs about 1 ms of CPU whatever it does.
HOSTS_PER_MESSAGE = 32
# Hosts are claimed this long before they are due; the fetch loop waits for the exact moment.
HORIZON_MS = 1000
# URLs that the visits under way of a process have in hand, about 1 kB each, are shared out among them. A visit takes
# along 200 at most, which last a fast host without a delay for the time that its next claim needs; with a delay of a
# second it has the time for 30.
URLS_IN_HAND = 64_000
MOST_URLS, LEAST_URLS = 200, 10
# Triggers closer than this to the last one are left to that one.
# At 0.03 claims took a fifth of the tasks' time in a crawl without delays; hosts are claimed a second ahead anyway.
DISPATCH_SPACING_SECONDS = 0.1
MERGE_SPACING_SECONDS = 0.1
SWEEP_SPACING_SECONDS = 0.5
# A merge costs at least a few fsyncs and 10 ms of CPU, so merges take up at most a quarter of the time; short ones,
# which bring little, less than that.
MERGE_REST = 3
SHORT_MERGE_REST = 10
MOST_SHORT_REST_SECONDS = 1.0

P = ParamSpec("P")

log = logging.getLogger(__name__)
plans = Plans()
LEASE_MS = settings.LEASE_SECONDS * 1000
# Visit tasks that wait for their visits at the same time.
waiting = threading.BoundedSemaphore(VISIT_THREADS)


def make_engine(
    overrides: tuple[tuple[str, str], ...] = (), allow_networks: tuple[str, ...] = (), proxies: tuple[str, ...] = ()
) -> Engine:
    """An engine by the settings, with what a command adds to them."""
    return Engine(engine_options(settings.DATA_DIR, overrides, allow_networks, proxies), after_commit)


class Trigger:
    """Sends a task, but not again before some time has passed; a late one is sent when it has."""

    def __init__(self, task: Any, spacing_seconds: float) -> None:
        self._task, self.spacing = task, spacing_seconds
        self._lock = threading.Lock()
        self._next = 0.0
        self._timer: threading.Timer | None = None

    def __call__(self) -> None:
        with self._lock:
            if self._timer is not None:
                return
            wait = self._next - time.monotonic()
            if wait <= 0:
                self._send()
            else:
                self._timer = threading.Timer(wait, self._late)
                self._timer.daemon = True
                self._timer.start()

    def _late(self) -> None:
        with self._lock:
            self._timer = None
            self._send()

    def _send(self) -> None:
        self._next = time.monotonic() + self.spacing
        self._task.apply_async(expires=5)


def after_commit(hosts: int, links: int) -> None:
    """Called by the writer when a batch is stored."""
    if links:
        trigger_merge()
    if hosts:
        trigger_dispatch()


def patient(task: Callable[P, None]) -> Callable[P, None]:
    """A task that lets the next one try again when the disk or the database refuses for now."""

    @wraps(task)
    def tried(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            task(*args, **kwargs)
        except (OSError, OperationalError) as error:
            log.warning("%s is tried again: %s", task.__name__, error)
            close_old_connections()

    return tried


@shared_task
@patient
def dispatch() -> None:
    """Claims hosts that are due, as many as the workers have room for, and sends their visits."""
    if not plans.running() or shortage():
        return
    room = capacity() - claims.leased()
    if room <= 0:
        return
    names = fetch_queues()
    for one in claims.claim(room, lease_ms=LEASE_MS, horizon_ms=HORIZON_MS, groups=messages):
        visit.apply_async((one.token, one.hosts), queue=names[queue_of(one.hosts[0], len(names))])


def messages(hosts: list[int]) -> Iterator[list[int]]:
    """Hosts as they go into messages: those of one fetch queue each, HOSTS_PER_MESSAGE at most."""
    number = len(fetch_queues())
    by_queue: dict[int, list[int]] = {}
    for host in hosts:
        by_queue.setdefault(queue_of(host, number), []).append(host)
    for group in by_queue.values():
        for start in range(0, len(group), HOSTS_PER_MESSAGE):
            yield group[start : start + HOSTS_PER_MESSAGE]


@shared_task
@patient
def visit(token: int, hosts: list[int]) -> None:
    """Visits hosts that were claimed under a token; returns when they are done, or soon after.

    A task that would take the threads that are left for others does not wait.
    """
    running = plans.running()
    run_by = engine(make_engine)
    share = max(LEAST_URLS, min(MOST_URLS, URLS_IN_HAND // (run_by.visiting + len(hosts))))
    opened = claims.open_visits(
        claims.Claim(token, hosts),
        list(running),
        lambda gap_ms, delay_ms: min(share, quota(gap_ms, delay_ms)),
        lease_ms=LEASE_MS,
    )
    visits = build_visits(opened, running, run_by)
    left = threading.Semaphore(0)
    run_by.visit((one, left.release) for one in visits)
    if not waiting.acquire(blocking=False):
        return
    try:
        until = time.monotonic() + VISIT_TASK_SECONDS
        for _ in visits:
            if not left.acquire(timeout=max(0.0, until - time.monotonic())):
                break
    finally:
        waiting.release()


def quota(gap_ms: int, delay_ms: int | None) -> int:
    """How many URLs a visit has the time for."""
    running = plans.running().values()
    shortest = min((plan.delay_ms for plan in running), default=0)
    burst = max((plan.burst for plan in running), default=1) if delay_ms is None else 1
    gap = max(gap_ms, shortest if delay_ms is None else delay_ms, 1)
    return max(1, 30_000 // gap + burst - 1)


@shared_task
@patient
def merge() -> None:
    """Merges the inbox when it is worth while, goes on at once while there is more; sees whether a campaign is
    finished."""
    if not merging.ripe():
        return
    began = time.monotonic()
    done = merging.merge()
    if done.busy:
        return
    took = time.monotonic() - began
    short = min(SHORT_MERGE_REST * took, MOST_SHORT_REST_SECONDS)
    trigger_merge.spacing = max(MERGE_SPACING_SECONDS, MERGE_REST * took, short)
    if done.new_urls:
        trigger_dispatch()
    if done.links:
        trigger_merge()
    else:
        campaigns.finish_idle()


@shared_task
@patient
def sweep() -> None:
    """Puts pages that are due again back into their queues, and hosts whose parking is over into the schedule; ends
    the marks of domain blocks that have expired."""
    campaigns.clock_runs()
    samples.take()
    fed = campaigns.feed_due()
    if (plans.running() and claims.unpark()) or fed:
        trigger_dispatch()
    if fed == campaigns.FEED:
        trigger_sweep()
    sweep_marks(trigger=trigger_dispatch)


def capacity() -> int:
    """Hosts that all live workers together can visit at once."""
    alive = Worker.objects.filter(seen_at__gt=now_ms() - WORKER_ALIVE_MS)
    return alive.aggregate(total=Sum("capacity"))["total"] or 0


trigger_dispatch = Trigger(dispatch, DISPATCH_SPACING_SECONDS)
trigger_merge = Trigger(merge, MERGE_SPACING_SECONDS)
trigger_sweep = Trigger(sweep, SWEEP_SPACING_SECONDS)


@worker_ready.connect
def _start_engine(**kwargs: Any) -> None:
    """A worker says that it has room as soon as it runs; nothing is dispatched before."""
    if lost := campaigns.lost_inbox():
        log.error("%s was deleted or replaced: the links that waited in it are missing; run campaigns again", lost)
        campaigns.go_on_without_inbox()
    engine(make_engine)


@worker_shutting_down.connect
def _stop_visits(**kwargs: Any) -> None:
    running = running_engine()
    if running:
        running.stop()


@worker_shutdown.connect
def _close(**kwargs: Any) -> None:
    close_engine()
