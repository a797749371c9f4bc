"""The benches of the frontier at a small size: that they measure what they say, never how fast.

Those on PostgreSQL need TRAWL_TEST_DATABASE_URL, a server on which databases may be made.
"""

import json
import os
import subprocess
import sys
from array import array
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench import blocks, frontier, machine, report
from bench.arguments import MOST, Parser
from bench.design import Visit
from bench.fleet import deal
from bench.plot import plot
from bench.rates import WINDOWS, Sample, rates
from bench.stream import KINDS, Page, PipedStream, Stream, fingerprint, parsed, url_of
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


# --- arguments ------------------------------------------------------------------------------------

NUMBERS = [
    ("frontier", "--urls"),
    ("frontier", "--hosts"),
    ("frontier", "--rounds"),
    ("frontier", "--reference-cache"),
    ("fleet", "--urls"),
    ("fleet", "--hosts"),
    ("fleet", "--rounds"),
    ("fleet", "--workers"),
    ("seen", "--urls"),
    ("seen", "--rounds"),
    ("blocks", "--domains"),
    ("blocks", "--hosts"),
    ("blocks", "--rounds"),
    ("warc", "--pages"),
]
NO_SERVER = "postgres://root@127.0.0.1:1/x"
WRONG = [
    ("frontier", ["--plot", "/"], "cannot write / (Is a directory); name another file with --plot"),
    ("frontier", ["--plot", "/no/such/folder/x.png"], "cannot write /no/such/folder/x.png"),
    ("frontier", ["--plot", "/proc/x.png"], "cannot write /proc/x.png"),
    ("frontier", ["--database", ""], "--database takes postgres://"),
    ("frontier", ["--database", "mysql://h/d"], "--database takes postgres://"),
    ("frontier", ["--database", "postgres://[::1/x"], "cannot use the PostgreSQL server"),
    ("frontier", ["--database", "postgres://h:port/x"], "cannot use the PostgreSQL server"),
    ("frontier", ["--database", NO_SERVER], "name with --database one that runs"),
    ("frontier", ["--stream", "river"], "invalid choice: 'river'"),
    ("frontier", ["--uris", "5"], "unrecognized arguments"),
    ("fleet", ["--database", "mysql://h/d"], "--database takes postgres://"),
    ("fleet", ["--database", NO_SERVER], "name with --database one that runs"),
    ("fleet", ["--urls", "399", "--workers", "4"], "4 workers have pages for all with --urls 400 or more"),
    ("fleet", ["--workers", "129"], "from 1 to 128"),
    ("seen", ["--choices", "cache,tree"], "--choices takes some of none,cache,redis"),
    ("seen", ["--choices", ""], "--choices takes some of none,cache,redis"),
    ("seen", ["--redis", "http://127.0.0.1"], "--redis takes redis://"),
    ("seen", ["--redis", "redis://127.0.0.1:port/1"], "cannot use the Redis server"),
    ("seen", ["--redis", "redis://127.0.0.1:1/1"], "name one that runs with --redis"),
    ("blocks", ["--domains", "19999"], "from 20,000 to 2,000,000,000"),
    ("warc", ["--rig", "/proc"], "there is no package synthweb in /proc"),
    ("warc", ["--rig", ""], "there is no package synthweb in"),
]


def refused(name: str, *words: str) -> str:
    """What a bench says to arguments that it does not take, in its only line."""
    command = [sys.executable, "-m", f"bench.{name}", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"trawl bench {name}: ")
    return line


@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_a_number_out_of_bounds_is_refused(name: str, option: str) -> None:
    for number in ("0", "1" + "0" * 20, "many"):
        assert f"argument {option}: give a whole number from" in refused(name, option, number)


@pytest.mark.parametrize(("name", "words", "said"), WRONG)
def test_a_wrong_argument_is_refused_in_one_line(name: str, words: list[str], said: str) -> None:
    assert said in refused(name, *words)


