"""Every odd answer of tests/faults/table.py, by http and https, through the real engine, one host each, all at once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trustme

from crawl.fetch.authorities import with_added
from crawl.fetch.errors import Kind
from crawl.record import Record
from tests.faults.server import FaultServer, serve
from tests.faults.table import FAULTS, TIME, Fault
from tests.faults.visiting import VisitingEngine, visiting


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


# What differs by https, where no answer here ends with TLS's goodbye: within a head that counts as a reset, and where a
# length was told that libcurl cannot read, as cut off.
RESET = {"kind": Kind.DISCONNECT, "truncated": None}
BY_HTTPS: dict[str, dict[str, Any]] = {
    "huge-length": {"kind": Kind.TRUNCATED, "truncated": "disconnect"},
    "status-line-alone": RESET,
    "header-cut": RESET,
    "head-cut": RESET,
}
# Those that are slow or large are so by https as well, and handshakes would add to their time.
SECURE = {
    name: replace(fault, **BY_HTTPS.get(name, {}))
    for name, fault in FAULTS.items()
    if not heavy((name, fault)) and (name not in TIME or name.startswith("reset"))
}


def look(server: FaultServer, engine: VisitingEngine, faults: Mapping[str, Fault]) -> dict[str, Seen]:
    """Visits every fault."""
    visits = {}
    # Large bodies are read on the loop's thread and after the others, whose time is short.
    for number, (name, fault) in enumerate(sorted(faults.items(), key=heavy)):
        if heavy((name, fault)):
            engine.kept.wait(number)
        site = f"{server.scheme}://{name}.odd.test:{server.port}"
        urls = [f"{site}/fault/{name}"] + ([f"{site}/plain"] if fault.second is not None else [])
        visits[name] = engine.begin(urls)
    engine.kept.wait(len(faults))
    asked = dict.fromkeys(faults, 0)
    for (host, path), number in server.asked.items():
        if path != "/robots.txt":
            asked[host.partition(".")[0]] += number
    return {
        name: Seen(engine.records_of(f"{name}.odd.test:{server.port}"), asked[name], engine.release_of(visit).reason)
        for name, visit in visits.items()
    }


@pytest.fixture(scope="module")
def by_http(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    with serve() as server, visiting(tmp_path_factory.mktemp("data")) as engine:
        return look(server, engine, FAULTS)


@pytest.fixture(scope="module")
def by_https(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    folder, authority = tmp_path_factory.mktemp("data"), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ours.pem"))
    ca_file = with_added(str(folder / "ours.pem"), folder)
    with (
        serve(FaultServer(certificate=authority.issue_cert("*.odd.test"))) as server,
        visiting(folder, ca_file=ca_file) as engine,
    ):
        return look(server, engine, SECURE)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_recorded_for_what_it_is(by_http: dict[str, Seen], name: str) -> None:
    check(FAULTS[name], by_http[name])


@pytest.mark.parametrize("name", SECURE)
def test_a_fault_is_the_same_by_https(by_https: dict[str, Seen], name: str) -> None:
    check(SECURE[name], by_https[name])


def check(fault: Fault, got: Seen) -> None:
    """What was recorded is what the table says."""
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
