"""Claims and leases: who may visit which host, and when."""

import threading

import pytest

from frontier import claim as claims
from frontier.claim import Claim, free_all_leases, leased, renew, wake
from frontier.complete import Clock, settle
from tests.frontier.world import GAP_MS, LEASE_MS, NOW, InThread, World


def names(frontier: World, claimed: Claim) -> list[str]:
    by_id = {host.pk: name for name, host in frontier.hosts().items()}
    return sorted(by_id[host] for host in claimed.hosts)


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
    assert names(frontier, frontier.claim()) == ["a.test"]


def test_a_claim_may_look_ahead_of_the_clocks(frontier: World) -> None:
    frontier.add("https://a.test/")
    frontier.set_host("a.test", next_at=NOW + 1_000, due_at=NOW + 1_000)
    assert frontier.claim(horizon_ms=999).hosts == []
    [visit] = frontier.open(frontier.claim(horizon_ms=1_000))
    assert visit.due_at == NOW + 1_000


def test_looking_ahead_does_not_take_a_lease_before_it_ends(frontier: World) -> None:
    frontier.add("https://a.test/")
    frontier.visit()
    frontier.now += LEASE_MS - 1
    assert frontier.claim(horizon_ms=10_000).hosts == []
    frontier.now += 1
    assert names(frontier, frontier.claim(horizon_ms=10_000)) == ["a.test"]


def test_the_hosts_that_have_been_due_longest_go_first(frontier: World) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(6)])
    for place, number in enumerate([3, 0, 5, 1, 4, 2]):
        due = NOW - 1_000 + place
        frontier.set_host(f"h{number}.test", next_at=due, due_at=due)
    order = [names(frontier, frontier.claim(limit=2)) for _ in range(4)]
    assert order == [["h0.test", "h3.test"], ["h1.test", "h5.test"], ["h2.test", "h4.test"], []]


def test_a_host_without_urls_is_not_claimed(frontier: World) -> None:
    frontier.add("https://a.test/")
    [visit] = frontier.visit()
    frontier.leave(visit)
    frontier.now += 10_000
    assert frontier.claim().hosts == []
    frontier.add("https://a.test/next")
    assert names(frontier, frontier.claim()) == ["a.test"]


def test_a_url_that_is_added_during_a_visit_is_there_after_it(frontier: World) -> None:
    frontier.add("https://a.test/")
    [visit] = frontier.visit()
    frontier.add("https://a.test/next")
    assert frontier.claim().hosts == []
    frontier.leave(visit)
    frontier.now += GAP_MS
    [again] = frontier.visit()
    assert [url.ref for url in again.urls] == ["/next"]


# --- leases --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [True, False], ids=["during a visit", "before the message arrives"])
def test_a_lease_that_runs_out_brings_the_host_back_after_its_gap(frontier: World, opened: bool) -> None:
    frontier.add("https://a.test/")
    frontier.set_host("a.test", gap_ms=7_000)
    claimed = frontier.claim()
    if opened:
        frontier.open(claimed)
    frontier.now += LEASE_MS - 1
    assert frontier.claim().hosts == []
    frontier.now += 1
    [visit] = frontier.visit()
    assert visit.due_at == frontier.now + 7_000
    assert [url.ref for url in visit.urls] == ["/"]


def test_a_lost_lease_does_not_shorten_a_longer_wait(frontier: World) -> None:
    frontier.add("https://a.test/")
    [visit] = frontier.visit()
    far = NOW + 10 * LEASE_MS
    settle([Clock(visit.host, visit.token, far, GAP_MS)], using=frontier.using)
    frontier.now += LEASE_MS
    [again] = frontier.visit()
    assert again.due_at == far


def test_a_free_host_keeps_its_clock_when_it_is_claimed(frontier: World) -> None:
    frontier.add("https://a.test/")
    frontier.set_host("a.test", next_at=NOW - 500, due_at=NOW - 500, gap_ms=7_000)
    [visit] = frontier.visit()
    assert visit.due_at == NOW - 500


