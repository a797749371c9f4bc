"""Claims and completes under measurement, and the proof that no URL was given twice."""

import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from bench.design import Design, Visit
from bench.stream import fingerprint

CLAIMS, CLAIM_HOSTS = 60, 512
BATCH_CLAIM_HOSTS, BATCH_PER_HOST = 64, 8
# Visits in one transaction, and how many such transactions are measured.
LARGE_COMPLETE, LARGE_COMPLETES = 4096, 8
DRAIN_PER_HOST = 8


class Clock:
    """Adds up wall time and CPU time of the calls under measurement, and keeps the wall time of each."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self.laps: list[float] = []

    def __enter__(self) -> None:
        self._wall, self._cpu = perf_counter(), process_time()

    def __exit__(self, *_: object) -> None:
        self.laps.append(perf_counter() - self._wall)
        self.wall += self.laps[-1]
        self.cpu += process_time() - self._cpu

    def percentile_ms(self, percent: int) -> float:
        """Of the single calls; 0 without any."""
        laps = sorted(self.laps)
        return laps[min(len(laps) * percent // 100, len(laps) - 1)] * 1e3 if laps else 0.0


class Ledger:
    """The fingerprints of all URLs that were given out, 8 bytes each."""

    def __init__(self) -> None:
        self._given = array("Q")

    def add(self, visits: Sequence[Visit]) -> None:
        self._given.extend([fingerprint(visit.url) for visit in visits])

    def __len__(self) -> int:
        return len(self._given)

    def repeats(self) -> int:
        """How many were given more than once. Two URLs of ten million share a fingerprint once in 370,000 runs."""
        return len(self) - len(np.unique(np.array(self._given, np.uint64)))

    def holds(self, distinct: int, digest: int) -> bool:
        """Were exactly these URLs given, each once? `digest` is the sum of their fingerprints modulo 2^64."""
        return len(self) == distinct and not self.repeats() and sum(self._given) % (1 << 64) == digest

    def save(self, path: Path) -> None:
        """For a later process."""
        with path.open("wb") as file:
            self._given.tofile(file)

    def load(self, path: Path) -> None:
        """What an earlier process has given out."""
        self._given.frombytes(path.read_bytes())


def measure_claims(design: Design, ledger: Ledger | None = None) -> dict[str, Any]:
    """Claims and completes in three shapes; the units are in the keys, rates are of URLs.

    Claims of CLAIM_HOSTS hosts with one URL each, every claim completed before the next; the same with
    BATCH_CLAIM_HOSTS hosts and up to BATCH_PER_HOST URLs of each (only of designs that cluster); and
    completes of LARGE_COMPLETE visits that were claimed before. A shape that no URL is left for has no rates.
    """
    ledger = ledger if ledger is not None else Ledger()
    design.scatter()
    measured = _round_trips(design, ledger, CLAIM_HOSTS, 1, "")
    wait_politely()
    if design.clusters:
        measured |= _round_trips(design, ledger, BATCH_CLAIM_HOSTS, BATCH_PER_HOST, "batch_")
        wait_politely()
    measured["completes_4096_per_s"] = _large_completes(design, ledger)
    return measured | {"given_twice": ledger.repeats()}


def wait_politely() -> None:
    """Until every host that was visited is due again."""
    time.sleep(1.1)


def _round_trips(design: Design, ledger: Ledger, hosts: int, per_host: int, prefix: str) -> dict[str, Any]:
    claiming, completing = Clock(), Clock()
    before = len(ledger)
    for _ in range(CLAIMS):
        with claiming:
            visits = design.claim(hosts, per_host)
        if not visits:
            claiming.laps.pop()
            break
        ledger.add(visits)
        with completing:
            design.complete(visits)
    visited = len(ledger) - before
    if not visited:
        return {f"{prefix}visited": 0}
    return {
        f"{prefix}visited": visited,
        f"{prefix}claims_per_s": visited / sum(claiming.laps),
        f"{prefix}claim_p50_ms": claiming.percentile_ms(50),
        f"{prefix}claim_p99_ms": claiming.percentile_ms(99),
        f"{prefix}completes_per_s": visited / completing.wall,
        f"{prefix}round_trips_per_s": visited / (sum(claiming.laps) + completing.wall),
    }


def _large_completes(design: Design, ledger: Ledger) -> float | None:
    completing = Clock()
    before = len(ledger)
    for _ in range(LARGE_COMPLETES):
        visits: list[Visit] = []
        while len(visits) < LARGE_COMPLETE and (more := design.claim(CLAIM_HOSTS)):
            visits += more
        if not visits:
            break
        ledger.add(visits)
        with completing:
            design.complete(visits)
    return (len(ledger) - before) / completing.wall if completing.laps else None


def drain(design: Design, ledger: Ledger, say: Any) -> dict[str, float]:
    """Claims and completes everything that waits; `say` takes a text. The design's `polite_ms` must be 0."""
    claiming, completing = Clock(), Clock()
    before = len(ledger)
    while True:
        with claiming:
            visits = design.claim(CLAIM_HOSTS, DRAIN_PER_HOST)
        if not visits:
            break
        with completing:
            design.complete(visits)
        ledger.add(visits)
        given, spent = len(ledger) - before, claiming.wall + completing.wall
        say(f"{given:,} URLs drained, {given / spent:,.0f}/s")
    given = len(ledger) - before
    return {
        "drained": given,
        "drain_per_s": given / (claiming.wall + completing.wall),
        "drain_claims_per_s": given / claiming.wall,
        "drain_completes_per_s": given / max(completing.wall, 1e-9),
    }
