"""Everything that can happen to a frontier, in any order, against a model in plain Python."""

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from frontier.claim import Claim, Visit, free_all_leases, renew, wake
from frontier.complete import Clock, Release, finish, settle
from frontier.merge import Merger
from frontier.models import HELD, DomainBlock, Queue
from frontier.seen.index import SeenIndex
from tests.frontier.test_merge_crashes import DEATHS
from tests.frontier.world import LEASE_MS, History, Killed, Waiting, World, die

# 25 take about 8 s; before a change to the frontier is trusted, let it try a thousand.
EXAMPLES = int(os.environ.get("TRAWL_TEST_EXAMPLES", "25"))
CAMPAIGNS = (1, 2)
HOSTS = [f"{name}.{domain}.test" for domain in ("x", "y") for name in ("a", "b")]
DOMAINS = ["x.test", "a.x.test", "y.test"]
QUOTA = 3

urls = st.builds("https://{}/{}".format, st.sampled_from(HOSTS), st.integers(0, 9))
some = st.integers(0, 1_000)  # picks one of what there is


@dataclass
class ModelHost:
    """What the frontier should know of a host."""

    next_at: int = 0
    due_at: int = 0
    lease: int = 0
    gap_ms: int = 0
    active: bool = False
    blocked: bool = False


@dataclass
class Model:
    """The frontier as it is meant: lists and sets."""

    inbox: list[list[Waiting]] = field(default_factory=list)
    known: set[tuple[int, str]] = field(default_factory=set)
    queued: list[Waiting] = field(default_factory=list)  # in order of arrival
    finished: set[tuple[int, str]] = field(default_factory=set)
    hosts: dict[str, ModelHost] = field(default_factory=lambda: defaultdict(ModelHost))
    blocks: set[str] = field(default_factory=set)
    running: set[int] = field(default_factory=lambda: set(CAMPAIGNS))

    def queue(self, name: str, campaign: int) -> list[Waiting]:
        """What may be claimed, in its order."""
        own = [w for w in self.queued if w.campaign == campaign and host_of(w.url) == name and w.level < HELD]
        return sorted(own, key=lambda w: w.level)  # stable: in order of arrival

    def waits(self, name: str) -> bool:
        return any(self.queue(name, campaign) for campaign in CAMPAIGNS)

    def merge(self, rows: int) -> None:
        batch = [link for row in self.inbox[:rows] for link in row]
        for link in batch:
            if (link.campaign, link.url) not in self.known:
                self.known.add((link.campaign, link.url))
                self.queued.append(link)
                name = host_of(link.url)
                if name not in self.hosts:
                    self.hosts[name].blocked = self.covered(name)
                host = self.hosts[name]
                # A parked host comes back with any new URL of a queue in which something waits.
                host.active = host.active or (not host.blocked and bool(self.queue(host_of(link.url), link.campaign)))

    def covered(self, name: str) -> bool:
        return any(name == one or name.endswith("." + one) for one in self.blocks)

    def mark(self, domain: str) -> None:
        for name, host in self.hosts.items():
            if name == domain or name.endswith("." + domain):
                blocked = self.covered(name)
                if blocked != host.blocked:
                    host.blocked = blocked
                    host.active = not blocked and self.waits(name)


def host_of(url: str) -> str:
    return url.split("/")[2]


