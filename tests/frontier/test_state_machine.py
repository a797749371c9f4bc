"""Everything that can happen to a frontier, in any order, against a model in plain Python."""

import os
from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from frontier.claim import Claim, Visit, free_all_leases, renew, wake
from frontier.complete import Clock, Release, settle
from frontier.merge import Merger
from frontier.models import DomainBlock, Lease, QueuedUrl
from frontier.priority import HELD, POPULAR
from frontier.schedule import HOST_BITS
from frontier.seen.index import SeenIndex
from tests.frontier.model import CAMPAIGNS, Model, ModelHost, ModelLease, host_of
from tests.frontier.test_merge_crashes import DEATHS
from tests.frontier.world import LEASE_MS, History, Killed, Waiting, World, die

# 25 take about 8 s; before a change to the frontier is trusted, let it try a thousand.
EXAMPLES = int(os.environ.get("TRAWL_TEST_EXAMPLES", "25"))
HOSTS = [f"{name}.{domain}.test" for domain in ("x", "y") for name in ("a", "b")]
DOMAINS = ["x.test", "a.x.test", "y.test"]
QUOTA = 3

urls = st.builds("https://{}/{}".format, st.sampled_from(HOSTS), st.integers(0, 9))
some = st.integers(0, 1_000)  # picks one of what there is


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
        # What a sitemap or a seed names is written down every time.
        written = found if level < POPULAR else dict.fromkeys(found)
        self.model.inbox.append([Waiting(campaign, url, level, depth) for url in written])

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
        self.merged(rows)
        assert merged.links == sum(map(len, self.model.inbox[:rows]))
        assert merged.new_urls == len(self.model.known) - known
        del self.model.inbox[:rows]

    def merged(self, rows: int) -> None:
        """After the commit of a merge."""
        self.model.offer(rows)
        self.model.merge(rows, self.world.now)
        self.model.moved(self.world.waiting())

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
            self.merged(len(self.model.inbox))
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
        now = self.world.now
        pk = {name: host.pk for name, host in self.world.hosts().items()}
        claimed = self.world.claim(limit, horizon)
        self.model.take_back([token for token, lease in self.model.leases.items() if lease.ends_at <= now], now)
        due = [
            ((host.second, pk[name]), host)
            for name, host in self.model.hosts.items()
            if host.active and not host.lease and host.due_at <= now + horizon
        ]
        due.sort(key=lambda one: one[0])
        assert claimed.hosts == sorted(key for (_, key), _ in due[:limit])
        if claimed.hosts:
            self.model.leases[claimed.token] = ModelLease(now + LEASE_MS)
        for _, host in due[:limit]:
            host.lease, host.second = claimed.token, 0
        self.claims.append(claimed)

    @precondition(lambda self: self.claims)
    @rule(which=some, twice=st.booleans())
    def open(self, which: int, twice: bool) -> None:
        claimed = self.claims[which % len(self.claims)]
        if not twice:
            self.claims.remove(claimed)
        now = self.world.now
        expected: dict[str, dict[int, list[str]]] = {}
        idle = []
        lease = self.model.leases.get(claimed.token)
        if lease and not lease.opened and lease.ends_at > now:
            lease.opened, lease.ends_at = True, now + LEASE_MS
            for name, host in self.model.hosts.items():
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
            assert visit.token == claimed.token
            assert visit.due_at == self.model.hosts[visit.name].due_at
            for url in visit.urls:
                of_campaign.setdefault(url.campaign, []).append(f"https://{visit.name}{url.ref}")
        assert got == expected
        for host in idle:
            host.idle()
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
        # What a late worker fetched may have got a better place, and another row, after its lease was lost.
        rows = QueuedUrl.objects.using(self.world.using).filter(id__in=[url.row for url in fetched])
        there = set(rows.values_list("id", flat=True))
        with transaction.atomic(using=self.world.using):
            self.world.finish(fetched)
            if ends:
                settle([], [Release(visit.host, visit.token, due, gap, 0, "", parked)], self.world.using)
            else:
                settle([Clock(visit.host, visit.token, due, gap)], using=self.world.using)
        for url in fetched:
            key = (url.campaign, f"https://{visit.name}{url.ref}")
            if url.row not in there:
                assert self.model.hosts[visit.name].lease != visit.token or key in self.model.finished
                continue
            self.model.queued = [w for w in self.model.queued if (w.campaign, w.url) != key]
            if key not in self.model.finished:
                self.model.finished.add(key)
                History.pages.append((url.row >> 32, key[1]))
        host = self.model.hosts[visit.name]
        if host.lease == visit.token:
            host.due_at, host.gap_ms = due, gap
            level = None if parked else self.model.best_level(visit.name)
            if ends and level is not None:
                host.due(due, level, self.world.now)
            elif ends:
                host.idle()
        self.visits.remove(visit)
        if not ends:
            self.visits.append(visit._replace(urls=left))

    @precondition(lambda self: self.visits)
    @rule(which=some)
    def renew(self, which: int) -> None:
        visit = self.visits[which % len(self.visits)]
        renew([visit.token], lease_ms=LEASE_MS, using=self.world.using)
        lease = self.model.leases.get(visit.token)
        if lease and lease.ends_at > self.world.now:
            lease.ends_at = self.world.now + LEASE_MS

    @rule(ms=st.sampled_from([1, 500, 1_000, LEASE_MS]))
    def time_goes_by(self, ms: int) -> None:
        """Also the loss of a worker: whoever holds a visit may never be heard of again, or come back late."""
        self.world.now += ms

    @rule()
    def start_without_workers(self) -> None:
        given_back = free_all_leases(self.world.using)
        assert given_back == self.model.take_back(list(self.model.leases), self.world.now)

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
        self.model.mark(domain, self.world.now)

    @rule(campaign=st.sampled_from(CAMPAIGNS))
    def pause_or_resume(self, campaign: int) -> None:
        if campaign in self.model.running:
            self.model.running.remove(campaign)
            return
        self.model.running.add(campaign)
        wake(campaign, self.world.using)
        for name in self.model.hosts:
            if self.model.queue(name, campaign):
                self.model.activate(name, self.world.now)

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
        hosts = self.world.hosts()
        assert {
            name: ModelHost(h.due_at, h.lease, h.gap_ms, h.active, h.blocked, h.key >> HOST_BITS)
            for name, h in hosts.items()
        } == dict(self.model.hosts)
        assert all(h.next_at == self.model.leases[h.lease].ends_at for h in hosts.values() if h.lease)
        leases = Lease.objects.using(self.world.using).values_list("id", "ends_at", "opened")
        assert {token: ModelLease(ends_at, opened) for token, ends_at, opened in leases} == self.model.leases
        self.world.check()

    def teardown(self) -> None:
        """In the end everything that was admitted can be visited."""
        self.world.merge()
        self.merged(len(self.model.inbox))
        for domain in list(self.model.blocks):
            self.block_or_unblock(domain)
        for campaign in CAMPAIGNS:
            wake(campaign, self.world.using)
        visited = set(self.model.finished)
        while any(host.active for host in self.world.hosts().values()):
            self.world.now += 2 * LEASE_MS
            visits = self.world.visit(*CAMPAIGNS)
            for visit in visits:
                urls = {(url.campaign, f"https://{visit.name}{url.ref}") for url in visit.urls}
                assert not urls & visited
                visited |= urls
                self.world.leave(visit)
        held = {(w.campaign, w.url) for w in self.world.waiting()}
        assert held == {(w.campaign, w.url) for w in self.model.queued if w.level == HELD}
        assert visited | held == self.model.known


def test_the_frontier_does_what_its_model_does(frontier: World) -> None:
    machine = type("Machine", (Frontier,), {"world": frontier})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
