"""One moment of a frontier's databases, held still and copied while the crawl goes on.

On SQLite the main file and the inbox are two, and neither order of copying them one after the other is
right: a worker writes links to the inbox *before* it completes their page in the main file, so an inbox
copied first can lack links whose page counts as done; the merge deletes from the inbox *after* it queued
the URLs in the main file, so a main file copied first can lack URLs that have left the inbox. So both
write locks are held for the instant in which a read transaction is begun on each. In WAL mode a read
transaction goes on seeing its own state, and keeps no writer waiting. Measured beside a
writer and a merger: the locks are held for 0.4 to 1.0 ms at 630 MB, as with an empty database.

From there the backup API copies pages, out of these very transactions: it starts again when another
connection writes, but a source that is in a read transaction sees no writer. `VACUUM INTO` refuses to run
in a transaction, so it cannot start at that instant; and it takes more than the copy of the pages (683 MB:
2.3 s against 1.7 s) to make a file that is 10 % smaller. What a copy costs the crawl: the WAL cannot start
anew before the copy ends, so for so long it grows by all that is written.

On PostgreSQL one REPEATABLE READ READ ONLY transaction reads every table by COPY; nobody waits for it, but
vacuum cannot clean up behind it.

The run files of the seen index are derived, and still come along: they are never changed, so a link to
each costs nothing, while a rebuild from the database takes 8 s per million URLs. The merge may delete them at
any time after the moment, so they are opened within it.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from django.db import connections

from frontier.models import SeenRun
from frontier.router import inbox_alias
from frontier.seen.runs import sync_directory
from frontier.state import seen_directory

Progress = Callable[[int], None]  # told the bytes done since it was told last

BLOCK = 1 << 20
# Pages of 4 KiB copied at a time: 16 MB, about 40 ms between two signs of life.
PAGES_PER_STEP = 4096
# On PostgreSQL nothing keeps the merge from replacing run files between the moment and their opening.
RUN_TRIES = 5


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a PostgreSQL snapshot; its rows are in the file `NAME.copy`, in COPY's text format."""

    name: str
    columns: list[str]
    rows: int
    sequences: dict[str, int]
    """The number last given out, by column: what was deleted meanwhile must not be numbered so again."""


