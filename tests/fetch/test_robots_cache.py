"""How long the rules of an origin hold, and what is kept of them in memory."""

import pytest

from crawl.fetch.robots import ROBOTS_STALE_SECONDS, ROBOTS_UNREACHABLE_SECONDS, Robots
from crawl.fetch.robots_cache import RETIRE_SECONDS, RobotsCache, lifetime_seconds

RULES = Robots.from_status(404, b"", "trawl")
HOUR, DAY = 3600, 86_400


class Time:
    """A clock that a test moves."""

    now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Time:
    clock = Time()
    monkeypatch.setattr("crawl.fetch.robots_cache.time", clock)
    return clock


@pytest.fixture
def cache() -> RobotsCache:
    return RobotsCache()


def test_the_rules_of_a_host_that_nobody_visits_are_retired_after_an_hour(cache: RobotsCache, clock: Time) -> None:
    for origin in ("https://visited.test", "https://left.test"):
        cache.keep(origin, RULES, clock.now + DAY)
    for _ in range(3):
        clock.now += RETIRE_SECONDS / 2
        assert cache.get("https://visited.test") is RULES
        cache.retire()
    assert cache.knows("https://visited.test")
    assert not cache.knows("https://left.test")


def test_rules_that_have_expired_are_not_used(cache: RobotsCache, clock: Time) -> None:
    cache.keep("https://a.test", RULES, clock.now + 10)
    clock.now += 11
    assert cache.get("https://a.test") is None


def test_expired_rules_hold_on_while_newer_ones_cannot_be_had(cache: RobotsCache, clock: Time) -> None:
    cache.keep("https://a.test", RULES, clock.now + 10)
    asked_after = []
    for _ in range(4):
        clock.now += 11
        while cache.get("https://a.test"):
            clock.now += 30
        began = clock.now
        assert cache.go_on_with_old("https://a.test")
        while cache.get("https://a.test"):
            clock.now += 30
        asked_after.append(clock.now - began)
    assert asked_after[0] >= ROBOTS_UNREACHABLE_SECONDS
    assert asked_after[2] >= 1.5 * asked_after[1] or asked_after[2] >= HOUR
    assert max(asked_after) <= 1.25 * HOUR + 30


def test_rules_of_more_than_thirty_days_are_not_used_any_more(cache: RobotsCache, clock: Time) -> None:
    cache.keep("https://a.test", RULES, clock.now + 10)
    clock.now += ROBOTS_STALE_SECONDS + 1
    assert not cache.go_on_with_old("https://a.test")
    assert not cache.go_on_with_old("https://unknown.test")
    assert cache.get("https://a.test") is None


def test_rules_from_the_database_are_as_old_as_they_were(cache: RobotsCache, clock: Time) -> None:
    cache.keep("https://a.test", RULES, clock.now - DAY, clock.now - ROBOTS_STALE_SECONDS + 5)
    assert cache.get("https://a.test") is None
    assert cache.go_on_with_old("https://a.test")
    clock.now += 10_000
    assert not cache.go_on_with_old("https://a.test")


def test_no_more_rules_are_kept_than_fit(cache: RobotsCache, clock: Time, monkeypatch) -> None:
    monkeypatch.setattr("crawl.fetch.robots_cache.MAX_ROBOTS_KEPT", 3)
    for number in range(10):
        cache.keep(f"https://h{number}.test", RULES, clock.now + 10)
    assert [n for n in range(10) if cache.knows(f"https://h{n}.test")] == [7, 8, 9]


@pytest.mark.parametrize(
    ("cache_control", "crawl_delay", "seconds"),
    [
        ("", 0, DAY),
        ("max-age=7200", 0, 2 * HOUR),
        ('public, Max-Age="7200", must-revalidate', 0, 2 * HOUR),
        ("max-age=0", 0, HOUR),
        ("no-store", 0, HOUR),
        ("max-age=99999999999999999999", 0, DAY),
        ("max-age=soon", 0, DAY),
        ("max-age=-5", 0, DAY),
        ("max-age=7200", 90_000, 180_000),
    ],
)
def test_a_robots_txt_holds_for_an_hour_to_a_day(cache_control: str, crawl_delay: float, seconds: float) -> None:
    assert lifetime_seconds(cache_control, crawl_delay) == seconds
