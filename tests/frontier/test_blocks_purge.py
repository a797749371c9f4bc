"""Purging: what waits on blocked hosts is taken away, all of it and nothing else."""

import pytest
from django.db import transaction

from frontier import purge as purging
from frontier.blocking import block, unblock
from frontier.counts import waiting
from frontier.models import Host, Queue
from frontier.priority import HELD
from frontier.purge import Extent, extent, purge, purged
from frontier.rebuild import rebuild
from frontier.seen.index import SeenIndex
from tests.frontier.world import History, Killed, World, die


@pytest.fixture
def blocked(frontier: World) -> World:
    """Two campaigns on four hosts, of which a.test and www.a.test are blocked."""
    frontier.add(
        *(f"https://a.test/{n}" for n in range(7)), "https://www.a.test/", "https://b.test/", "https://c.test/"
    )
    frontier.add("https://a.test/held", "https://a.test/held2", level=HELD)
    frontier.add("https://a.test/2", "https://b.test/2", campaign=2)
    block(["a.test"], using=frontier.using)
    return frontier


def emptied(world: World, domains: list[str] | None = None) -> tuple[int, int]:
    done = list(purge(domains, world.using))
    return sum(one.hosts for one in done), sum(one.urls for one in done)


def test_the_waiting_urls_of_blocked_hosts_go_and_no_others(blocked: World) -> None:
    assert extent(None, blocked.using) == Extent(2, 11)
    assert emptied(blocked) == (2, 11)
    assert blocked.urls() == ["https://b.test/", "https://b.test/2", "https://c.test/"]
    assert extent(None, blocked.using) == Extent(2, 0)
    assert emptied(blocked) == (2, 0)


def test_the_counts_are_right_afterwards(blocked: World) -> None:
    before = waiting(1, blocked.using), waiting(2, blocked.using)
    assert [(count.urls, count.held) for count in before] == [(10, 2), (2, 0)]
    emptied(blocked)
    after = waiting(1, blocked.using), waiting(2, blocked.using)
    assert [(count.urls, count.held) for count in after] == [(2, 0), (1, 0)]
    assert [count.hosts for count in after] == [count.hosts for count in before]


def test_one_domain_is_purged_and_other_blocks_are_left(blocked: World) -> None:
    block(["b.test"], using=blocked.using)
    assert extent(["www.a.test"], blocked.using) == Extent(1, 1)
    assert emptied(blocked, ["www.a.test"]) == (1, 1)
    assert emptied(blocked, ["b.test", "c.test"]) == (1, 2)  # c.test is not blocked
    assert len(blocked.urls()) == 11


def test_a_purge_goes_in_bounded_transactions(blocked: World, monkeypatch) -> None:
    monkeypatch.setattr(purging, "URLS", 3)
    monkeypatch.setattr(purging, "HOSTS", 1)
    done = list(purge(None, blocked.using))
    assert [one.urls for one in done] == [3, 3, 3, 1, 1]
    assert sum(one.hosts for one in done) == 2
    assert extent(None, blocked.using).urls == 0


def test_a_kill_keeps_what_is_done_and_the_next_purge_goes_on(blocked: World, monkeypatch) -> None:
    monkeypatch.setattr(purging, "URLS", 3)
    with monkeypatch.context() as broken:
        die(broken, purging, "change", call=3)
        with pytest.raises(Killed):
            emptied(blocked)
    assert extent(None, blocked.using).urls == 5
    assert waiting(1, blocked.using).urls + waiting(1, blocked.using).held + waiting(2, blocked.using).urls == 8
    assert emptied(blocked)[1] == 5


def test_hosts_and_queues_stay_so_that_no_id_is_given_out_again(blocked: World) -> None:
    hosts = set(Host.objects.using(blocked.using).values_list("id", flat=True))
    queues = set(Queue.objects.using(blocked.using).values_list("id", flat=True))
    emptied(blocked)
    assert set(Host.objects.using(blocked.using).values_list("id", flat=True)) == hosts
    blocked.add("https://new.test/")
    [made] = set(Queue.objects.using(blocked.using).values_list("id", flat=True)) - queues
    assert made > max(queues)


def test_a_purged_url_stays_known_until_the_index_is_made_anew(blocked: World) -> None:
    emptied(blocked)
    unblock(["a.test"], blocked.using)
    blocked.add("https://a.test/3", "https://a.test/fresh")
    assert [url for url in blocked.urls() if "//a.test" in url] == ["https://a.test/fresh"]
    visited = Queue.objects.using(blocked.using).get(host__name="a.test", campaign=1).pk
    History.pages = [(visited, "https://a.test/4")]
    rebuild(SeenIndex(blocked.directory, blocked.using), blocked.using)
    blocked.restart()
    blocked.add("https://a.test/3", "https://a.test/4")
    assert [url for url in blocked.urls() if "//a.test" in url] == ["https://a.test/3", "https://a.test/fresh"]


def test_a_host_whose_block_is_lifted_during_the_purge_keeps_what_is_left(blocked: World, monkeypatch) -> None:
    monkeypatch.setattr(purging, "URLS", 3)
    steps = purge(None, blocked.using)
    assert next(steps).urls == 3
    unblock(["a.test"], blocked.using)
    assert sum(one.urls for one in steps) == 0
    assert len(blocked.urls()) == 14 - 3
    assert "a.test" in {visit.name for visit in blocked.visit()}


def test_after_a_purge_an_unblocked_host_has_nothing_to_do(blocked: World) -> None:
    emptied(blocked)
    unblock(["a.test"], blocked.using)
    assert {visit.name for visit in blocked.visit()} == {"b.test", "c.test"}


def test_whoever_keeps_records_of_waiting_urls_is_told_in_the_same_transaction(blocked: World, monkeypatch) -> None:
    told: list[tuple[list[int], bool]] = []

    def learn(sender, queues, using, **kwargs) -> None:
        told.append((queues, transaction.get_connection(using).in_atomic_block))

    purged.connect(learn)
    monkeypatch.setattr(purging, "URLS", 3)
    try:
        emptied(blocked)
    finally:
        purged.disconnect(learn)
    expected = Queue.objects.using(blocked.using).filter(host__name__endswith="a.test").values_list("id", flat=True)
    assert {queue for queues, _ in told for queue in queues} == set(expected)
    assert all(inside for _, inside in told)


def test_the_extent_is_bounded(blocked: World) -> None:
    assert extent(None, blocked.using, most=1) == Extent(1, 1)
    assert extent(None, blocked.using, most=5) == Extent(2, 5)
