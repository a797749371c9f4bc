"""Claims: who may visit which host, and what a visit is told."""

import threading

import pytest

from frontier import claim as claims
from frontier.claim import Claim, claim, leased, wake
from frontier.models import Lease
from tests.frontier.world import GAP_MS, LEASE_MS, NOW, InThread, World

# --- which hosts -----------------------------------------------------------------------------------------------


def test_claimers_at_the_same_time_never_get_the_same_host(frontier: World) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(120)])
    start, lock = threading.Barrier(6), threading.Lock()
    got: list[str] = []

    def claimer() -> None:
        start.wait()
        while True:
            claimed = frontier.claim(limit=7)
            visits = frontier.open(claimed, 1)
            assert len(visits) == len(claimed.hosts)
            with lock:
                got.extend(visit.name for visit in visits)
                # On PostgreSQL a claim may find less than there is: it skips what others are looking at.
                if not claimed.hosts and len(got) >= 120:
                    return

    for thread in [InThread(claimer) for _ in range(6)]:
        thread.result()
    assert sorted(got) == sorted(f"h{i}.test" for i in range(120))
    assert leased(frontier.using) == 120
    frontier.check()


def test_a_host_that_is_not_due_is_not_claimed(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    [visit] = frontier.visit(quota=1)
    frontier.leave(visit, due_at=frontier.now + 5_000)
    frontier.now += 4_999
    assert frontier.claim().hosts == []
    frontier.now += 1
    assert frontier.names(frontier.claim()) == ["a.test"]


def test_a_claim_may_look_ahead_of_the_clocks(frontier: World) -> None:
    frontier.add("https://a.test/")
    frontier.set_host("a.test", due_at=NOW + 1_000)
    assert frontier.claim(horizon_ms=999).hosts == []
    [visit] = frontier.open(frontier.claim(horizon_ms=1_000))
    assert visit.due_at == NOW + 1_000


def test_looking_ahead_does_not_take_a_lease_before_it_ends(frontier: World) -> None:
    frontier.add("https://a.test/")
    frontier.visit()
    frontier.set_host("a.test", gap_ms=10_000)
    frontier.now += LEASE_MS - 1
    assert frontier.claim(horizon_ms=10_000).hosts == []
    frontier.now += 1
    assert frontier.claim(horizon_ms=9_999).hosts == []  # it is taken back, and its gap is kept
    assert frontier.names(frontier.claim(horizon_ms=10_000)) == ["a.test"]


def test_the_hosts_that_have_been_due_longest_go_first(frontier: World) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(6)])
    for place, number in enumerate([3, 0, 5, 1, 4, 2]):
        frontier.set_host(f"h{number}.test", due_at=NOW - 10_000 + 1_000 * place)
    order = [frontier.names(frontier.claim(limit=2)) for _ in range(4)]
    assert order == [["h0.test", "h3.test"], ["h1.test", "h5.test"], ["h2.test", "h4.test"], []]


def test_a_host_that_was_never_visited_waits_its_turn(frontier: World) -> None:
    frontier.add("https://old.test/")
    frontier.now += 5_000
    frontier.add("https://new.test/")
    assert frontier.host("new.test").due_at == NOW + 5_000
    assert [frontier.names(frontier.claim(limit=1)) for _ in range(2)] == [["old.test"], ["new.test"]]


def test_a_host_without_urls_is_not_claimed(frontier: World) -> None:
    frontier.add("https://a.test/")
    [visit] = frontier.visit()
    frontier.leave(visit)
    frontier.now += 10_000
    assert frontier.claim().hosts == []
    frontier.add("https://a.test/next")
    assert frontier.names(frontier.claim()) == ["a.test"]


def test_a_url_that_is_added_during_a_visit_is_there_after_it(frontier: World) -> None:
    frontier.add("https://a.test/")
    [visit] = frontier.visit()
    frontier.add("https://a.test/next")
    assert frontier.claim().hosts == []
    frontier.leave(visit)
    frontier.now += GAP_MS
    [again] = frontier.visit()
    assert [url.ref for url in again.urls] == ["/next"]


# --- opening ---------------------------------------------------------------------------------------------------


