"""bench/frontier.py at a small size: that it measures what it says, never how fast."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.stream import KINDS, Page, PipedStream, Stream
from frontier.sql import sqlite
from frontier.urls import canonicalise

ROOT = Path(__file__).parent.parent
URLS, HOSTS = 3000, 300


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_the_same_every_time_and_through_a_pipe(kind: str) -> None:
    stream, given = pages(kind)
    with PipedStream(kind, URLS, HOSTS) as piped:
        assert [page for batch in piped.batches(7) for page in batch] == given
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


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    scratch = tmp_path_factory.mktemp("bench")
    users = scratch / "data-of-the-user"
    command = [sys.executable, "bench/frontier.py", "--urls", str(URLS), "--hosts", str(HOSTS)]
    command += ["--vs-reference", "--rounds", "1", "--json", "--data", str(scratch / "bench")]
    # What the user crawls into must stay untouched, however it was named.
    environment = os.environ | {"TRAWL_DATA": str(users), "DATABASE_URL": f"sqlite:///{users}/trawl.sqlite3"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "round 1 of 1, trawl" in done.stderr
    assert not users.exists()
    assert not list((scratch / "bench").iterdir())
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def test_every_design_holds_exactly_the_urls_of_the_stream(told: dict[str, Any]) -> None:
    totals = pages("crawl")[0].totals
    assert told["exact"] is True
    assert (told["offered"], told["urls"], told["hosts"]) == tuple(totals)
    assert set(told["designs"]) == {"trawl", "reference", "reference without index"}
    for design in told["designs"].values():
        (measured,) = design["rounds"]
        assert (measured["urls"], measured["hosts"]) == (totals.distinct, totals.hosts)


def test_a_claim_gives_one_url_of_every_host_that_is_due(told: dict[str, Any]) -> None:
    # The gap of a second outlasts the claims, so no host comes twice.
    assert [design["rounds"][0]["visited"] for design in told["designs"].values()] == [HOSTS] * 3


def test_every_measure_has_a_median_and_a_ratio_to_each_reference(told: dict[str, Any]) -> None:
    ours = set(told["designs"]["trawl"]["median"])
    assert {"offered_per_s", "new_per_s", "claims_per_s", "completes_per_s", "bytes_per_url", "rss_mb"} <= ours
    for name, ratios in told["ratios"].items():
        theirs = told["designs"][name]["median"]
        assert all(value > 0 for key, value in theirs.items() if key != "bytes_written_per_url")
        assert ratios["offered_per_s"] == pytest.approx(
            told["designs"]["trawl"]["median"]["offered_per_s"] / theirs["offered_per_s"]
        )


class QmarkCursor:
    """A plain SQLite cursor behind Django's placeholders."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.execute("CREATE TABLE frontier_queuedurl(id INTEGER PRIMARY KEY, depth INTEGER, ref TEXT)")

    def execute(self, sql: str, params: list[Any]) -> None:
        self.db.execute(sql.replace("%s", "?"), params)


@pytest.mark.parametrize("more", [-1, 0, 1, 10_000])
def test_urls_beyond_one_statement_are_stored_like_the_others(more: int) -> None:
    count = sqlite.ROWS_PER_INSERT + more
    ids, depths = [(7 << 32) + 3 * i for i in range(count)], [i % 300 for i in range(count)]
    refs = [f'/p/{i}?q="\\{i}\\"&é' for i in range(count)]
    cursor = QmarkCursor()
    sqlite.insert_urls(cursor, ids, depths, refs)
    stored = cursor.db.execute("SELECT id, depth, ref FROM frontier_queuedurl ORDER BY id").fetchall()
    assert stored == list(zip(ids, depths, refs, strict=True))


def test_one_statement_stays_under_the_parameters_that_sqlite_allows() -> None:
    assert 3 * sqlite.ROWS_PER_INSERT <= 32_766
