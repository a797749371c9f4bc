"""A frontier as the tests see it: short ways in, and what must always be true of its tables."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from django.apps import apps
from django.db import connections, transaction

from frontier import merge as merging
from frontier.admission import Link, admit, recent
from frontier.claim import Claim, QueuedVisit, Visit, claim, open_visits
from frontier.complete import Release, finish, settle
from frontier.counts import queued, waiting
from frontier.lines import I64
from frontier.merge import Merged
from frontier.models import DueHost, FrontierState, Host, Inbox, Lease, LeasedHost, Queue, QueuedUrl
from frontier.priority import HELD
from frontier.router import inbox_alias
from frontier.schedule import HOST_BITS, MOST_PUT_OFF_MS
from frontier.seen import prechecks
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


@dataclass(frozen=True)
class HostState:
    """All that the tables say of a host. `next_at`: the end of its lease, or its clock when nobody holds it.

    `key` is its place among the hosts that are due, 0 when it is not one of them; `lease` the token of who
    holds it, or 0.
    """

    pk: int
    name: str
    next_at: int
    due_at: int
    lease: int
    key: int
    gap_ms: int
    delay_ms: int | None
    active: bool
    blocked: bool
    failures: int
    reason: str


def due_key(host: int, due_at: int, level: int) -> int:
    """The place of a host among those that are due: by the second, one second later for each level."""
    return (due_at // 1000 + level) << HOST_BITS | host


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
        prechecks.written.cache_clear()

    def close(self) -> None:
        self.restart()
        History.pages = []

    @property
    def directory(self) -> Path:
        return seen_directory(self.using)

    # --- the steps of a URL ------------------------------------------------------------------------------

    def admit(self, *urls: str, campaign: int = 1, level: int = 6, depth: int = 1, afresh: bool = True) -> int:
        """Admits; afresh: as a process that has not seen the URLs before, so that the merge gets them all."""
        if afresh:
            recent.cache_clear()
        return admit(campaign, [Link(canonicalise(url), level, depth) for url in urls], self.using)

    def merge(self, max_links: int | None = None) -> Merged:
        return merging.merge(self.using, max_links)

    def add(self, *urls: str, campaign: int = 1, level: int = 6, depth: int = 1) -> Merged:
        """Admits and merges."""
        self.admit(*urls, campaign=campaign, level=level, depth=depth)
        return self.merge()

    def claim(self, limit: int = 100, horizon_ms: int = 0) -> Claim:
        claims = claim(limit, lease_ms=LEASE_MS, horizon_ms=horizon_ms, using=self.using)
        return claims[0] if claims else Claim(0, [])

    def names(self, claimed: Claim) -> list[str]:
        """The names of claimed hosts, sorted."""
        return sorted(Host.objects.using(self.using).filter(id__in=claimed.hosts).values_list("name", flat=True))

    def open(self, claimed: Claim, *campaigns: int, quota: int = 10) -> list[Visit]:
        return open_visits(claimed, campaigns or (1,), lambda gap, delay: quota, lease_ms=LEASE_MS, using=self.using)

    def visit(self, *campaigns: int, limit: int = 100, quota: int = 10) -> list[Visit]:
        """Claims and opens."""
        return self.open(self.claim(limit), *campaigns, quota=quota)

    def leave(self, visit: Visit, due_at: int = 0, rows: list[int] | None = None, **changes: Any) -> None:
        """Finishes rows of a visit (all of them if not told otherwise) and gives its host back."""
        done = [url for url in visit.urls if rows is None or url.row in rows]
        given = Release(visit.host, visit.token, due_at or self.now + GAP_MS, GAP_MS, 0, "")._replace(**changes)
        with transaction.atomic(using=self.using):
            self.finish(done)
            settle([], [given], self.using)

    def finish(self, urls: Iterable[QueuedVisit]) -> None:
        """Finishes URLs of any campaigns in the caller's transaction."""
        by_campaign: dict[int, list[int]] = {}
        for url in urls:
            by_campaign.setdefault(url.campaign, []).append(url.row)
        for campaign, rows in by_campaign.items():
            finish(campaign, rows, self.using)

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

    def host(self, name: str) -> HostState:
        return self.hosts()[name]

    def hosts(self) -> dict[str, HostState]:
        """All hosts by name, in the order of their ids."""
        due = {row.host_id: row for row in DueHost.objects.using(self.using)}
        leased = {row.host_id: row for row in LeasedHost.objects.using(self.using)}
        ends = dict(Lease.objects.using(self.using).values_list("id", "ends_at"))
        found = {}
        for host in Host.objects.using(self.using).order_by("id"):
            place = due.get(host.pk)
            held = leased.get(host.pk)
            row = held or place or host
            lease = held.pk >> HOST_BITS if held else 0
            found[host.name] = HostState(
                host.pk,
                host.name,
                ends[lease] if lease else row.due_at,
                row.due_at,
                lease,
                place.pk if place else 0,
                row.gap_ms,
                host.delay_ms,
                host.active,
                host.blocked,
                host.failures,
                host.reason,
            )
        return found

    def set_host(self, name: str, **values: Any) -> None:
        """Sets what a host has, each in its row; `active=False` takes it out of the schedule."""
        host = self.host(name)
        clock = {field: values.pop(field, getattr(host, field)) for field in ("due_at", "gap_ms")}
        values.setdefault("active", host.active)
        place, held = DueHost.objects.using(self.using), LeasedHost.objects.using(self.using)
        if host.lease and values["active"]:
            held.filter(id=host.lease << HOST_BITS | host.pk).update(**clock)
        else:
            held.filter(id=host.lease << HOST_BITS | host.pk).delete()
            place.filter(id=host.key).delete()
            if values["active"]:
                level = (host.key >> HOST_BITS) - host.due_at // 1000 if host.key else 0
                place.create(id=due_key(host.pk, clock["due_at"], level), **clock)
            else:
                values |= clock
        Host.objects.using(self.using).filter(name=name).update(**values)

    def queues(self) -> dict[int, str]:
        """The host name of each back queue."""
        return dict(Queue.objects.using(self.using).values_list("id", "host__name"))

    def inbox_rows(self) -> int:
        return Inbox.objects.using(inbox_alias(self.using)).count()

    def files(self) -> set[str]:
        """What lies in the seen directory apart from its name and its lock."""
        return {path.name for path in self.directory.glob("*")} - {"store", "merge.lock"}

    # --- what must always be true ------------------------------------------------------------------------

    def check(self) -> None:
        """The counters are the true row counts, no URL stands twice, and every host is where it should be."""
        rows = list(QueuedUrl.objects.using(self.using))
        queues = list(Queue.objects.using(self.using))
        campaign_of = {queue.pk: queue.campaign for queue in queues}
        free = Counter(campaign_of[row.queue_id] for row in rows if row.priority != HELD)
        held = Counter(campaign_of[row.queue_id] for row in rows if row.priority == HELD)
        for campaign, met in Counter(campaign_of.values()).items():
            assert waiting(campaign, self.using) == (free[campaign], held[campaign], met)
        assert queued(self.using) == len(rows)
        assert {row.queue_id for row in rows} <= {queue.pk for queue in queues}
        twice = [key for key, n in Counter((row.queue_id, row.ref) for row in rows).items() if n > 1]
        assert not twice
        hosts = self.hosts().values()
        assert {queue.host_id for queue in queues} <= {host.pk for host in hosts}
        self._check_schedule()

    def _check_schedule(self) -> None:
        """An active host stands in the schedule once, an idle one nowhere; keys and leases are what they should be."""
        due = list(DueHost.objects.using(self.using))
        leased = list(LeasedHost.objects.using(self.using))
        active = Host.objects.using(self.using).filter(active=True).order_by("id").values_list("id", flat=True)
        assert sorted([row.host_id for row in due] + [row.host_id for row in leased]) == list(active)
        leases = set(Lease.objects.using(self.using).values_list("id", flat=True))
        assert {row.pk >> HOST_BITS for row in leased} <= leases
        for row in due:
            second = row.pk >> HOST_BITS
            assert row.due_at // 1000 <= second <= (max(row.due_at, self.now) + MOST_PUT_OFF_MS) // 1000

    def check_nothing_is_stranded(self, *campaigns: int) -> None:
        """Every host with a URL to visit can be claimed, now or later."""
        busy = {row.queue_id for row in QueuedUrl.objects.using(self.using) if row.priority != HELD}
        queues = Queue.objects.using(self.using).filter(campaign__in=campaigns or (1,), id__in=busy)
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
