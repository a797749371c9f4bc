"""Domain blocks: nothing of a blocked domain is claimed, and nothing of it is lost."""

import time
from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from frontier import blocking
from frontier.blocking import FEW, block, lift_expired, sweep_marks, unblock, walk
from frontier.blocks import above, in_force
from frontier.claim import leased
from frontier.models import BlockChange, DomainBlock
from tests.frontier.world import GAP_MS, LEASE_MS, Killed, World, die

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
    assert (domain in above(host)) is covered


@pytest.mark.parametrize(("domain", "host", "covered"), COVERS)
def test_verdicts_say_the_same(frontier: World, domain: str, host: str, covered: bool) -> None:
    assert not in_force(frontier.using).covers(host)
    DomainBlock.objects.using(frontier.using).create(domain=domain)
    assert in_force(frontier.using).covers(host) is covered


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
    assert frontier.visit() == []
    frontier.check()
    block.delete()
    assert sorted(visit.name for visit in frontier.visit()) == ["a.test", "www.a.test:8443"]
    frontier.check()


def test_a_host_that_is_blocked_between_claim_and_visit_is_not_visited(frontier: World) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    claimed = frontier.claim()
    block = DomainBlock.objects.using(frontier.using).create(domain="a.test")
    assert [visit.name for visit in frontier.open(claimed)] == ["b.test"]
    assert frontier.visit() == []
    frontier.check()
    block.delete()
    assert [visit.name for visit in frontier.visit()] == ["a.test"]


def test_a_host_that_is_blocked_during_a_visit_does_not_come_back_after_it(frontier: World) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    [visit] = frontier.visit(quota=1)
    block = DomainBlock.objects.using(frontier.using).create(domain="a.test")
    frontier.leave(visit)
    frontier.now += GAP_MS
    assert frontier.visit() == []
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


def test_a_block_that_expires_lifts_by_the_clock_and_its_hosts_with_the_next_sweep(frontier: World) -> None:
    frontier.add("https://a.test/", "https://www.a.test/", "https://b.test/")
    soon = timezone.now() + timedelta(seconds=0.5)
    block(["a.test"], expires_at=soon, using=frontier.using)
    block(["b.test"], using=frontier.using)
    blocks = in_force(frontier.using)
    assert blocks.covers("a.test")
    sweep_marks(frontier.using)
    assert frontier.host("www.a.test").blocked
    time.sleep(0.5)
    assert not blocks.covers("a.test")
    called: list[bool] = []
    sweep_marks(frontier.using, lambda: called.append(True))
    assert called
    assert sorted(visit.name for visit in frontier.visit()) == ["a.test", "www.a.test"]
    frontier.check()


def test_many_blocks_that_expire_at_once_release_their_hosts(frontier: World) -> None:
    names = [f"h{n}.test" for n in range(FEW + 5)]
    frontier.add(*(f"https://{name}/" for name in names), "https://kept.test/")
    block([*names, "kept.test"], using=frontier.using)
    list(walk(frontier.using))
    assert all(host.blocked for host in frontier.hosts().values())
    past = timezone.now() - timedelta(1)
    DomainBlock.objects.using(frontier.using).filter(domain__in=names).update(expires_at=past)
    lift_expired(frontier.using)
    assert [name for name, host in frontier.hosts().items() if host.blocked] == ["kept.test"]
    assert sorted(visit.name for visit in frontier.visit()) == sorted(names)


def test_an_expired_block_that_is_added_again_holds_again(frontier: World) -> None:
    frontier.add("https://a.test/")
    block(["a.test"], "old", timezone.now() - timedelta(1), frontier.using)
    assert not frontier.host("a.test").blocked
    assert block(["a.test"], "new", using=frontier.using) == (1, 0)
    assert frontier.host("a.test").blocked
    assert in_force(frontier.using).covers("a.test")
    assert DomainBlock.objects.using(frontier.using).get().reason == "new"


