"""The reference design on PostgreSQL: one row per URL under a 16-byte hash, its state on the row.

As bench/reference.py, done as well as PostgreSQL allows: links come in by COPY, a merge inserts them in key
order and skips what is known, claims run over an index of the waiting rows by host and priority and take
hosts with SKIP LOCKED. Keys are of type uuid, which takes 16 bytes in the row and in the index.
"""

import time
from collections.abc import Sequence
from time import perf_counter

import psycopg
from xxhash import xxh3_128_hexdigest

from bench.design import HASH_SEED, POLITE_MS, Link, Visit
from bench.reference import CACHE_KEYS, MERGE_ROWS, MERGE_SHARE, host_id

# States: 0 waiting, 1 claimed, 2 done.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS staging(key uuid, host bigint, level smallint, url text);
CREATE TABLE IF NOT EXISTS frontier(
    key uuid PRIMARY KEY, host bigint NOT NULL, level smallint NOT NULL, state smallint NOT NULL, url text NOT NULL);
CREATE TABLE IF NOT EXISTS host(
    id bigint PRIMARY KEY, next_at bigint NOT NULL DEFAULT 0, active boolean NOT NULL DEFAULT true);
CREATE INDEX IF NOT EXISTS host_due ON host(next_at) WHERE active;
CREATE INDEX IF NOT EXISTS frontier_waiting ON frontier(host, level) WHERE state = 0;
"""
_CLAIM = """
SELECT u.key, due.id, u.url FROM unnest(%s::bigint[]) AS due(id) CROSS JOIN LATERAL (
    SELECT key, url FROM frontier WHERE state = 0 AND host = due.id ORDER BY level LIMIT %s) u
"""


class PostgresReference:
    """The reference design in an empty database, or in one that it has filled before."""

    link = Link
    clusters = True

    def __init__(self, database: str) -> None:
        self.polite_ms = POLITE_MS
        self.merge_seconds = 0.0
        self._db = psycopg.connect(database, autocommit=True)
        self._db.execute("SET work_mem = '64MB'")  # for the sort of a merge
        self._db.execute("SET client_min_messages = warning")  # quiet when the tables are there already
        self._db.execute(_SCHEMA)
        self._recent: set[str] = set()
        self._older: set[str] = set()
        self._staged = self._stored = 0

    def resume(self) -> None:
        self._db.execute("UPDATE frontier SET state = 0 WHERE state = 1")

    def admit(self, links: Sequence[Link]) -> None:
        recent, older = self._recent, self._older
        hosts: dict[str, int] = {}
        lines = []
        for url, level, _ in links:
            key = xxh3_128_hexdigest(url.canonical.encode(), HASH_SEED)
            if key in recent or key in older:
                continue
            recent.add(key)
            host = hosts.get(url.host)
            if host is None:
                host = hosts[url.host] = host_id(url.host)
            lines.append(f"{key}\t{host}\t{level}\t{url.fetch}\n")
        if len(recent) >= CACHE_KEYS:
            self._older, self._recent = recent, set()
        with self._db.cursor().copy("COPY staging(key, host, level, url) FROM STDIN") as copy:
            copy.write("".join(lines))
        self._staged += len(lines)
        if self._staged >= max(MERGE_ROWS, self._stored * MERGE_SHARE):
            self.merge()

    def merge(self) -> None:
        started = perf_counter()
        with self._db.transaction():
            added = self._db.execute(
                "INSERT INTO frontier(key, host, level, state, url) SELECT key, host, level, 0, url FROM staging"
                " ORDER BY key ON CONFLICT DO NOTHING"
            )
            self._db.execute(
                "INSERT INTO host(id) SELECT DISTINCT host FROM staging ORDER BY 1"
                " ON CONFLICT(id) DO UPDATE SET active = true WHERE NOT host.active"
            )
            self._db.execute("TRUNCATE staging")
        if not self._stored:  # else the planner takes full tables for empty ones until autovacuum comes by
            self._db.execute("ANALYZE frontier, host")
        self._stored += added.rowcount
        self._staged = 0
        self.merge_seconds += perf_counter() - started

    def settle(self) -> None:
        if self._staged:
            self.merge()
        self._db.execute("CHECKPOINT")

    def held(self) -> tuple[int, int]:
        counts = self._db.execute("SELECT (SELECT count(*) FROM frontier), (SELECT count(*) FROM host)").fetchone()
        return (int(counts[0]), int(counts[1])) if counts else (0, 0)

    def scatter(self) -> None:
        self._db.execute("UPDATE host SET next_at = 1 + (id & 16777215) * 7919 % 999983")
        self._db.execute("VACUUM (ANALYZE)")

    def claim(self, hosts: int, per_host: int = 1) -> list[Visit]:
        now = time.time_ns() // 1_000_000
        found: list[Visit] = []
        with self._db.transaction():
            while not found and (due := self._due(hosts, now)):
                rows = self._db.execute(_CLAIM, [due, per_host], prepare=True).fetchall()
                found = [Visit(str(key), host, 0, url) for key, host, url in rows]
                busy = sorted({visit.host for visit in found})
                self._db.execute("UPDATE host SET next_at = %s WHERE id = ANY(%s)", [now + self.polite_ms, busy])
                idle = sorted(set(due).difference(busy))
                if idle:
                    self._db.execute("UPDATE host SET active = false WHERE id = ANY(%s)", [idle])
            self._set_state(1, found)
        return found

    def _due(self, limit: int, now: int) -> list[int]:
        rows = self._db.execute(
            "SELECT id FROM host WHERE active AND next_at <= %s ORDER BY next_at LIMIT %s FOR UPDATE SKIP LOCKED",
            [now, limit],
        )
        return sorted(row[0] for row in rows)

    def _set_state(self, state: int, visits: Sequence[Visit]) -> None:
        keys = sorted(str(visit.row) for visit in visits)
        self._db.execute("UPDATE frontier SET state = %s WHERE key = ANY(%s::uuid[])", [state, keys])

    def complete(self, visits: Sequence[Visit]) -> None:
        self._set_state(2, visits)

    def close(self) -> None:
        self._db.close()
