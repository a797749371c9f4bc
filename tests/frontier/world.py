"""A frontier as the tests see it: short ways in, and what must always be true of its tables."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from django.apps import apps
from django.db import connections, transaction

from frontier import merge as merging
from frontier.admission import Link, admit, recent
from frontier.claim import Claim, Visit, claim, open_visits
from frontier.complete import Release, finish, settle
from frontier.fill import I64
from frontier.merge import Merged
from frontier.models import HELD, FrontierState, Host, Inbox, Queue, QueuedUrl
from frontier.router import inbox_alias
from frontier.seen.runs import U64
from frontier.state import hash_seed, seen_directory
from frontier.urls import NO_RULES, Rules, canonicalise, from_reference, url_hash

NOW = 1_800_000_000_000
LEASE_MS = 60_000
GAP_MS = 1_000


class Waiting(NamedTuple):
    """A URL in a back queue."""

    campaign: int
    url: str
    level: int
    depth: int


class History:
    """The pages that were visited, as the frontier asks for them when it rebuilds its index."""

    pages: list[tuple[int, str]] = []  # (queue id, canonical URL)

    def rules(self, campaign: int) -> Rules:
        return NO_RULES

    def finished(self, using: str) -> Iterator[tuple[I64, U64, U64]]:
        seed = hash_seed(using)
        for start in range(0, len(self.pages), 3):  # several chunks, as in life
            part = self.pages[start : start + 3]
            hashes = np.frombuffer(b"".join(url_hash(url, seed) for _, url in part), [("high", ">u4"), ("low", ">u8")])
            queues = np.array([queue for queue, _ in part], np.int64)
            yield queues, hashes["high"].astype(np.uint64), hashes["low"].astype(np.uint64)


class World:
    """One database with its seen directory and a clock that is moved by hand."""

    def __init__(self, using: str, settings: Any, directory: Path) -> None:
        self.using = using
        self.now = NOW
        self._settings = settings
        self._directory = directory
        self._numbers = count(1)

    # --- beginning and ending --------------------------------------------------------------------------

    def clear(self) -> None:
        """Empties the tables and takes a new data directory."""
        for model in apps.get_app_config("frontier").get_models():
            alias = inbox_alias(self.using) if model is Inbox else self.using
            with connections[alias].cursor() as cursor:
                cursor.execute(f"DELETE FROM {model._meta.db_table}")
        # Not a random one, so that what Hypothesis found once it finds again.
        FrontierState.objects.using(self.using).create(name="hash_seed", value=1)
        self.now = NOW
        self.move_to(f"data{next(self._numbers)}")

    def move_to(self, name: str) -> None:
        """Goes on in another data directory, in a new process."""
        self._settings.DATA_DIR = self._directory / name
        self.restart()

    def restart(self) -> None:
        """What a new process starts with: nothing in memory."""
        hash_seed.cache_clear()
        recent.cache_clear()
        merging.merger.cache_clear()

    def close(self) -> None:
        self.restart()
        History.pages = []

    @property
    def directory(self) -> Path:
        return seen_directory(self.using)

    # --- the steps of a URL ------------------------------------------------------------------------------

    def admit(self, *urls: str, campaign: int = 1, level: int = 4, depth: int = 1, afresh: bool = True) -> int:
        """Admits; afresh: as a process that has not seen the URLs before, so that the merge gets them all."""
        if afresh:
            recent.cache_clear()
        return admit(campaign, [Link(canonicalise(url), level, depth) for url in urls], self.using)

    def merge(self, max_links: int = merging.MAX_LINKS) -> Merged:
        return merging.merge(self.using, max_links)

    def add(self, *urls: str, campaign: int = 1, level: int = 4, depth: int = 1) -> Merged:
        """Admits and merges."""
        self.admit(*urls, campaign=campaign, level=level, depth=depth)
        return self.merge()

    def claim(self, limit: int = 100, horizon_ms: int = 0) -> Claim:
        return claim(limit, lease_ms=LEASE_MS, horizon_ms=horizon_ms, using=self.using)

    def open(self, claimed: Claim, *campaigns: int, quota: int = 10) -> list[Visit]:
        return open_visits(claimed, campaigns or (1,), lambda gap, delay: quota, lease_ms=LEASE_MS, using=self.using)

    def visit(self, *campaigns: int, limit: int = 100, quota: int = 10) -> list[Visit]:
        """Claims and opens."""
        return self.open(self.claim(limit), *campaigns, quota=quota)

    def leave(self, visit: Visit, due_at: int = 0, rows: list[int] | None = None, **changes: Any) -> None:
        """Finishes rows of a visit (all of them if not told otherwise) and gives its host back."""
        done = [url.row for url in visit.urls] if rows is None else rows
        given = Release(visit.host, visit.token, due_at or self.now + GAP_MS, GAP_MS, 0, "")._replace(**changes)
        with transaction.atomic(using=self.using):
            finish(done, self.using)
            settle([], [given], self.using)

    # --- looking -----------------------------------------------------------------------------------------

    def waiting(self) -> list[Waiting]:
        """All queued URLs in the order of their keys."""
        queues = {
            pk: (campaign, name)
            for pk, campaign, name in Queue.objects.using(self.using).values_list("id", "campaign", "host__name")
        }
        found = []
        for url in QueuedUrl.objects.using(self.using).order_by("id"):
            campaign, name = queues[url.queue_id]
            found.append(Waiting(campaign, from_reference(url.ref, name), url.priority, url.depth))
        return found

    def urls(self) -> list[str]:
        """All queued URLs, sorted."""
        return sorted(waiting.url for waiting in self.waiting())

    def host(self, name: str) -> Host:
        return Host.objects.using(self.using).get(name=name)

    def hosts(self) -> dict[str, Host]:
        return {host.name: host for host in Host.objects.using(self.using)}

    def set_host(self, name: str, **values: Any) -> None:
        Host.objects.using(self.using).filter(name=name).update(**values)

    def inbox_rows(self) -> int:
        return Inbox.objects.using(inbox_alias(self.using)).count()

    def files(self) -> set[str]:
        """What lies in the seen directory apart from its name and its lock."""
        return {path.name for path in self.directory.glob("*")} - {"store", "merge.lock"}

    # --- what must always be true ------------------------------------------------------------------------

    def check(self) -> None:
        """The counters are the true row counts, no URL stands twice, and clocks and marks agree."""
        rows = list(QueuedUrl.objects.using(self.using))
        pending = Counter(row.queue_id for row in rows if row.priority != HELD)
        held = Counter(row.queue_id for row in rows if row.priority == HELD)
        queues = list(Queue.objects.using(self.using))
        assert {queue.pk: queue.pending for queue in queues} == {queue.pk: pending[queue.pk] for queue in queues}
        assert {queue.pk: queue.held for queue in queues} == {queue.pk: held[queue.pk] for queue in queues}
        assert {row.queue_id for row in rows} <= {queue.pk for queue in queues}
        twice = [key for key, n in Counter((row.queue_id, row.ref) for row in rows).items() if n > 1]
        assert not twice
        hosts = self.hosts().values()
        assert {queue.host_id for queue in queues} <= {host.pk for host in hosts}
        for host in hosts:
            assert not (host.active and host.blocked)
            assert host.lease or host.next_at == host.due_at

    def check_nothing_is_stranded(self, *campaigns: int) -> None:
        """Every host with a URL to visit can be claimed, now or later."""
        queues = Queue.objects.using(self.using).filter(campaign__in=campaigns or (1,), pending__gt=0)
        assert set(queues.values_list("host__active", flat=True)) <= {True}


class InThread(threading.Thread):
    """Runs a function in a thread; `result` gives its value or raises what it raised."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__(daemon=True)
        self._function, self._arguments = function, arguments
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._function(*self._arguments)
        except BaseException as error:  # noqa: BLE001 - raised again in `result`
            self._error = error
        finally:
            connections.close_all()

    def result(self, seconds: float = 30) -> Any:
        self.join(seconds)
        assert not self.is_alive(), "the thread does not end"
        if self._error:
            raise self._error
        return self._value