def test_blocking_twice_adds_nothing_and_changes_nothing(frontier: World) -> None:
    until = timezone.now() + timedelta(1)
    assert block(["a.test", "b.test", "a.test"], "first", until, frontier.using) == (2, 0)
    assert block(["a.test", "c.test"], "second", None, frontier.using) == (1, 1)
    changes = BlockChange.objects.using(frontier.using).count()
    assert block(["a.test", "b.test"], "third", None, frontier.using) == (0, 2)
    assert BlockChange.objects.using(frontier.using).count() == changes
    kept = DomainBlock.objects.using(frontier.using).get(domain="a.test")
    assert (kept.reason, kept.expires_at) == ("first", until)


def test_many_blocks_leave_the_marks_to_a_walk_that_goes_on_after_a_kill(frontier: World, monkeypatch) -> None:
    monkeypatch.setattr("frontier.blocking.HOSTS", 3)
    names = [f"h{n}.test" for n in range(10)]
    frontier.add(*(f"https://{name}/" for name in names))
    block([*names[::2], *(f"other{n}.test" for n in range(FEW))], using=frontier.using)
    assert not any(host.blocked for host in frontier.hosts().values())
    assert list(walk(frontier.using, 2)) == [3, 3]
    assert list(walk(frontier.using)) == [3, 1]
    assert sorted(name for name, host in frontier.hosts().items() if host.blocked) == names[::2]
    assert list(walk(frontier.using)) == []
    assert unblock([*names[:4], *(f"other{n}.test" for n in range(FEW))], frontier.using) == 2 + FEW
    assert sum(walk(frontier.using)) == 10
    assert sorted(name for name, host in frontier.hosts().items() if host.blocked) == names[4::2]
    frontier.check()


def test_a_host_that_a_visit_parks_after_its_block_was_lifted_is_released_by_the_sweep(frontier: World) -> None:
    frontier.add("https://a.test/")
    [visit] = frontier.visit()
    block(["a.test"], using=frontier.using)
    unblock(["a.test"], frontier.using)
    frontier.leave(visit, rows=[], parked=True, reason="blocked")
    frontier.now += GAP_MS
    assert frontier.visit() == []
    sweep_marks(frontier.using)
    assert [visit.name for visit in frontier.visit()] == ["a.test"]


def test_a_block_keeps_its_domain(frontier: World) -> None:
    made = DomainBlock.objects.using(frontier.using).create(domain="a.test")
    made.domain = "b.test"
    with pytest.raises(ValueError, match=r"a\.test cannot become one of b\.test"):
        made.save()
    made.refresh_from_db()
    assert made.domain == "a.test"


def test_a_block_that_is_not_stored_leaves_no_trace(frontier: World, monkeypatch) -> None:
    frontier.add("https://a.test/")
    die(monkeypatch, blocking, "_bring_in_line")
    with pytest.raises(Killed):
        DomainBlock.objects.using(frontier.using).create(domain="a.test")
    assert not DomainBlock.objects.using(frontier.using).exists()
    assert not BlockChange.objects.using(frontier.using).exists()
    assert not in_force(frontier.using).covers("a.test")


def test_a_name_with_an_underscore_is_no_pattern(frontier: World) -> None:
    frontier.add("https://x.a_b.test/", "https://x.acb.test/")
    block(["a_b.test"], using=frontier.using)
    assert [name for name, host in frontier.hosts().items() if host.blocked] == ["x.a_b.test"]


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("Bücher.Example", "xn--bcher-kva.example"),
        ("*.tracker.example.", "tracker.example"),
        ("2001:DB8::1", "[2001:db8::1]"),
        ("127.1", "127.0.0.1"),
        ("a.test:8080", "a.test"),
    ],
)
def test_the_admin_stores_the_canonical_name(written: str, stored: str) -> None:
    typed = DomainBlock(domain=written)
    typed.clean()
    assert typed.domain == stored


@pytest.mark.parametrize("written", ["", "https://a.test/", "a..b", "a b", "a.test/x", "x" * 64 + ".test"])
def test_what_is_no_domain_is_refused(written: str) -> None:
    with pytest.raises(ValidationError, match="not a domain"):
        DomainBlock(domain=written).clean()


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
    assert frontier.visit() == []