class Moment(Protocol):
    """The databases as they were at one moment."""

    kind: str  # the vendor
    held_ms: float  # how long writers were kept waiting
    runs: list[BinaryIO] | None  # the run files of the seen index; None when not all of them are here
    size: int  # bytes that `write` will take, at most or nearly

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the main database."""

    def count(self, table: str) -> int:
        """How many rows a table has, in whichever file; at the speed of reading it."""

    def write(self, directory: Path, progress: Progress) -> list[Table]:
        """Writes all rows into new files in a directory, synced. Raises OSError and database errors."""


@contextmanager
def moment(using: str = "default") -> Iterator[Moment]:
    """Holds the databases still for reading, and nobody up for longer than an instant."""
    if connections[using].vendor == "sqlite":
        with _sqlite_moment(using) as held:
            yield held
    else:
        with _postgresql_moment(using) as held:
            yield held


# --- SQLite -----------------------------------------------------------------------------------------


def database_files(using: str) -> dict[str, Path]:
    """Name within a snapshot -> SQLite file: the main one, and the inbox where it is a file of its own."""
    aliases = dict.fromkeys((using, inbox_alias(using)))
    names = ("main.sqlite3", "inbox.sqlite3")
    return {name: Path(connections[alias].settings_dict["NAME"]) for name, alias in zip(names, aliases, strict=False)}


@dataclass(slots=True)
class _SqliteMoment:
    readers: dict[str, sqlite3.Connection]
    held_ms: float
    runs: list[BinaryIO] | None
    kind: str = "sqlite"
    size: int = field(init=False)

    def __post_init__(self) -> None:
        pragmas = ("PRAGMA page_count", "PRAGMA page_size")
        self.size = 0
        for reader in self.readers.values():
            count, page = (reader.execute(pragma).fetchone()[0] for pragma in pragmas)
            self.size += count * page

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        return next(iter(self.readers.values())).execute(sql).fetchall()

    def count(self, table: str) -> int:
        for reader in self.readers.values():
            if reader.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
                return int(reader.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0])
        return 0

    def write(self, directory: Path, progress: Progress) -> list[Table]:
        for name, reader in self.readers.items():
            _copy_pages(reader, directory / name, progress)
        return []


@contextmanager
def _sqlite_moment(using: str) -> Iterator[_SqliteMoment]:
    files = database_files(using)
    with ExitStack() as stack:
        readers = {name: stack.enter_context(closing(_connect(path))) for name, path in files.items()}
        with ExitStack() as locks:
            # The main file first: whoever holds the inbox's lock never waits for the main one, but links are
            # admitted within transactions on the main file.
            since = 0.0
            for path in files.values():
                locks.enter_context(closing(_connect(path))).execute("BEGIN IMMEDIATE")
                since = since or time.perf_counter()
            for reader in readers.values():
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM sqlite_master").fetchone()  # only reading begins it
            main = next(iter(readers.values()))
            runs = _open_runs(using, lambda sql: main.execute(sql).fetchall(), stack)
        held_ms = (time.perf_counter() - since) * 1000
        yield _SqliteMoment(readers, held_ms, runs)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=60, isolation_level=None, uri=True)
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # reads the schema while nobody waits
    return connection


def _copy_pages(reader: sqlite3.Connection, target: Path, progress: Progress) -> None:
    page = reader.execute("PRAGMA page_size").fetchone()[0]
    told = 0

    def tell(status: int, remaining: int, total: int) -> None:
        nonlocal told
        done = (total - remaining) * page
        progress(done - told)
        told = done

    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # A copy that is cut short is thrown away, so it needs no journal; it is synced once, at the end.
        copy.execute("PRAGMA journal_mode=OFF")
        copy.execute("PRAGMA synchronous=OFF")
        reader.backup(copy, pages=PAGES_PER_STEP, progress=tell)
    sync_file(target)


# --- PostgreSQL -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _PostgresqlMoment:
    using: str
    cursor: Any
    runs: list[BinaryIO] | None
    held_ms: float = 0.0
    kind: str = "postgresql"
    size: int = field(init=False)

    def __post_init__(self) -> None:
        tables = [table for table, _ in copied_columns(self.using, self.cursor)]
        self.cursor.execute("SELECT sum(pg_table_size(name::regclass)) FROM unnest(%s::text[]) name", [tables])
        self.size = int(self.cursor.fetchone()[0] or 0)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        self.cursor.execute(sql)
        return list(self.cursor.fetchall())

    def count(self, table: str) -> int:
        return int(self.select(f"SELECT count(*) FROM {quoted(table)}")[0][0])

    def write(self, directory: Path, progress: Progress) -> list[Table]:
        return [
            Table(name, columns, self._write(directory / f"{name}.copy", name, columns, progress), self._numbers(name))
            for name, columns in copied_columns(self.using, self.cursor)
        ]

    def _numbers(self, table: str) -> dict[str, int]:
        """Later than the moment, as sequences belong to no transaction; so never too low."""
        self.cursor.execute(
            "SELECT column_name, pg_sequence_last_value(sequence::regclass) FROM information_schema.columns,"
            " pg_get_serial_sequence(quote_ident(table_name), column_name) sequence"
            " WHERE table_schema = current_schema() AND table_name = %s AND sequence IS NOT NULL",
            [table],
        )
        return {column: last for column, last in self.cursor.fetchall() if last is not None}

    def _write(self, path: Path, table: str, columns: list[str], progress: Progress) -> int:
        rows = told = 0
        with open(path, "xb", buffering=BLOCK) as file:
            with self.cursor.copy(f"COPY {quoted(table)} ({listed(columns)}) TO STDOUT") as copy:
                for row in copy:
                    rows += 1
                    file.write(row)
                    if rows % 10_000 == 0:
                        progress(file.tell() - told)
                        told = file.tell()
            progress(file.tell() - told)
            file.flush()
            os.fsync(file.fileno())
        return rows


@contextmanager
def _postgresql_moment(using: str) -> Iterator[_PostgresqlMoment]:
    with connections[using].cursor() as cursor, ExitStack() as stack:

        def select(sql: str) -> list[tuple[Any, ...]]:
            cursor.execute(sql)
            return list(cursor.fetchall())

        runs = None
        for _ in range(RUN_TRIES):
            cursor.execute("ROLLBACK")  # of the try before; the first time it does nothing
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            runs = _open_runs(using, select, stack)
            if runs is not None:
                break
        try:
            yield _PostgresqlMoment(using, cursor, runs)
        finally:
            cursor.execute("ROLLBACK")


def copied_columns(using: str, cursor: Any) -> list[tuple[str, list[str]]]:
    """All tables of the installed apps with the columns that hold data. The list of migrations is no part of
    it: it is in the manifest, and made by migrating."""
    connection = connections[using]
    cursor.execute(
        "SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position) FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND is_generated = 'NEVER' GROUP BY 1"
    )
    columns = dict(cursor.fetchall())
    return [(name, columns[name]) for name in sorted(connection.introspection.django_table_names()) if name in columns]


def quoted(name: str) -> str:
    """An identifier as SQL has it; the names come from Django's models."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Identifiers with commas between."""
    return ", ".join(map(quoted, names))


# --- files ------------------------------------------------------------------------------------------


def _open_runs(using: str, select: Callable[[str], list[Any]], stack: ExitStack) -> list[BinaryIO] | None:
    """The run files that the manifest lists, open; None when they are not all here.

    They lie with whoever merges, which in a fleet may be another machine.
    """
    directory = seen_directory(using)
    rows = select(f"SELECT file, store FROM {SeenRun._meta.db_table} ORDER BY id")
    try:
        here = (directory / "store").read_text().strip() if rows else ""
        if any(store != here for _, store in rows):
            return None
        return [stack.enter_context(open(directory / file, "rb")) for file, _ in rows]
    except OSError:
        return None


def put(source: BinaryIO, target: Path, size: int, progress: Progress, *, link: bool) -> None:
    """Makes a new file with the first `size` bytes of an open one, synced. Raises OSError.

    `link`: the source will never be changed, so a hard link to it will do; where there can be none (another
    file system, an owner that does not allow it, deleted meanwhile), it is copied.
    """
    if link:
        try:
            os.link(os.path.realpath(source.name), target)
        except OSError:
            pass
        else:
            return progress(size)
    with open(target, "xb") as file:
        source.seek(0)
        left = size
        while left:
            block = source.read(min(BLOCK, left))
            if not block:
                raise OSError(None, f"{size - left:,} bytes found where {size:,} were expected", source.name)
            file.write(block)
            left -= len(block)
            progress(len(block))
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Waits until a file is on the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_tree(directory: Path) -> None:
    """Makes the names of all files below a directory durable, and its own."""
    for folder, _, _ in os.walk(directory):
        sync_directory(Path(folder))
    sync_directory(directory.parent)