class Killed(BaseException):
    """Stands for the death of the process: nothing catches it."""


def die(patch: Any, owner: Any, name: str, *, after: bool = False, call: int = 1) -> None:
    """Makes the `call`-th call of owner.name raise Killed, before it does anything or after it has done all."""
    original, calls = getattr(owner, name), count(1)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) != call:
            return original(*args, **kwargs)
        if after:
            original(*args, **kwargs)
        raise Killed

    patch.setattr(owner, name, wrapped)


def interleave(using: str, first: Callable[[], Any], step: int, second: Callable[[], Any]) -> bool:
    """Stops `first` before its `step`-th statement or commit, runs `second` until it ends or waits for a
    lock, and lets both end. False when `first` has fewer steps: then `second` ran after it."""
    reached, go, steps = threading.Event(), threading.Event(), count(1)

    def stop() -> None:
        if next(steps) == step:
            reached.set()
            assert go.wait(20)

    def before_statement(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        stop()
        return execute(sql, params, many, context)

    def stepwise() -> None:
        connection: Any = connections[using]
        connection.ensure_connection()
        commit = connection._commit

        def before_commit() -> None:
            stop()
            commit()

        connection._commit = before_commit
        with connection.execute_wrapper(before_statement):
            first()

    one = InThread(stepwise)
    while one.is_alive() and not reached.wait(0.002):
        pass
    two = InThread(second)
    two.join(0.02)
    go.set()
    one.result()
    two.result()
    return reached.is_set()
