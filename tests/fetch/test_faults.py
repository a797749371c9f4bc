"""Every odd answer of tests/faults/table.py, through the real engine, one host each, all at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from crawl.fetch.errors import Kind
from crawl.record import Record
from tests.faults.server import serve
from tests.faults.table import FAULTS, Fault
from tests.faults.visiting import visiting


@dataclass
class Seen:
    """What came of one fault."""

    records: list[Record]
    asked: int
    reason: str


def heavy(item: tuple[str, Fault]) -> bool:
    """Whether a fault sends so much that the others would have to wait."""
    _, fault = item
    return (fault.size or 0) > 1_000_000 or fault.kind is Kind.BOMB or fault.leads_to == "/fault/huge"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Seen]]:
    with serve() as server, visiting(tmp_path_factory.mktemp("data")) as engine:
        visits = {}
        # Large bodies are read on the loop's thread and after the others, whose time is short.
        for number, (name, fault) in enumerate(sorted(FAULTS.items(), key=heavy)):
            if heavy((name, fault)):
                engine.kept.wait(number)
            site = f"http://{name}.test:{server.port}"
            urls = [f"{site}/fault/{name}"] + ([f"{site}/plain"] if fault.second is not None else [])
            visits[name] = engine.begin(urls)
        engine.kept.wait(len(FAULTS))
        asked = dict.fromkeys(FAULTS, 0)
        for (host, path), number in server.asked.items():
            if path != "/robots.txt":
                asked[host.removesuffix(".test")] += number
        yield {
            name: Seen(engine.records_of(f"{name}.test:{server.port}"), asked[name], engine.release_of(visit).reason)
            for name, visit in visits.items()
        }


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_recorded_for_what_it_is(seen: dict[str, Seen], name: str) -> None:
    fault, got = FAULTS[name], seen[name]
    if fault.paused:
        assert got.records == []
        assert got.reason.startswith(fault.paused)
        return
    outcome = got.records[
        -1 if fault.kind and fault.second is None else 0
    ].outcome  # a chain of redirects fails at its end
    response = outcome.response
    assert response is not None
    told = (outcome.error, response.status, response.truncated)
    assert told == (fault.kind, fault.status, fault.truncated), outcome.detail
    assert got.asked == fault.asked + (fault.second is not None)
    if fault.size is not None:
        assert len(response.body) == fault.size
    elif fault.body is not None:
        assert response.body == fault.body
    assert (outcome.redirect.canonical.partition(".test")[2].partition("/")[2] if outcome.redirect else "") == (
        fault.leads_to.removeprefix("/")
    )
    assert bool(outcome.detail) == bool(fault.kind)
    if fault.second is not None:
        after = got.records[1].outcome.response
        assert after is not None
        assert after.body == fault.second
