"""trawl fetch of every odd answer of tests/faults/table.py: each ends with its kind, and without a traceback."""

import time
from collections.abc import Iterator

import pytest

from tests.cli.test_lookup_url import call, records
from tests.faults.server import FaultServer, serve
from tests.faults.table import FAULTS
from tests.faults.visiting import SHORT

LOCAL = ("--allow-network", "127.0.0.1", "--delay", "0")
# Two requests of SHORT.total_seconds each, and what a machine with other work needs to unpack 64 MiB twice.
MOST_SECONDS = 2 * SHORT.total_seconds + 30


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with serve() as server:
        yield server


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawl.fetch.loop.Limits", lambda: SHORT)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_shown_for_what_a_crawl_makes_of_it(server: FaultServer, name: str) -> None:
    fault, since = FAULTS[name], time.monotonic()
    done = call("fetch", f"{server.url}fault/{name}", *LOCAL, "--no-follow", "--json")
    assert time.monotonic() - since < MOST_SECONDS
    (record,) = records(done)
    assert "Traceback" not in done.stderr
    (hop,) = record["hops"]
    if fault.paused:
        assert hop["again"]["why"].startswith(fault.paused)
        assert hop["error"]["kind"] == "overloaded"
    elif not fault.leads_to and fault.kind not in ("redirect-loop", "too-many-redirects"):
        assert (hop["error"] or {}).get("kind") == fault.kind
        assert (hop["status"] or 0) == fault.status
    fetched = (fault.kind is None and fault.status // 100 == 2) and not fault.paused
    assert done.returncode == (0 if fetched else 1)


@pytest.mark.parametrize("name", ["garbage", "two-spaces", "latin1-header", "nul-page", "many-headers", "huge-header"])
def test_people_get_it_in_words_and_nothing_that_steers_a_terminal(server: FaultServer, name: str) -> None:
    done = call("fetch", f"{server.url}fault/{name}", *LOCAL)
    assert done.stdout.replace("\n", "").isprintable()
    assert max(map(len, done.stdout.splitlines())) < 3_000
    assert len(done.stdout.splitlines()) < 150


@pytest.mark.parametrize(
    ("name", "kind", "hops"),
    [("self-redirect", "redirect-loop", 1), ("redirect-pair", "redirect-loop", 2), ("endless-redirect", None, 11)],
)
def test_redirects_end(server: FaultServer, name: str, kind: str | None, hops: int) -> None:
    (record,) = records(call("fetch", f"{server.url}fault/{name}", *LOCAL, "--json"))
    assert record["hops"][-1]["error"]["kind"] == (kind or "too-many-redirects")
    assert len(record["hops"]) == hops
    assert all(hop["redirect"]["crawl"] == "asks next" for hop in record["hops"][:-1])