def test_a_message_that_comes_twice_finds_nothing_the_second_time(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    claimed = frontier.claim()
    assert sorted(visit.name for visit in frontier.open(claimed)) == ["a.test", "b.test"]
    before = frontier.hosts()
    frontier.now += 1
    assert frontier.open(claimed) == []
    assert frontier.hosts() == before


@pytest.mark.parametrize("other", [-1, 1, 1 << 32])
def test_nobody_opens_a_host_under_a_token_that_does_not_hold_it(frontier: World, other: int) -> None:
    frontier.add("https://a.test/")
    claimed = frontier.claim()
    assert frontier.open(Claim(claimed.token + other, claimed.hosts)) == []
    assert frontier.host("a.test").lease == claimed.token
    frontier.check()


@pytest.mark.parametrize("taken_back", [True, False])
def test_a_message_that_comes_after_the_end_of_its_lease_finds_nothing(frontier: World, taken_back: bool) -> None:
    frontier.add("https://a.test/")
    late = frontier.claim()
    frontier.now += LEASE_MS
    visits = frontier.visit() if taken_back else []
    assert len(visits) == taken_back
    before = frontier.hosts()
    assert frontier.open(late) == []
    assert frontier.hosts() == before
    frontier.check()


def test_what_is_opened_is_what_the_lease_holds_whatever_hosts_the_message_names(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/", "https://c.test/")
    claimed, other = frontier.claim(limit=2), frontier.claim(limit=1)
    visits = frontier.open(Claim(claimed.token, [*other.hosts, 12345]))
    assert sorted(visit.host for visit in visits) == claimed.hosts
    assert [visit.host for visit in frontier.open(other)] == other.hosts


@pytest.mark.parametrize("late", [0, LEASE_MS // 4, LEASE_MS - 1])
def test_an_opened_visit_has_a_whole_lease(frontier: World, late: int) -> None:
    frontier.add("https://a.test/")
    claimed = frontier.claim()
    frontier.now += late
    [visit] = frontier.open(claimed)
    assert visit.token == claimed.token
    assert frontier.host("a.test").next_at == frontier.now + LEASE_MS


def test_hosts_are_claimed_in_groups_that_are_opened_apart(frontier: World) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(5)])
    claims = claim(4, lease_ms=LEASE_MS, groups=lambda hosts: [hosts[:3], [], hosts[3:]], using=frontier.using, now=NOW)
    assert [len(one.hosts) for one in claims] == [3, 1]
    assert claims[0].token != claims[1].token
    for one in claims:
        assert [visit.host for visit in frontier.open(one)] == one.hosts
        assert frontier.open(one) == []


def test_a_claim_whose_message_was_lost_is_forgotten(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    lost = frontier.claim(limit=1)
    frontier.now += LEASE_MS
    assert len(frontier.claim().hosts) == 2
    assert lost.token not in Lease.objects.using(frontier.using).values_list("id", flat=True)
    assert frontier.open(lost) == []


def test_a_visit_says_all_that_the_fetch_must_know(frontier: World) -> None:
    frontier.add("https://a.test/x", depth=3)
    frontier.set_host("a.test", gap_ms=11, delay_ms=12, failures=13, due_at=NOW - 14)
    [visit] = frontier.visit()
    assert (visit.name, visit.due_at, visit.gap_ms, visit.delay_ms, visit.failures) == ("a.test", NOW - 14, 11, 12, 13)
    [url] = visit.urls
    assert (url.campaign, url.ref, url.depth) == (1, "/x", 3)


@pytest.mark.parametrize(("quota", "taken"), [(1, (1, 1)), (4, (2, 2)), (5, (2, 2)), (8, (4, 3)), (100, (5, 3))])
def test_campaigns_share_a_visit(frontier: World, quota: int, taken: tuple[int, int]) -> None:
    frontier.add(*[f"https://a.test/{i}" for i in range(5)], campaign=1)
    frontier.add(*[f"https://a.test/{i}" for i in range(3)], campaign=2)
    [visit] = frontier.visit(1, 2, quota=quota)
    assert [url.ref for url in visit.urls if url.campaign == 1] == [f"/{i}" for i in range(taken[0])]
    assert [url.ref for url in visit.urls if url.campaign == 2] == [f"/{i}" for i in range(taken[1])]


def test_the_quota_is_asked_with_the_gap_and_the_delay_of_each_host(frontier: World) -> None:
    frontier.add(*[f"https://{name}.test/{i}" for name in "ab" for i in range(9)])
    frontier.set_host("a.test", gap_ms=3)
    frontier.set_host("b.test", gap_ms=2, delay_ms=5)
    visits = claims.open_visits(
        frontier.claim(), [1], lambda gap, delay: gap + (delay or 0), lease_ms=LEASE_MS, using=frontier.using
    )
    assert {visit.name: len(visit.urls) for visit in visits} == {"a.test": 3, "b.test": 7}


def test_what_is_opened_stays_queued_until_it_is_finished(frontier: World) -> None:
    frontier.add("https://a.test/", "https://a.test/2")
    frontier.visit()
    assert frontier.urls() == ["https://a.test/", "https://a.test/2"]
    frontier.check()


@pytest.mark.parametrize("moment", ["before the claim", "before the visit"])
def test_a_host_that_is_marked_while_it_is_due_is_let_go_when_a_worker_comes_to_it(
    frontier: World, moment: str
) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    frontier.set_host("a.test", due_at=NOW - 500, gap_ms=7_000)
    if moment == "before the claim":
        frontier.set_host("a.test", blocked=True)
    claimed = frontier.claim()
    frontier.set_host("a.test", blocked=True)
    assert [visit.name for visit in frontier.open(claimed)] == ["b.test"]
    host = frontier.host("a.test")
    assert (host.active, host.blocked, host.due_at, host.gap_ms) == (False, True, NOW - 500, 7_000)
    assert frontier.urls() == ["https://a.test/", "https://b.test/"]
    frontier.check()
    frontier.add("https://a.test/more")
    wake(1, frontier.using)
    assert frontier.claim().hosts == []


# --- campaigns that do not run -----------------------------------------------------------------------------------


def test_hosts_of_a_campaign_that_does_not_run_go_idle_until_it_wakes(frontier: World) -> None:
    frontier.add("https://a.test/", "https://both.test/", campaign=1)
    frontier.add("https://b.test/", "https://both.test/", campaign=2)
    visits = frontier.visit(2)
    assert sorted(visit.name for visit in visits) == ["b.test", "both.test"]
    assert {url.campaign for visit in visits for url in visit.urls} == {2}
    for visit in visits:
        frontier.leave(visit)
    frontier.check()
    frontier.now += 10_000
    assert frontier.names(frontier.claim()) == ["both.test"]  # a URL of campaign 1 waits there
    assert not frontier.host("a.test").active
    wake(1, frontier.using)
    assert frontier.names(frontier.claim()) == ["a.test"]
    frontier.check()
    frontier.check_nothing_is_stranded(1)


def test_no_running_campaign_at_all_lets_every_host_go_idle(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    claimed = frontier.claim()
    assert claims.open_visits(claimed, [], lambda gap, delay: 1, lease_ms=LEASE_MS, using=frontier.using) == []
    assert frontier.claim().hosts == []
    assert leased(frontier.using) == 0
    wake(1, frontier.using)
    assert frontier.names(frontier.claim()) == ["a.test", "b.test"]


def test_an_idle_host_comes_back_with_a_new_url(frontier: World) -> None:
    frontier.add("https://a.test/", campaign=1)
    assert frontier.visit(2) == []
    frontier.add("https://a.test/", campaign=2)
    [visit] = frontier.visit(2)
    assert [url.campaign for url in visit.urls] == [2]


def test_waking_leaves_alone_what_has_nothing_to_visit_or_is_blocked(frontier: World) -> None:
    frontier.add("https://held.test/", level=15)
    frontier.add("https://blocked.test/", "https://done.test/")
    frontier.set_host("blocked.test", active=False, blocked=True)
    [visit] = frontier.visit()
    frontier.leave(visit)
    frontier.now += GAP_MS
    wake(1, frontier.using)
    assert frontier.claim().hosts == []


def test_a_campaign_of_a_large_number_is_one_like_others(frontier: World) -> None:
    largest = (1 << 31) - 1
    frontier.add("https://a.test/", campaign=largest)
    [visit] = frontier.visit(largest)
    assert visit.urls[0].campaign == largest
