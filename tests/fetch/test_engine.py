"""What an engine keeps in memory of hosts, and for how long."""

from pathlib import Path

import pytest

from crawl.fetch.engine import RETIRE_SECONDS, Engine, Options
from crawl.fetch.robots import Robots

RULES = Robots.from_status(404, b"", "trawl")


class Time:
    """A clock that a test moves."""

    now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Time:
    clock = Time()
    monkeypatch.setattr("crawl.fetch.engine.time", clock)
    return clock


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(Options(tmp_path), lambda hosts, links: None)


def test_the_rules_of_a_host_that_nobody_visits_are_retired_after_an_hour(engine: Engine, clock: Time) -> None:
    for origin in ("https://visited.test", "https://left.test"):
        engine.keep_robots(origin, RULES, clock.now + 86_400)
    for _ in range(3):
        clock.now += RETIRE_SECONDS / 2
        assert engine.robots("https://visited.test") is RULES
        engine._retire()
    assert list(engine._robots) == ["https://visited.test"]


def test_rules_that_have_expired_are_not_used(engine: Engine, clock: Time) -> None:
    engine.keep_robots("https://a.test", RULES, clock.now + 10)
    clock.now += 11
    assert engine.robots("https://a.test") is None


def test_no_more_rules_are_kept_than_fit(engine: Engine, clock: Time, monkeypatch) -> None:
    monkeypatch.setattr("crawl.fetch.engine.MAX_ROBOTS_KEPT", 3)
    for number in range(10):
        engine.keep_robots(f"https://h{number}.test", RULES, clock.now + 10)
    assert list(engine._robots) == ["https://h7.test", "https://h8.test", "https://h9.test"]
