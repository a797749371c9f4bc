"""The reference design on SQLite: one row per URL under a 16-byte hash, its state on the row.

How a frontier on an SQL database is usually built, done as well as it allows: new links go to a staging
table and are merged in key order; a bounded exact cache spares the repeats of popular links; claims run over
an index of the waiting rows by host and priority, or, without that index, scan in key order with the
politeness clocks in memory. It has no leases: a restart finds claimed rows by a scan of the table.

It opens SQLite as trawl does (trawl_project/sqlite.py): WAL, synchronous=FULL, the same cache.
"""

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from bench.design import HASH_SEED, POLITE_MS, Link, Visit
from trawl_project.sqlite import MAIN_CACHE_KIB, options

WAITING, CLAIMED, DONE = 0, 1, 2
# Staged rows per merge: at least this many, then a share of the table, since a merge in key order costs a
# page write for nearly every row once the table is much larger than the batch.
MERGE_ROWS, MERGE_SHARE = 100_000, 0.2
CACHE_KEYS = 500_000  # in each of two generations

_SCHEMA = """
CREATE TABLE IF NOT EXISTS staging(id INTEGER PRIMARY KEY, key BLOB, host INTEGER, level INTEGER, url TEXT);
CREATE TABLE IF NOT EXISTS frontier(
    key BLOB PRIMARY KEY, host INTEGER, level INTEGER, state INTEGER, url TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS host(
    id INTEGER PRIMARY KEY, next_at INTEGER NOT NULL DEFAULT 0, active INTEGER NOT NULL DEFAULT 1);
CREATE INDEX IF NOT EXISTS host_due ON host(next_at) WHERE active = 1;
"""
_INDEX = "CREATE INDEX IF NOT EXISTS frontier_waiting ON frontier(host, level) WHERE state = 0"


def host_id(name: str) -> int:
    """A signed 64-bit hash of a host name."""
    return xxh3_64_intdigest(name.encode(), HASH_SEED) - (1 << 63)


class Reference:
    """The reference design with the claim index (A) or without (A0), which finds no two URLs of a host together."""

    link = Link

    def __init__(self, data: Path, indexed: bool, cache_mb: int | None = None) -> None:
        self.clusters = indexed
        self.polite_ms = POLITE_MS
        self.merge_seconds = 0.0
        self._db = sqlite3.connect(data / "reference.sqlite3", isolation_level=None)
        self._db.executescript(options(MAIN_CACHE_KIB)["init_command"])
        if cache_mb:
            self._db.execute(f"PRAGMA cache_size=-{cache_mb * 1024}")
        self._db.executescript(_SCHEMA)
        if indexed:
            self._db.execute(_INDEX)
        self._recent: set[bytes] = set()
        self._older: set[bytes] = set()
        self._staged = self._stored = 0
        self._next_at: dict[int, int] = {}  # without the index: when each host may be asked again
        self._scanned_to = b""

    def resume(self) -> None:
        self._db.execute(f"UPDATE frontier SET state = {WAITING} WHERE state = {CLAIMED}")

    def admit(self, links: Sequence[Link]) -> None:
        recent, older = self._recent, self._older
        hosts: dict[str, int] = {}
        rows = []
        for url, level, _ in links:
            key = xxh3_128_digest(url.canonical.encode(), HASH_SEED)
            if key in recent or key in older:
                continue
            recent.add(key)
            host = hosts.get(url.host)
            if host is None:
                host = hosts[url.host] = host_id(url.host)
            rows.append((key, host, level, url.fetch))
        if len(recent) >= CACHE_KEYS:
            self._older, self._recent = recent, set()
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO staging(key, host, level, url) VALUES (?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")
        self._staged += len(rows)
        if self._staged >= max(MERGE_ROWS, self._stored * MERGE_SHARE):
            self.merge()

    def merge(self) -> None:
        started = perf_counter()
        self._db.execute("BEGIN IMMEDIATE")
        added = self._db.execute(
            "INSERT OR IGNORE INTO frontier(key, host, level, state, url)"
            f" SELECT key, host, level, {WAITING}, url FROM staging ORDER BY key"
        )
        self._stored += added.rowcount
        self._db.execute(
            "INSERT INTO host(id) SELECT DISTINCT host FROM staging WHERE true ORDER BY 1"
            " ON CONFLICT(id) DO UPDATE SET active = 1 WHERE active = 0"
        )
        self._db.execute("DELETE FROM staging")
        self._db.execute("COMMIT")
        self._staged = 0
        self.merge_seconds += perf_counter() - started

    def settle(self) -> None:
        if self._staged:
            self.merge()
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def held(self) -> tuple[int, int]:
        counts = self._db.execute("SELECT (SELECT count(*) FROM frontier), (SELECT count(*) FROM host)").fetchone()
        return int(counts[0]), int(counts[1])

    def scatter(self) -> None:
        self._db.execute("UPDATE host SET next_at = 1 + (id & 0xFFFFFF) * 7919 % 999983")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def claim(self, hosts: int, per_host: int = 1) -> list[Visit]:
        now = time.time_ns() // 1_000_000
        self._db.execute("BEGIN IMMEDIATE")
        found = self._by_host(hosts, per_host, now) if self.clusters else self._by_scan(hosts, now)
        claimed = sorted((visit.row,) for visit in found)
        self._db.executemany(f"UPDATE frontier SET state = {CLAIMED} WHERE key = ?", claimed)
        self._db.execute("COMMIT")
        return found

    def _by_host(self, limit: int, per_host: int, now: int) -> list[Visit]:
        found: list[Visit] = []
        while not found:
            due = self._db.execute(
                "SELECT id FROM host WHERE active = 1 AND next_at <= ? ORDER BY next_at LIMIT ?", (now, limit)
            ).fetchall()
            if not due:
                break
            busy, idle = [], []
            for (host,) in sorted(due):
                rows = self._db.execute(
                    f"SELECT key, url FROM frontier WHERE state = {WAITING} AND host = ? ORDER BY level LIMIT ?",
                    (host, per_host),
                ).fetchall()
                found += [Visit(key, host, 0, url) for key, url in rows]
                if rows:
                    busy.append((now + self.polite_ms, host))
                else:
                    idle.append((host,))
            self._db.executemany("UPDATE host SET next_at = ? WHERE id = ?", busy)
            self._db.executemany("UPDATE host SET active = 0 WHERE id = ?", idle)
        return found

    def _by_scan(self, limit: int, now: int) -> list[Visit]:
        found: list[Visit] = []
        start, self._scanned_to = self._scanned_to, b""
        waiting = self._db.execute(
            f"SELECT key, host, url FROM frontier WHERE key > ? AND state = {WAITING} ORDER BY key", (start,)
        )
        for key, host, url in waiting:
            if self._next_at.get(host, 0) <= now:
                self._next_at[host] = now + self.polite_ms
                found.append(Visit(key, host, 0, url))
                if len(found) == limit:
                    self._scanned_to = key
                    break
        waiting.close()
        return found if found or not start else self._by_scan(limit, now)

    def complete(self, visits: Sequence[Visit]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        done = sorted((visit.row,) for visit in visits)
        self._db.executemany(f"UPDATE frontier SET state = {DONE} WHERE key = ?", done)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()
