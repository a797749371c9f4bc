"""Where a design under the benchmark keeps its data, and what that takes: disk, bytes written, memory."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

PAGE_BYTES = 8192  # of PostgreSQL
CONNECT_SECONDS = 10  # until a server counts as not there


def bytes_on_disk(directory: Path) -> int:
    """Blocks that the files below a directory take."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def bytes_written() -> int:
    """Bytes that this process has sent to storage so far (Linux counts them when pages become dirty)."""
    return _number_in("/proc/self/io", "write_bytes:")


def peak_rss_mb() -> float:
    """The most memory this process ever had resident."""
    return _number_in("/proc/self/status", "VmHWM:") / 1024


def memory() -> dict[str, float]:
    """Memory of this process in MB: the peak, now, and now without pages of mapped files."""
    return {
        "rss_mb": peak_rss_mb(),
        "rss_end_mb": _number_in("/proc/self/status", "VmRSS:") / 1024,
        "rss_anonymous_mb": _number_in("/proc/self/status", "RssAnon:") / 1024,
    }


def _number_in(file: str, name: str) -> int:
    for line in Path(file).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


class FileStorage:
    """Everything is in files of one directory, written by this process: SQLite."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def size(self) -> int:
        """Bytes on disk."""
        return bytes_on_disk(self._data)

    def written(self) -> int | None:
        """Bytes written so far, by whatever counter starts anywhere; None where nothing counts them."""
        return bytes_written()


class ServerStorage(FileStorage):
    """The tables are in a PostgreSQL database, the rest in files.

    What a server wrote is known for the whole server only: its write-ahead log and its table pages. So the
    figure holds when nobody else writes there. PostgreSQL 17 and later count pages elsewhere: None.
    """

    def __init__(self, data: Path, database: str) -> None:
        super().__init__(data)
        self._database = database

    def size(self) -> int:
        tables = "SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_stat_user_tables"
        return super().size() + int(self._ask(tables))

    def written(self) -> int | None:
        if self._ask("SELECT current_setting('server_version_num')::int") >= 170_000:
            return None
        time.sleep(0.2)  # a checkpoint's pages are counted just after its command has returned
        log = self._ask("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        pages = self._ask("SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter")
        return bytes_written() + int(log) + int(pages) * PAGE_BYTES

    def _ask(self, query: str) -> Any:
        with psycopg.connect(self._database) as connection:
            row = connection.execute(query.encode()).fetchone()
        return row[0] if row else 0


def storage(data: Path, database: str | None) -> FileStorage:
    """The storage of a design whose files are in `data` and whose tables are in `database`, or in `data` too."""
    return ServerStorage(data, database) if database else FileStorage(data)


@contextmanager
def scratch_database(server: str | None) -> Iterator[str | None]:
    """The URL of a new, empty database on a server, given by the URL of any database there; dropped at the end.

    Without a server there is nothing to make. Raises psycopg.Error when the server does not let us.
    """
    if server is None:
        yield None
        return
    name = f"trawl_bench_{os.getpid()}"
    with psycopg.connect(server, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
