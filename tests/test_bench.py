"""The benches of the frontier at a small size: that they measure what they say, never how fast.

Those on PostgreSQL need TRAWL_TEST_DATABASE_URL, a server on which databases may be made.
"""

import json
import os
import re
import subprocess
import sys
from array import array
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench import machine, report
from bench.design import Visit
from bench.fleet import deal
from bench.plot import plot
from bench.rates import WINDOWS, Sample, rates
from bench.stream import KINDS, Page, PipedStream, Stream, fingerprint, parsed
from bench.visits import Ledger
from frontier.urls import canonicalise

ROOT = Path(__file__).parent.parent
SERVER = os.environ.get("TRAWL_TEST_DATABASE_URL", "")
needs_server = pytest.mark.skipif(not SERVER, reason="PostgreSQL is not tested: TRAWL_TEST_DATABASE_URL is not set")
URLS, HOSTS = 3000, 300
MILLION = 1_000_000


# --- streams --------------------------------------------------------------------------------------


def pages(kind: str) -> tuple[Stream, list[Page]]:
    stream = Stream(kind, URLS, HOSTS)
    return stream, list(stream.pages())


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_counts_what_it_gives(kind: str) -> None:
    stream, given = pages(kind)
    urls = [url for page in given for _, url in page]
    assert stream.totals.offered == len(urls)
    assert stream.totals.distinct == len(set(urls))
    assert URLS <= stream.totals.distinct < URLS + 101
    assert stream.totals.hosts == len({url.split("/")[2] for url in urls}) == HOSTS
    assert stream.totals.digest == sum(map(fingerprint, set(urls))) % (1 << 64)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_the_same_every_time_and_through_a_pipe(kind: str) -> None:
    stream, given = pages(kind)
    got: list[Page] = []
    with PipedStream(kind, URLS, HOSTS) as piped:
        for batch in piped.batches(7):
            got += batch
            assert piped.distinct == len({url for page in got for _, url in page})
        assert got == given
        assert piped.totals == stream.totals


@pytest.mark.parametrize("kind", KINDS)
def test_the_urls_of_a_stream_are_canonical_and_have_one_level_each(kind: str) -> None:
    links = {link for page in pages(kind)[1] for link in page}
    assert len(links) == len({url for _, url in links})
    assert all(0 <= level < 15 for level, _ in links)
    for _, url in links:
        assert canonicalise(url) == (url, url, url.split("/")[2])


def test_sequential_counts_through_the_hosts() -> None:
    first = pages("sequential")[1][0]
    assert first[:2] == [(0, "https://h0.example/page/0"), (0, "https://h1.example/page/1")]


def test_a_stream_is_dealt_out_whole(tmp_path: Path) -> None:
    files = [tmp_path / "even", tmp_path / "odd"]
    totals = deal(Stream("crawl", URLS, HOSTS), files)
    stream, given = pages("crawl")
    dealt = [[parsed(line) for line in file.read_text().splitlines(keepends=True)] for file in files]
    assert dealt == [list(islice(given, start, None, 2)) for start in (0, 1)]
    assert totals == stream.totals


# --- reckoning ------------------------------------------------------------------------------------


def grown(*, slower_after: int, urls: int) -> list[Sample]:
    """A sample every 100,000 URLs: two links for each, 10 us a link, and 20 us after so many URLs."""
    samples = [Sample(0, 0, 0.0)]
    for distinct in range(100_000, urls + 1, 100_000):
        each = 20e-6 if distinct > slower_after else 10e-6
        samples.append(Sample(2 * distinct, distinct, samples[-1].seconds + 200_000 * each))
    return samples


def test_rates_are_told_between_the_marks() -> None:
    told = rates(grown(slower_after=5 * MILLION, urls=12 * MILLION))
    assert [each["to"] for each in told["stretches"]] == [MILLION, 2 * MILLION, 5 * MILLION, 10 * MILLION, 12 * MILLION]
    offered = [each["offered_per_s"] for each in told["stretches"]]
    assert offered == pytest.approx([100_000, 100_000, 100_000, 50_000, 50_000])
    assert [each["new_per_s"] for each in told["stretches"]] == pytest.approx([rate / 2 for rate in offered])
    assert told["last_5m_rate"] == pytest.approx(0.5)
    assert told["second_half_rate"] == pytest.approx(7 / 12)  # 140 s, then 240 s


