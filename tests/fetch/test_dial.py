"""Which addresses of a name are dialled, in which order, and what follows when none answers."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawl.fetch import dial
from crawl.fetch.dial import MAX_DIALLED, BadAddresses
from crawl.fetch.errors import Kind
from crawl.fetch.resolver import Done, Resolved
from tests.faults.visiting import VisitingEngine, visiting
from tests.scripted import page, scripted


class Names:
    """A resolver that is told what to say, one answer after another, the last of them again and again."""

    def __init__(self, *answers: Resolved) -> None:
        self.answers = list(answers)

    def resolve(self, name: str, done: Done) -> None:
        done(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    def close(self) -> None:
        pass


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[VisitingEngine]:
    with visiting(tmp_path) as one:
        yield one


def lead(engine: VisitingEngine, *answers: Resolved | list[str]) -> None:
    """Sets what all names lead to."""
    engine.resolver.close()
    engine.resolver = Names(*(one if isinstance(one, Resolved) else Resolved(one) for one in answers))  # type: ignore[assignment]


def fetched(engine: VisitingEngine, port: int, *paths: str) -> list[tuple[str, Kind | None]]:
    """Visits a.test; the address and error of each page."""
    engine.begin(f"http://a.test:{port}{path}" for path in paths or ("/",))
    engine.kept.wait(1)
    records = engine.records_of(f"a.test:{port}")
    return [(one.outcome.response.address if one.outcome.response else "", one.outcome.error) for one in records]


def test_the_next_address_is_dialled_when_one_is_dead_and_is_dialled_first_from_then_on(
    engine: VisitingEngine,
) -> None:
    with scripted({"/": page(), "/2": page()}) as site:
        lead(engine, ["127.0.0.2", "127.0.0.1"])
        assert fetched(engine, site.port, "/", "/2") == [("127.0.0.1", None)] * 2
        assert engine.bad_addresses.last(["127.0.0.2", "127.0.0.1"], site.port) == ["127.0.0.1", "127.0.0.2"]
        assert engine.bad_addresses.last(["127.0.0.2", "127.0.0.1"], 1) == ["127.0.0.2", "127.0.0.1"], "another port"


def test_an_address_that_is_not_permitted_is_left_out(engine: VisitingEngine) -> None:
    with scripted({"/": page()}) as site:
        lead(engine, ["10.0.0.1", "169.254.169.254", "127.0.0.1"])
        assert fetched(engine, site.port) == [("127.0.0.1", None)]


def test_none_that_is_permitted(engine: VisitingEngine) -> None:
    lead(engine, ["10.0.0.1", "169.254.169.254"])
    engine.begin(["http://a.test/"])
    engine.kept.wait(1)
    [ended] = engine.kept.ended
    assert ended.release.parked
    assert ended.release.reason.startswith("blocked-address: 10.0.0.1 is not a public address")


def test_a_name_that_changes_to_a_forbidden_address_between_two_requests_is_not_followed(
    engine: VisitingEngine,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as forbidden, scripted({"/": page()}) as site:
        lead(engine, ["127.0.0.1"], ["10.0.0.1"])  # robots.txt, then the page
        engine.begin([f"http://a.test:{site.port}/"])
        engine.kept.wait(1)
        assert [asked.path for asked in site.asked] == ["/robots.txt"]
        forbidden.settimeout(0.1)
        with pytest.raises(TimeoutError):
            forbidden.accept()


def test_a_few_addresses_are_dialled_and_not_all_of_a_long_list(engine: VisitingEngine) -> None:
    with scripted({"/": page()}) as site:
        lead(engine, [f"127.0.0.{number}" for number in range(2, 2 + MAX_DIALLED)] + ["127.0.0.1"])
        engine.begin([f"http://a.test:{site.port}/"])
        engine.kept.wait(1)
        assert not site.asked
        assert "connect" in engine.kept.ended[0].release.reason


def test_a_name_without_address_says_why(engine: VisitingEngine) -> None:
    lead(engine, Resolved([], "the name has no address"))
    engine.begin(["http://a.test/"])
    engine.kept.wait(1)
    [ended] = engine.kept.ended
    assert ended.release.reason.startswith("dns: the name has no address")
    assert ended.release.failures == 1


def test_where_no_name_server_answers_the_host_waits_and_is_not_blamed(engine: VisitingEngine) -> None:
    lead(engine, Resolved([], "no name server answers", deaf=True))
    began = time.time()
    engine.begin(["http://a.test/"], failures=1)
    engine.kept.wait(1)
    release = engine.kept.ended[0].release
    assert (release.failures, release.parked, release.reason) == (1, False, "no name server answers")
    assert release.due_at >= (began + dial.DEAF_SECONDS) * 1000


def test_bad_addresses_are_forgotten_in_time_and_the_oldest_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dial, "MAX_BAD", 2)
    bad = BadAddresses()
    for number in range(3):
        bad.add(f"127.0.0.{number}", 80)
    everything = ["127.0.0.0", "127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert bad.last(everything, 80) == ["127.0.0.0", "127.0.0.3", "127.0.0.1", "127.0.0.2"]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + dial.BAD_SECONDS + 1)
    assert bad.last(everything, 80) == everything