class Frontier(RuleBasedStateMachine):
    """The rules are what workers, mergers, operators and accidents do."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.world.clear()
        History.pages = []
        self.model = Model()
        self.claims: list[Claim] = []
        self.visits: list[Visit] = []

    # --- links come in -------------------------------------------------------------------------------------

    @rule(
        campaign=st.sampled_from(CAMPAIGNS),
        found=st.lists(urls, min_size=1, max_size=6),
        level=st.sampled_from([0, 4, 14, HELD]),
        depth=st.integers(0, 3),
    )
    def admit(self, campaign: int, found: list[str], level: int, depth: int) -> None:
        self.world.admit(*found, campaign=campaign, level=level, depth=depth)
        self.model.inbox.append([Waiting(campaign, url, level, depth) for url in dict.fromkeys(found)])

    def rows_taken(self, max_links: int) -> int:
        total = 0
        for number, row in enumerate(self.model.inbox, 1):
            total += len(row)
            if total >= max_links:
                return number
        return len(self.model.inbox)

    @rule(max_links=st.sampled_from([1, 5, 1_000]))
    def merge(self, max_links: int) -> None:
        rows, known = self.rows_taken(max_links), len(self.model.known)
        merged = self.world.merge(max_links)
        self.model.merge(rows)
        assert merged.links == sum(map(len, self.model.inbox[:rows]))
        assert merged.new_urls == len(self.model.known) - known
        del self.model.inbox[:rows]

    @precondition(lambda self: self.model.inbox)
    @rule(death=st.sampled_from(sorted(DEATHS)), killed=st.booleans())
    def die_in_a_merge(self, death: str, killed: bool) -> None:
        owner, name, after, call, _ = DEATHS[death]
        store, committed = Merger._store, []

        def noted(*args: Any) -> None:
            store(*args)
            committed.append(True)

        with pytest.MonkeyPatch.context() as patch:
            if killed:
                patch.setattr(SeenIndex, "discard", lambda index, growths: None)
            patch.setattr(Merger, "_store", noted)
            die(patch, owner, name, after=after, call=call)
            with suppress(Killed):  # with nothing new to write it may not come to that
                self.world.merge()
        if killed:
            self.world.restart()
        if committed:
            self.model.merge(len(self.model.inbox))
        if self.world.inbox_rows() == 0:
            assert committed
            self.model.inbox.clear()

    @rule(damage=st.sampled_from(["a run is gone", "another directory"]), where=some)
    def lose_the_index(self, damage: str, where: int) -> None:
        if damage == "another directory":
            self.world.move_to(f"elsewhere{where}")
        else:
            files = sorted(self.world.files())
            if files:
                (self.world.directory / files[where % len(files)]).unlink()
            self.world.restart()

    # --- hosts go out --------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 3), horizon=st.sampled_from([0, 1_000]))
    def claim(self, limit: int, horizon: int) -> None:
        claimed = self.world.claim(limit, horizon)
        ids = {host.pk: name for name, host in self.world.hosts().items()}
        names = {ids[pk] for pk in claimed.hosts}
        now = self.world.now
        may = {
            name: host
            for name, host in self.model.hosts.items()
            if host.active and host.next_at <= (now if host.lease else now + horizon)
        }
        assert names <= may.keys()
        assert len(names) == min(limit, len(may))
        left = [host.next_at for name, host in may.items() if name not in names]
        assert all(may[name].next_at <= min(left, default=may[name].next_at) for name in names)
        for name in names:
            host = may[name]
            if host.lease:
                host.due_at = max(host.due_at, now + host.gap_ms)
            host.lease, host.next_at = claimed.token, now + LEASE_MS
        self.claims.append(claimed)

    @precondition(lambda self: self.claims)
    @rule(which=some, twice=st.booleans())
    def open(self, which: int, twice: bool) -> None:
        claimed = self.claims[which % len(self.claims)]
        if not twice:
            self.claims.remove(claimed)
        ids = {host.pk: name for name, host in self.world.hosts().items()}
        expected: dict[str, dict[int, list[str]]] = {}
        idle = []
        for name in (ids[pk] for pk in claimed.hosts):
            host = self.model.hosts[name]
            if host.lease != claimed.token:
                continue
            queues = {c: self.model.queue(name, c) for c in self.model.running if not host.blocked}
            queues = {c: queue for c, queue in queues.items() if queue}
            if queues:
                share = max(1, QUOTA // len(queues))
                expected[name] = {c: [w.url for w in queue[:share]] for c, queue in queues.items()}
            else:
                idle.append(host)
        visits = self.world.open(claimed, *(self.model.running or {99}), quota=QUOTA)
        got: dict[str, dict[int, list[str]]] = {}
        for visit in visits:
            of_campaign = got.setdefault(visit.name, {})
            assert visit.due_at == self.model.hosts[visit.name].due_at
            for url in visit.urls:
                of_campaign.setdefault(url.campaign, []).append(f"https://{visit.name}{url.ref}")
            host = self.model.hosts[visit.name]
            host.lease, host.next_at = visit.token, self.world.now + LEASE_MS
        assert got == expected
        for host in idle:
            host.lease, host.next_at, host.active = 0, host.due_at, False
        self.visits += visits

    # --- visits end, well or badly -------------------------------------------------------------------------

    @precondition(lambda self: self.visits)
    @rule(
        which=some,
        done=st.integers(0, QUOTA),
        gap=st.sampled_from([0, 500, 90_000]),
        parked=st.booleans(),
        ends=st.booleans(),
    )
    def finish(self, which: int, done: int, gap: int, parked: bool, ends: bool) -> None:
        visit = self.visits[which % len(self.visits)]
        fetched, left = visit.urls[:done], visit.urls[done:]
        due = self.world.now + gap
        with transaction.atomic(using=self.world.using):
            finish([url.row for url in fetched], self.world.using)
            if ends:
                settle([], [Release(visit.host, visit.token, due, gap, 0, "", parked)], self.world.using)
            else:
                settle([Clock(visit.host, visit.token, due, gap)], using=self.world.using)
        for url in fetched:
            key = (url.campaign, f"https://{visit.name}{url.ref}")
            self.model.queued = [w for w in self.model.queued if (w.campaign, w.url) != key]
            if key not in self.model.finished:
                self.model.finished.add(key)
                History.pages.append((url.row >> 32, key[1]))
        host = self.model.hosts[visit.name]
        if host.lease == visit.token:
            host.due_at, host.gap_ms = due, gap
            if ends:
                host.lease, host.next_at = 0, due
                host.active = not host.blocked and not parked and self.model.waits(visit.name)
        self.visits.remove(visit)
        if not ends:
            self.visits.append(visit._replace(urls=left))

    @precondition(lambda self: self.visits)
    @rule(which=some)
    def renew(self, which: int) -> None:
        visit = self.visits[which % len(self.visits)]
        renew([(visit.host, visit.token)], lease_ms=LEASE_MS, using=self.world.using)
        host = self.model.hosts[visit.name]
        if host.lease == visit.token:
            host.next_at = self.world.now + LEASE_MS

    @rule(ms=st.sampled_from([1, 500, 1_000, LEASE_MS]))
    def time_goes_by(self, ms: int) -> None:
        """Also the loss of a worker: whoever holds a visit may never be heard of again, or come back late."""
        self.world.now += ms

    @rule()
    def start_without_workers(self) -> None:
        given_back = free_all_leases(self.world.using)
        assert given_back == sum(host.lease != 0 for host in self.model.hosts.values())
        for host in self.model.hosts.values():
            if host.lease:
                host.due_at = host.next_at = max(host.due_at, self.world.now + host.gap_ms)
                host.lease = 0

    # --- the operator --------------------------------------------------------------------------------------

    @rule(domain=st.sampled_from(DOMAINS))
    def block_or_unblock(self, domain: str) -> None:
        rows = DomainBlock.objects.using(self.world.using)
        if domain in self.model.blocks:
            rows.get(domain=domain).delete()
            self.model.blocks.remove(domain)
        else:
            rows.create(domain=domain)
            self.model.blocks.add(domain)
        self.model.mark(domain)

    @rule(campaign=st.sampled_from(CAMPAIGNS))
    def pause_or_resume(self, campaign: int) -> None:
        if campaign in self.model.running:
            self.model.running.remove(campaign)
            return
        self.model.running.add(campaign)
        wake(campaign, self.world.using)
        for name, host in self.model.hosts.items():
            if self.model.queue(name, campaign) and not host.blocked:
                host.active = True

    # --- what must be true after each of them --------------------------------------------------------------

    @invariant()
    def nothing_is_lost_and_nothing_comes_twice(self) -> None:
        waiting = self.world.waiting()
        assert sorted(waiting) == sorted(self.model.queued)
        assert {(w.campaign, w.url) for w in waiting} | self.model.finished == self.model.known
        assert not {(w.campaign, w.url) for w in waiting} & self.model.finished
        for name in self.model.hosts:
            for campaign in CAMPAIGNS:
                got = [w for w in waiting if (w.campaign, host_of(w.url)) == (campaign, name) and w.level < HELD]
                assert got == self.model.queue(name, campaign)

    @invariant()
    def hosts_are_as_they_should_be(self) -> None:
        found = {
            name: ModelHost(h.next_at, h.due_at, h.lease, h.gap_ms, h.active, h.blocked)
            for name, h in self.world.hosts().items()
        }
        assert found == dict(self.model.hosts)
        self.world.check()

    def teardown(self) -> None:
        """In the end everything that was admitted can be visited."""
        self.world.merge()
        self.model.merge(len(self.model.inbox))
        for domain in list(self.model.blocks):
            self.block_or_unblock(domain)
        for campaign in CAMPAIGNS:
            wake(campaign, self.world.using)
        visited = set(self.model.finished)
        while True:
            self.world.now += 2 * LEASE_MS
            visits = self.world.visit(*CAMPAIGNS)
            if not visits:
                break
            for visit in visits:
                urls = {(url.campaign, f"https://{visit.name}{url.ref}") for url in visit.urls}
                assert not urls & visited
                visited |= urls
                self.world.leave(visit)
        held = {(w.campaign, w.url) for w in self.world.waiting()}
        assert held == {(w.campaign, w.url) for w in self.model.queued if w.level == HELD}
        assert visited | held == self.model.known
        assert Queue.objects.using(self.world.using).filter(pending__gt=0).count() == 0


def test_the_frontier_does_what_its_model_does(frontier: World) -> None:
    machine = type("Machine", (Frontier,), {"world": frontier})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
