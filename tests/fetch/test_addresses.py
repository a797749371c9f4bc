"""Clocks of server addresses: a gap between any two requests, and every host gets its turn."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from crawl.fetch.addresses import KEPT_SECONDS, AddressClocks


def test_a_free_address_is_asked_at_once_and_then_after_the_gap() -> None:
    clocks = AddressClocks()
    assert clocks.ask("192.0.2.1", "a.test", 0.5, 100.0) == 100.0
    assert clocks.ask("192.0.2.1", "b.test", 0.5, 100.1) == 100.5
    assert clocks.ask("192.0.2.2", "c.test", 0.5, 100.1) == 100.1  # another address


def test_hosts_keep_their_places_while_they_are_away() -> None:
    clocks = AddressClocks()
    clocks.ask("192.0.2.1", "a.test", 1.0, 100.0)
    places = {host: clocks.ask("192.0.2.1", host, 1.0, 100.0) for host in ("b.test", "c.test", "d.test")}
    assert places == {"b.test": 101.0, "c.test": 102.0, "d.test": 103.0}
    assert clocks.ask("192.0.2.1", "c.test", 1.0, 101.5) == 102.0  # too early: the same place
    assert clocks.ask("192.0.2.1", "e.test", 1.0, 102.1) == 104.0  # behind those that have one
    assert clocks.ask("192.0.2.1", "b.test", 1.0, 102.2) == 102.2  # late: at once, since the address is free
    assert clocks.ask("192.0.2.1", "c.test", 1.0, 102.3) == 103.2  # but a gap after that


def test_a_place_that_nobody_takes_up_is_lost() -> None:
    clocks = AddressClocks()
    for host in ("a.test", "b.test"):
        clocks.ask("192.0.2.1", host, 1.0, 100.0)
    assert clocks.ask("192.0.2.1", "b.test", 1.0, 102 + KEPT_SECONDS) == 102 + KEPT_SECONDS


def test_what_is_long_over_is_forgotten(monkeypatch) -> None:
    monkeypatch.setattr("crawl.fetch.addresses.MAX_ADDRESSES", 10)
    clocks = AddressClocks()
    for number in range(100):
        clocks.ask(f"192.0.2.{number}", "a.test", 1.0, 100.0 + 20 * number)
    assert len(clocks._sent) <= 11
    for number in range(100):
        clocks.ask(f"198.51.100.{number}", "a.test", 1.0, 5_000.0)
    assert len(clocks._sent) <= 11


@given(
    hosts=st.integers(1, 8),
    gap=st.sampled_from([0.1, 1.0, 7.0]),
    late=st.lists(st.floats(0, 20), min_size=1, max_size=30),
    rounds=st.integers(1, 4),
)
def test_the_gap_is_kept_and_nobody_waits_for_ever(hosts: int, gap: float, late: list[float], rounds: int) -> None:
    """Hosts that ask again whenever they were told to, or later, `rounds` requests each."""
    clocks, sent = AddressClocks(), []
    asking = [(0.0, host, rounds) for host in range(hosts)]
    delays = iter(late * 1000)
    steps = 0
    while asking:
        asking.sort()
        now, host, left = asking.pop(0)
        at = clocks.ask("192.0.2.1", f"h{host}.test", gap, now)
        assert at >= now
        if at > now:
            asking.append((at + next(delays), host, left))
        else:
            sent.append(now)
            if left > 1:
                asking.append((now + next(delays), host, left - 1))
        steps += 1
        assert steps < 60 * hosts * rounds
    assert len(sent) == hosts * rounds
    assert all(b - a >= gap - 1e-9 for a, b in pairwise(sent))