def test_windows_share_the_size_evenly() -> None:
    told = rates(grown(slower_after=MILLION, urls=2 * MILLION))["windows"]
    assert [each["to"] for each in told] == [2 * MILLION * (i + 1) // WINDOWS for i in range(WINDOWS)]
    assert [each["offered_per_s"] for each in told] == pytest.approx([100_000] * 20 + [50_000] * 20)


def test_a_short_growth_has_one_stretch_and_no_decay() -> None:
    told = rates([Sample(0, 0, 0.0), Sample(300, 200, 2.0)])
    assert told["stretches"] == [{"to": 200, "offered_per_s": 150, "new_per_s": 100}]
    assert "second_half_rate" not in told
    assert "last_5m_rate" not in told


def ledger(*urls: str) -> Ledger:
    made = Ledger()
    made.add([Visit(1, 1, 0, url) for url in urls])
    return made


def test_a_ledger_tells_a_url_that_came_twice_and_one_that_did_not_come(tmp_path: Path) -> None:
    digest = (fingerprint("a") + fingerprint("b")) % (1 << 64)
    assert ledger("b", "a").holds(2, digest)
    assert not ledger("a", "a").holds(2, digest)
    assert not ledger("a").holds(2, digest)
    assert not ledger("a", "c").holds(2, digest)
    assert (ledger("a", "b").repeats(), ledger("a", "b", "a").repeats()) == (0, 1)
    ledger("a").save(tmp_path / "given")
    later = ledger("b")
    later.load(tmp_path / "given")
    assert later.holds(2, digest)
    assert (tmp_path / "given").stat().st_size == array("Q").itemsize


def test_the_machine_is_named() -> None:
    told = machine.machine()
    assert all(told.values())
    assert "postgresql" not in told
    assert machine.line(told).endswith(f"SQLite {told['sqlite']}")
    assert machine.line(told | {"postgresql": "15.1"}).endswith("PostgreSQL 15.1")


# --- frontier -------------------------------------------------------------------------------------


def bench(name: str, *words: str, scratch: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a bench; what the user crawls into must stay untouched, however it was named."""
    users = scratch / "data-of-the-user"
    command = [sys.executable, f"bench/{name}.py", *words, "--data", str(scratch / "bench")]
    environment = os.environ | {"TRAWL_DATA": str(users), "DATABASE_URL": f"sqlite:///{users}/trawl.sqlite3"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == code, done.stderr
    assert not users.exists()
    assert not list((scratch / "bench").glob("*"))
    return done


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=needs_server)])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    scratch = tmp_path_factory.mktemp("bench")
    words = ["--urls", str(URLS), "--hosts", str(HOSTS), "--vs-reference", "--rounds", "1", "--drain", "--json"]
    if request.param == "postgresql":
        words += ["--database", SERVER]
    done = bench("frontier", *words, "--plot", str(scratch / "rate.png"), scratch=scratch)
    assert "round 1 of 1, trawl" in done.stderr
    assert (scratch / "rate.png").read_bytes().startswith(b"\x89PNG")
    summary: dict[str, Any] = json.loads(done.stdout)
    assert ("postgresql" in summary["machine"]) == (request.param == "postgresql")
    return summary


def test_every_design_holds_exactly_the_urls_of_the_stream(told: dict[str, Any]) -> None:
    totals = pages("crawl")[0].totals
    assert told["exact"] is True
    assert (told["offered"], told["urls"], told["hosts"]) == totals[:3]
    unindexed = set() if "postgresql" in told["machine"] else {"reference without index"}
    assert set(told["designs"]) == {"trawl", "reference"} | unindexed
    for design in told["designs"].values():
        (measured,) = design["rounds"]
        assert (measured["urls"], measured["hosts"]) == (totals.distinct, totals.hosts)


def test_a_claim_gives_one_url_of_every_host_that_is_due(told: dict[str, Any]) -> None:
    # The gap of a second outlasts the claims, so no host comes twice.
    assert {design["rounds"][0]["visited"] for design in told["designs"].values()} == {HOSTS}


def test_a_batch_claim_gives_more_than_one_url_of_a_host(told: dict[str, Any]) -> None:
    for name, design in told["designs"].items():
        (measured,) = design["rounds"]
        assert ("batch_visited" in measured) == (name != "reference without index")
        assert measured.get("batch_visited", HOSTS + 1) > HOSTS


def test_a_drain_brings_every_url_out_once(told: dict[str, Any]) -> None:
    for design in told["designs"].values():
        (measured,) = design["rounds"]
        assert (measured["drain_exact"], measured["given_twice"]) == (True, 0)


def test_every_measure_has_a_median_and_a_ratio_to_each_reference(told: dict[str, Any]) -> None:
    ours = set(told["designs"]["trawl"]["median"])
    assert ours == {column.key for column in report.COLUMNS} - {"second_half_rate", "last_5m_rate"}
    for name, ratios in told["ratios"].items():
        theirs = told["designs"][name]["median"]
        assert all(value > 0 for key, value in theirs.items() if key not in ("bytes_written_per_url", "merge_share"))
        assert ratios["offered_per_s"] == pytest.approx(
            told["designs"]["trawl"]["median"]["offered_per_s"] / theirs["offered_per_s"]
        )


def test_the_rates_by_size_end_at_the_size(told: dict[str, Any]) -> None:
    for design in told["designs"].values():
        assert design["stretches"][-1]["to"] == design["windows"][-1]["to"] == told["urls"]


def test_the_tables_have_a_row_for_every_measure(told: dict[str, Any]) -> None:
    whole, by_size = report.table(told), report.table_by_size(told)
    assert whole.row_count == len(told["designs"]["trawl"]["median"])
    assert by_size.row_count == 1
    columns = 1 + len(told["designs"]) + len(told["ratios"])
    assert len(whole.columns) == len(by_size.columns) == columns


@needs_server
def test_the_scratch_database_is_dropped_when_a_design_fails(tmp_path: Path) -> None:
    words = ["--urls", "10", "--rounds", "1", "--database", SERVER, "--hosts", str(10**30)]  # no such array
    done = bench("frontier", *words, scratch=tmp_path, code=1)
    assert "ended with 1" in done.stderr.splitlines()[-1]
    made = re.findall(r"/(trawl_bench_\d+) ", done.stderr)
    with psycopg.connect(SERVER) as connection:
        left = connection.execute("SELECT 1 FROM pg_database WHERE datname = ANY(%s)", [made]).fetchall()
    assert made
    assert not left


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--urls", "0"], "must be positive"),
        (["--database", "mysql://h/d"], "postgres://"),
        (["--plot", "/no/such/folder/rate.png"], "/no/such/folder"),
    ],
)
def test_wrong_words_are_told_before_anything_runs(tmp_path: Path, words: list[str], said: str) -> None:
    done = bench("frontier", *words, scratch=tmp_path, code=2)
    assert said in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["frontier", "fleet"])
def test_a_server_that_is_not_there_is_one_line(tmp_path: Path, name: str) -> None:
    words = ["--urls", "100", "--rounds", "1", "--database", "postgres://root@127.0.0.1:1/x"]
    last = bench(name, *words, scratch=tmp_path, code=1).stderr.splitlines()[-1]
    assert last.startswith(f"trawl bench {name}: cannot use the PostgreSQL server")


def test_a_line_that_ends_near_another_keeps_a_name_of_its_own(tmp_path: Path) -> None:
    windows = [{"to": 50, "offered_per_s": 10.0}, {"to": 100, "offered_per_s": 20.0}]
    on = machine.machine()
    told = {"stream": "crawl", "offered": 200, "urls": 100, "hosts": 1, "rounds": 2, "machine": on}
    plot(told | {"designs": {name: {"windows": windows} for name in "abc"}}, tmp_path / "rate.png")
    assert (tmp_path / "rate.png").stat().st_size > 10_000


# --- fleet ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=needs_server)])
def test_two_workers_and_a_merger_hold_exactly_the_urls(tmp_path: Path, database: str) -> None:
    words = ["--urls", str(URLS), "--hosts", str(HOSTS), "--rounds", "1", "--json"]
    if database == "postgresql":
        words += ["--database", SERVER]
    told = json.loads(bench("fleet", *words, scratch=tmp_path).stdout)
    totals = pages("crawl")[0].totals
    assert told["exact"] is True
    assert (told["offered"], told["urls"], told["hosts"]) == totals[:3]
    (measured,) = told["each"]
    assert measured["offered_per_s"] == pytest.approx(totals.offered / measured["wall_s"])
    assert measured["merges"] >= 1
    assert 0 <= measured["inbox_age_median_s"] <= measured["inbox_age_max_s"]


# --- seen set -------------------------------------------------------------------------------------


def test_the_choices_for_the_seen_set_are_measured(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    words = ["--urls", str(URLS), "--rounds", "1", "--choices", "cache,cuckoo", "--data", str(tmp_path / "bench")]
    command = [sys.executable, "-m", "bench.seen", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    for (measured,) in json.loads(done.stdout.splitlines()[-1])["rounds"].values():
        assert measured["offered_per_s"] > 0
        assert 0 < measured["written"] <= 100
    assert "links offered, a second" in done.stdout
    assert not list((tmp_path / "bench").glob("*"))