def test_a_lease_that_is_renewed_does_not_run_out(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    visits = {visit.name: visit for visit in frontier.visit()}
    frontier.now += LEASE_MS - 1
    renew([(visits["a.test"].host, visits["a.test"].token)], lease_ms=LEASE_MS, using=frontier.using)
    renew([], lease_ms=LEASE_MS, using=frontier.using)
    frontier.now += LEASE_MS - 1
    assert names(frontier, frontier.claim()) == ["b.test"]
    frontier.now += 1
    assert names(frontier, frontier.claim()) == ["a.test"]


def test_a_lost_lease_cannot_be_renewed(frontier: World) -> None:
    frontier.add("https://a.test/")
    [visit] = frontier.visit()
    frontier.now += LEASE_MS
    frontier.visit()
    before = frontier.host("a.test").next_at
    frontier.now += 1_000
    renew([(visit.host, visit.token), (visit.host, 5), (999, visit.token)], lease_ms=LEASE_MS, using=frontier.using)
    assert frontier.host("a.test").next_at == before


def test_leases_are_counted_until_they_run_out(frontier: World) -> None:
    frontier.add(*[f"https://h{i}.test/" for i in range(5)])
    assert leased(frontier.using) == 0
    frontier.claim(limit=3)
    frontier.now += 1_000
    [visit] = frontier.visit(limit=1)
    assert leased(frontier.using) == 4
    frontier.leave(visit)
    assert leased(frontier.using) == 3
    frontier.now += LEASE_MS - 1_000
    assert leased(frontier.using) == 0


def test_all_leases_can_be_given_back_at_a_start(frontier: World) -> None:
    frontier.add(*[f"https://{name}.test/" for name in "abcd"])
    for name, gap in {"a": 1_000, "b": 30_000}.items():
        frontier.set_host(f"{name}.test", gap_ms=gap, next_at=NOW - 1, due_at=NOW - 1)
    visits = frontier.visit(limit=2) + frontier.visit(limit=0)
    assert sorted(visit.name for visit in visits) == ["c.test", "d.test"]
    visits = frontier.visit(limit=2)
    [far] = [visit for visit in visits if visit.name == "a.test"]
    settle([Clock(far.host, far.token, NOW + 90_000, 1_000)], using=frontier.using)
    frontier.now += 10

    assert free_all_leases(frontier.using) == 4
    assert free_all_leases(frontier.using) == 0

    frontier.check()
    due = {name: host.next_at for name, host in frontier.hosts().items()}
    assert due == {"a.test": NOW + 90_000, "b.test": NOW + 30_010, "c.test": NOW + 10, "d.test": NOW + 10}
    assert names(frontier, frontier.claim()) == ["c.test", "d.test"]


# --- opening ---------------------------------------------------------------------------------------------------


def test_a_message_that_comes_twice_finds_nothing_the_second_time(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    claimed = frontier.claim()
    assert sorted(visit.name for visit in frontier.open(claimed)) == ["a.test", "b.test"]
    before = frontier.hosts()
    assert frontier.open(claimed) == []
    assert [vars(host) | {"_state": 0} for host in frontier.hosts().values()] == [
        vars(host) | {"_state": 0} for host in before.values()
    ]


@pytest.mark.parametrize("token", [1, (1 << 62) - 1])
def test_nobody_opens_a_host_under_a_token_that_does_not_hold_it(frontier: World, token: int) -> None:
    frontier.add("https://a.test/")
    claimed = frontier.claim()
    assert frontier.open(Claim(token, claimed.hosts)) == []
    assert frontier.host("a.test").lease == claimed.token
    frontier.check()


def test_a_message_that_comes_after_its_lease_was_lost_finds_nothing(frontier: World) -> None:
    frontier.add("https://a.test/")
    late = frontier.claim()
    frontier.now += LEASE_MS
    [visit] = frontier.visit()
    assert frontier.open(late) == []
    assert frontier.host("a.test").lease == visit.token


def test_a_message_may_name_hosts_that_are_gone(frontier: World) -> None:
    frontier.add("https://a.test/")
    claimed = frontier.claim()
    assert [visit.name for visit in frontier.open(Claim(claimed.token, [*claimed.hosts, 12345]))] == ["a.test"]
    assert frontier.open(Claim(claimed.token, [])) == []


def test_an_opened_visit_has_a_token_of_its_own_and_a_full_lease(frontier: World) -> None:
    frontier.add("https://a.test/")
    claimed = frontier.claim()
    frontier.now += LEASE_MS - 1
    [visit] = frontier.open(claimed)
    assert visit.token != claimed.token
    assert frontier.host("a.test").next_at == frontier.now + LEASE_MS


def test_a_visit_says_all_that_the_fetch_must_know(frontier: World) -> None:
    frontier.add("https://a.test/x", depth=3)
    frontier.set_host("a.test", gap_ms=11, delay_ms=12, failures=13, next_at=NOW - 14, due_at=NOW - 14)
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
    assert names(frontier, frontier.claim()) == ["both.test"]  # a URL of campaign 1 waits there
    assert frontier.host("a.test").lease == 0
    wake(1, frontier.using)
    assert names(frontier, frontier.claim()) == ["a.test"]
    frontier.check_nothing_is_stranded(1)


def test_no_running_campaign_at_all_lets_every_host_go_idle(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    claimed = frontier.claim()
    assert claims.open_visits(claimed, [], lambda gap, delay: 1, lease_ms=LEASE_MS, using=frontier.using) == []
    assert frontier.claim().hosts == []
    assert leased(frontier.using) == 0
    wake(1, frontier.using)
    assert names(frontier, frontier.claim()) == ["a.test", "b.test"]


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
    wake(1, frontier.using)
    assert frontier.claim().hosts == []


def test_a_campaign_of_a_large_number_is_one_like_others(frontier: World) -> None:
    largest = (1 << 31) - 1
    frontier.add("https://a.test/", campaign=largest)
    [visit] = frontier.visit(largest)
    assert visit.urls[0].campaign == largest