@pytest.mark.parametrize("name", ["frontier", "fleet", "seen", "blocks"])
def test_a_folder_that_takes_no_files_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("/proc", "/proc/x", str(tmp_path / "file"), str(tmp_path / "file/x")):
        assert f"cannot make files in {folder} (" in refused(name, "--data", folder)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_picture_is_left_as_it_was_by_the_look_whether_it_can_be_written(tmp_path: Path) -> None:
    old, new = tmp_path / "old.png", tmp_path / "new.png"
    old.write_text("a picture")
    for file in (old, new):
        Parser("frontier", None).check_plot(file)
    assert old.read_text() == "a picture"
    assert not new.exists()


def test_a_picture_that_cannot_be_written_in_the_end_does_not_take_the_figures_with_it(tmp_path: Path) -> None:
    words = ["--urls", "100", "--rounds", "1", "--json", "--plot", "/dev/full"]
    done = bench("frontier", *words, scratch=tmp_path, code=1)
    assert json.loads(done.stdout)["exact"]
    assert done.stderr.splitlines()[-1] == ("trawl bench frontier: cannot write /dev/full (No space left on device)")


def test_as_many_hosts_as_may_be_asked_for_have_names_of_their_own() -> None:
    # Names are told apart by the host modulo each of these, which have no common factor.
    assert MOST < 99_999_989 * 24
    assert url_of(0, 0) != url_of(99_999_989, 0)


def test_the_fewest_domains_are_those_whose_filter_is_kept() -> None:
    from frontier.blocks import CHUNK

    assert blocks.LEAST_DOMAINS == CHUNK


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
def test_the_scratch_database_is_dropped_when_a_design_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []

    def failing(module: str, *words: str) -> dict[str, Any]:
        made.append(words[words.index("--database") + 1].rpartition("/")[2])
        raise subprocess.CalledProcessError(1, [module])

    monkeypatch.setattr(frontier, "run_child", failing)
    monkeypatch.setattr(sys, "argv", ["frontier", "--database", SERVER, "--data", str(tmp_path)])
    assert frontier.main() == 1
    assert capsys.readouterr().err == "trawl bench frontier: bench.measure ended with 1\n"
    with psycopg.connect(SERVER) as connection:
        left = connection.execute("SELECT 1 FROM pg_database WHERE datname = ANY(%s)", [made]).fetchall()
    assert made
    assert not left


def test_a_shape_of_claims_that_no_url_is_left_for_has_no_rates(tmp_path: Path) -> None:
    words = ["--urls", "1", "--stream", "sequential", "--vs-reference", "--rounds", "1", "--json"]
    told = json.loads(bench("frontier", *words, scratch=tmp_path).stdout)
    for design in told["designs"].values():
        assert design["rounds"][0]["visited"] == 1
        assert "claims_per_s" in design["median"]
        assert not {"batch_claims_per_s", "completes_4096_per_s"} & set(design["median"])


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


# --- domain blocks --------------------------------------------------------------------------------


def test_more_hosts_than_blocked_domains_are_measured(tmp_path: Path) -> None:
    words = ["--domains", str(blocks.LEAST_DOMAINS), "--hosts", "20001", "--rounds", "1", "--data", str(tmp_path)]
    command = [sys.executable, "-m", "bench.blocks", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    (measured,) = json.loads(done.stdout.splitlines()[-1])["rounds"]
    assert set(measured) == set(blocks.ROWS)
    assert not list(tmp_path.iterdir())


# --- arrival logs -----------------------------------------------------------------------------------


def test_the_bench_of_arrival_logs_judges_what_it_has_written(tmp_path: Path) -> None:
    words = ["--lines", "3000", "--hosts", "200", "--files", "2", "--json", str(tmp_path / "figures.json")]
    ran = subprocess.run([sys.executable, "-m", "bench.arrivals", *words], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    told = json.loads((tmp_path / "figures.json").read_text())
    assert all(figure > 0 for figure in told["figures"].values())
    assert 100 < told["figures"]["bytes_a_line"] < 200
