"""Domain blocks: nothing of a blocked domain is claimed, and nothing of it is lost."""

from datetime import timedelta

import pytest
from django.utils import timezone

from frontier.blocks import Blocks, in_force
from frontier.claim import leased
from frontier.models import DomainBlock
from tests.frontier.world import GAP_MS, LEASE_MS, World

COVERS = [
    ("example.com", "example.com", True),
    ("example.com", "www.example.com", True),
    ("example.com", "a.b.example.com:8080", True),
    ("example.com", "notexample.com", False),
    ("example.com", "example.com.evil.test", False),
    ("example.com", "com", False),
    ("www.example.com", "example.com", False),
    ("192.0.2.1", "192.0.2.1:81", True),
    ("[2001:db8::1]", "[2001:db8::1]", True),
    ("[2001:db8::1]", "[2001:db8::1]:8080", True),
    ("[2001:db8::1]", "[2001:db8::2]", False),
]


@pytest.mark.parametrize(("domain", "host", "covered"), COVERS)
def test_a_block_covers_its_domain_and_all_below(domain: str, host: str, covered: bool) -> None:
    assert Blocks([domain]).covers(host) is covered
    assert not Blocks().covers(host)


@pytest.mark.parametrize(("domain", "host", "covered"), COVERS)
def test_the_marks_on_hosts_say_the_same(frontier: World, domain: str, host: str, covered: bool) -> None:
    frontier.add(f"https://{host}/")
    DomainBlock.objects.using(frontier.using).create(domain=domain)
    assert frontier.host(host).blocked is covered
    frontier.check()


def test_nothing_of_a_blocked_domain_is_claimed_and_all_of_it_is_kept(frontier: World) -> None:
    frontier.add("https://a.test/", "https://www.a.test:8443/", "https://b.test/")
    block = DomainBlock.objects.using(frontier.using).create(domain="a.test")
    assert [visit.name for visit in frontier.visit()] == ["b.test"]
    assert len(frontier.urls()) == 3
    frontier.add("https://a.test/more")
    assert frontier.claim().hosts == []
    frontier.check()
    block.delete()
    assert sorted(visit.name for visit in frontier.visit()) == ["a.test", "www.a.test:8443"]
    frontier.check()


def test_a_host_that_is_blocked_between_claim_and_visit_is_not_visited(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    claimed = frontier.claim()
    block = DomainBlock.objects.using(frontier.using).create(domain="a.test")
    assert [visit.name for visit in frontier.open(claimed)] == ["b.test"]
    assert frontier.host("a.test").lease == 0
    frontier.check()
    block.delete()
    assert [visit.name for visit in frontier.visit()] == ["a.test"]


def test_a_host_that_is_blocked_during_a_visit_does_not_come_back_after_it(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    [visit] = frontier.visit(quota=1)
    block = DomainBlock.objects.using(frontier.using).create(domain="a.test")
    frontier.leave(visit)
    frontier.now += GAP_MS
    assert frontier.claim().hosts == []
    frontier.check()
    block.delete()
    assert [visit.name for visit in frontier.visit()] == ["a.test"]


def test_a_blocked_host_whose_worker_died_takes_nobodys_place(frontier: World) -> None:
    frontier.add("https://a.test/")
    frontier.visit()
    block = DomainBlock.objects.using(frontier.using).create(domain="a.test")
    frontier.now += LEASE_MS
    assert leased(frontier.using) == 0
    block.delete()
    [visit] = frontier.visit()
    assert visit.name == "a.test"


def test_a_host_that_its_visit_found_blocked_comes_back_with_the_block_lifted(frontier: World) -> None:
    frontier.add("https://a.test/")
    [visit] = frontier.visit()
    block = DomainBlock.objects.using(frontier.using).create(domain="a.test")
    frontier.set_host("a.test", blocked=False)  # as for a host that was merged after the block
    frontier.leave(visit, rows=[], parked=True, reason="blocked")
    block.delete()
    frontier.now += GAP_MS
    assert [visit.name for visit in frontier.visit()] == ["a.test"]


def test_unblocking_one_domain_leaves_what_another_block_covers(frontier: World) -> None:
    frontier.add("https://a.b.test/", "https://c.b.test/")
    wide = DomainBlock.objects.using(frontier.using).create(domain="b.test")
    DomainBlock.objects.using(frontier.using).create(domain="a.b.test")
    wide.delete()
    assert [visit.name for visit in frontier.visit()] == ["c.b.test"]
    frontier.check()


def test_saving_a_block_again_disturbs_no_host(frontier: World) -> None:
    frontier.add("https://a.test/", "https://other.test/")
    for visit in frontier.visit():
        frontier.leave(visit, rows=[], parked=True, reason="robots.txt does not answer")
    past = timezone.now() - timedelta(days=1)
    block = DomainBlock.objects.using(frontier.using).create(domain="a.test", expires_at=past)
    block.reason = "none any more"
    block.save()
    host = frontier.host("a.test")
    assert (host.active, host.blocked, host.reason) == (False, False, "robots.txt does not answer")


def test_expired_blocks_are_not_in_force(frontier: World) -> None:
    now = timezone.now()
    blocks = DomainBlock.objects.using(frontier.using)
    for domain, expires_at in (("a.test", None), ("b.test", now - timedelta(1)), ("c.test", now + timedelta(1))):
        blocks.create(domain=domain, expires_at=expires_at)
    covered = in_force(frontier.using)
    assert [name for name in ("a.test", "b.test", "c.test") if covered.covers(name)] == ["a.test", "c.test"]


def test_a_host_that_is_first_merged_below_a_block_is_not_claimed(frontier: World) -> None:
    frontier.admit("https://a.test/")
    DomainBlock.objects.using(frontier.using).create(domain="a.test")
    frontier.merge()
    assert frontier.claim().hosts == []
