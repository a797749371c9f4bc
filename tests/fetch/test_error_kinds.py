"""The closed list of kinds: each has one rule, docs/errors.md says the same, and each can come about."""

import socket
from collections.abc import Iterator

import pytest

from crawl.fetch import errors
from crawl.fetch.errors import HOST_KINDS, RULES, Kind, Retry, tries_of
from crawl.fetch.failing import MAX_FAILED_FIRST_VISITS
from crawl.fetch.target import Known
from tests.faults.server import FaultServer, serve
from tests.faults.visiting import VisitingEngine, visiting
from tests.rig import ROOT, free_port


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with serve() as server:
        yield server


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VisitingEngine]:
    with visiting(tmp_path_factory.mktemp("data")) as engine:
        yield engine


def recorded(engine: VisitingEngine, url: str, **options: object):
    """What the only record of a visit of one URL says; its host has failed so often before that it is parked."""
    visits = len(engine.kept.ended)
    visit = engine.begin([url], **options)  # type: ignore[arg-type]
    engine.kept.wait(visits + 1)
    return engine.records_of(visit.lease.name)[-1].outcome


def test_every_kind_has_a_rule_and_the_docs_say_the_same() -> None:
    assert list(RULES) == list(Kind)
    assert errors.table() in (ROOT / "docs" / "errors.md").read_text()


def test_only_kinds_of_a_url_or_a_host_are_tried_again() -> None:
    for kind, rule in RULES.items():
        assert bool(rule.tries) == (rule.retry in (Retry.URL, Retry.HOST)), kind


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        (Kind.DNS, "http://no.such.name.invalid/"),
        (Kind.BLOCKED_ADDRESS, "http://10.0.0.1/"),
        (Kind.CONNECT, "http://closed.test:{closed}/"),
        (Kind.TLS, "https://tls.test:{port}/"),
        (Kind.TIMEOUT_CONNECT, "http://full.test:{full}/"),
        (Kind.ROBOTS_UNREACHABLE, "http://robots-503.test:{port}/"),
        (Kind.ROBOTS_UNREACHABLE, "http://robots-hang.test:{port}/"),
        (Kind.ROBOTS_UNREACHABLE, "http://robots-reset.test:{port}/"),
        (Kind.ROBOTS_UNREACHABLE, "http://robots-drip.test:{port}/"),
        (Kind.ROBOTS_UNREACHABLE, "http://robots-interim.test:{port}/"),
        (Kind.ROBOTS_UNREACHABLE, "http://robots-head-cut.test:{port}/"),
        (Kind.ROBOTS_UNREACHABLE, "http://robots-no-body.test:{port}/"),
        (Kind.ROBOTS_DENIED, "http://robots-closed.test:{port}/"),
        (Kind.ROBOTS_DENIED, "http://robots-odd.test:{port}/"),  # read leniently
    ],
)
def test_a_kind_of_a_host(engine: VisitingEngine, server: FaultServer, kind: Kind, url: str) -> None:
    with socket.socket() as full, socket.socket() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting.connect(full.getsockname())  # nobody accepts: the next one gets no answer
        ports = {"port": server.port, "closed": free_port(), "full": full.getsockname()[1]}
        outcome = recorded(engine, url.format(**ports), failures=MAX_FAILED_FIRST_VISITS)
    assert outcome.error is kind
    assert outcome.detail


def test_a_host_that_is_never_reached_is_tried_again_and_then_parked(engine: VisitingEngine) -> None:
    url = f"http://parked.test:{free_port()}/"
    for failures in range(MAX_FAILED_FIRST_VISITS):
        visits = len(engine.kept.ended)
        visit = engine.begin([url], failures=failures)
        engine.kept.wait(visits + 1)
        release = engine.release_of(visit)
        last = failures == MAX_FAILED_FIRST_VISITS - 1
        assert (release.failures, release.parked) == (failures + 1, last)
        assert release.reason.startswith("connect: ")
    assert [record.outcome.error for record in engine.records_of(visit.lease.name)] == [Kind.CONNECT]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("long-length", Kind.TRUNCATED), ("reset", Kind.DISCONNECT), ("500", None), ("garbage", Kind.BAD_HTTP)],
)
def test_a_url_is_tried_again_as_often_as_its_rule_says(
    engine: VisitingEngine, server: FaultServer, name: str, kind: Kind | None
) -> None:
    tried = 0
    for failures in range(5):
        known = Known(1, queued=True, failures=failures)
        outcome = recorded(engine, f"http://{name}{failures}.test:{server.port}/fault/{name}", known=known)
        assert outcome.error is kind
        tried += outcome.retry_at is not None
    assert tried == tries_of(kind)


def test_a_page_that_breaks_the_parser_is_an_internal_error(
    engine: VisitingEngine, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("crawl.fetch.engine.discover", broken)
    outcome = recorded(engine, f"http://internal.test:{server.port}/plain")
    assert (outcome.error, outcome.detail) == (Kind.INTERNAL, "RecursionError: too deep")


def test_a_host_that_is_always_busy_is_recorded_as_overloaded(engine: VisitingEngine, server: FaultServer) -> None:
    outcome = recorded(engine, f"http://busy.test:{server.port}/fault/retry-seconds", failures=2)
    assert (outcome.error, outcome.detail) == (Kind.OVERLOADED, "HTTP 429, asked to wait 2 s")
    assert outcome.retry_at


def test_no_kind_of_a_host_ends_a_url_by_itself() -> None:
    assert Kind.TLS in HOST_KINDS
    assert not HOST_KINDS & errors.TRANSIENT_KINDS
    assert not HOST_KINDS & errors.FINAL_HOST_KINDS
