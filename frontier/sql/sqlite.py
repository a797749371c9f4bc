"""SQLite: rows travel as one JSON text; a write transaction has the database to itself."""

import json
import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connections, transaction

from frontier.sql.packing import by_count
from frontier.sql.packing import pack as pack

I64 = npt.NDArray[np.int64]

log = logging.getLogger(__name__)

LOCK_ROWS = ""  # BEGIN IMMEDIATE has locked everything already
SKIP_LOCKED = ""

# Rows in one statement. A parameter for every value takes 0.7 us a row, one JSON text 2.0. Fewer rows lose
# that again to the interpreter lock (see frontier/sql/__init__.py): beside a busy thread 1,000 rows take 6.4 us
# each, 10,000 take 1.6. No other sizes, since every one is a statement that stays prepared.
ROWS_IN_STATEMENT = (10_000, 1_000, 100, 10, 1)
PARAMETERS = 32_766  # what SQLite allows unless built for more


def rows(names: str) -> str:
    """A sub-select that reads the JSON parameter in its place as rows, e.g. rows('id bigint, n bigint')."""
    parts = [part.split() for part in names.split(",")]
    if len(parts) == 1:
        return f"(SELECT value AS {parts[0][0]} FROM json_each(%s))"
    taken = ", ".join(f"value->>{i} AS {name}" for i, (name, _) in enumerate(parts))
    return f"(SELECT {taken} FROM json_each(%s))"


def select(cursor: Any, taken: str, rest: str, params: Sequence[Any] = ()) -> list[list[Any]]:
    """All rows of SELECT `taken` `rest`, fetched as one row. `taken` is a list of plain columns."""
    cursor.execute(f"SELECT json_group_array(json_array({taken})) FROM (SELECT {taken} {rest})", params)
    found: list[list[Any]] = json.loads(cursor.fetchone()[0])
    return found


def columns(cursor: Any, taken: str, rest: str, params: Sequence[Any] = ()) -> I64:
    """Integer columns of SELECT `taken` `rest`, one array each."""
    parts = [f"json_group_array({column})" for column in taken.split(", ")]
    cursor.execute(f"SELECT {', '.join(parts)} FROM (SELECT {taken} {rest})", params)
    return np.array([json.loads(text) for text in cursor.fetchone()], np.int64)


def lock_rows(cursor: Any, table: str, condition: str, params: Sequence[Any]) -> None:
    """Nothing to lock, see LOCK_ROWS."""


def insert(cursor: Any, table: str, names: str, columns: Sequence[Sequence[Any]]) -> None:
    """Adds rows, given as columns with names and types, e.g. 'id bigint, name text'."""
    taken = ", ".join(name.split()[0] for name in names.split(","))
    for count, values in _parts(columns):
        _execute(cursor, f"INSERT INTO {table}({taken}) VALUES {_marks(len(columns), count)}", values)


def insert_parts(cursor: Any, table: str, names: str, parts: Iterable[Sequence[Sequence[Any]]]) -> None:
    """Adds rows, given part by part as columns."""
    for part in parts:
        insert(cursor, table, names, part)


def add(cursor: Any, table: str, column: str, ids: Sequence[int], amounts: Sequence[int]) -> None:
    """Adds an amount to an integer column of each row."""
    for count, values in _parts([ids, amounts]):
        _execute(
            cursor,
            f"WITH told(id, n) AS (VALUES {_marks(2, count)}) UPDATE {table} SET {column} = {column} + told.n"
            f" FROM told WHERE {table}.id = told.id",
            values,
        )


def _parts(columns: Sequence[Sequence[Any]]) -> Iterator[tuple[int, list[Any]]]:
    """(number of rows, their values one after the other) for one statement after the other."""
    width, start, end = len(columns), 0, len(columns[0])
    while start < end:
        count = next(size for size in ROWS_IN_STATEMENT if size <= end - start and size * width <= PARAMETERS)
        values: list[Any] = [None] * (width * count)
        for number, column in enumerate(columns):
            values[number::width] = column[start : start + count]
        yield count, values
        start += count


@lru_cache(maxsize=16)
def _marks(width: int, count: int) -> str:
    return ",".join(["(" + ",".join("?" * width) + ")"] * count)


def _execute(cursor: Any, query: str, values: list[Any]) -> None:
    """Past Django, which would look for its own marks in the text of thousands of them every time."""
    with cursor.db.wrap_database_errors:
        sqlite3.Cursor.execute(cursor.cursor, query, values)


def first_urls(cursor: Any, queues: Sequence[tuple[int, int]]) -> list[list[Any]]:
    """[id, depth, ref] of the first n claimable URLs of each (queue id, n), in key order.

    One statement per distinct n, of which there are few: SQLite's LIMIT cannot be a column.
    """
    found: list[list[Any]] = []
    for count, ids in by_count(queues).items():
        found += select(
            cursor,
            "id, depth, ref",
            "FROM (SELECT q.id, q.depth, q.ref FROM json_each(%s) j JOIN frontier_queuedurl q ON q.id IN"
            " (SELECT id FROM frontier_queuedurl WHERE id >= (j.value << 32) AND id < ((j.value << 32) | 4026531840)"
            " ORDER BY id LIMIT %s))",
            [pack(ids), count],
        )
    return sorted(found)


def find_refs(cursor: Any, wanted: Sequence[tuple[int, str]], most: int) -> list[list[Any]]:
    """[id, depth, ref] of the claimable URLs with these references: (first id to look at, reference) each.

    No limit per queue here: `most` is for the other database.
    """
    return select(
        cursor,
        "id, depth, ref",
        "FROM (SELECT u.id, u.depth, u.ref FROM json_each(%s) j CROSS JOIN frontier_queuedurl u"
        " WHERE u.id >= j.value->>0 AND u.id < (j.value->>0 | 4294967295) - 268435455 AND u.ref = j.value->>1)",
        [pack(wanted)],
    )


def find_any_ref(cursor: Any, first: int, refs: Sequence[str], most: int) -> list[list[Any]]:
    """[id, depth, ref] of the URLs with any of these references, among the `most` first ones from this id on."""
    return select(
        cursor,
        "id, depth, ref",
        "FROM (SELECT id, depth, ref FROM frontier_queuedurl WHERE id >= %s AND id < %s ORDER BY id LIMIT %s)"
        " WHERE ref IN (SELECT value FROM json_each(%s))",
        [first, (first | 0xFFFF_FFFF) - 0x0FFF_FFFF, most, pack(refs)],
    )


def delete_urls(cursor: Any, ids: Sequence[int]) -> int:
    """Deletes queue rows that are still there; returns how many they were."""
    cursor.execute("DELETE FROM frontier_queuedurl WHERE id IN (SELECT value FROM json_each(%s))", [pack(ids)])
    return int(cursor.rowcount)


@contextmanager
def light_transaction(using: str) -> Iterator[None]:
    """A transaction that a power cut may undo, together with all after it that are light as well.

    It spares the wait for the disk (8 ms here). The next ordinary commit makes it durable, and nothing but a
    power cut can undo it: not a crash of this or any process.
    """
    with _transaction_with(using, "synchronous", "NORMAL", "FULL"):
        yield


@contextmanager
def heavy_transaction(using: str) -> Iterator[None]:
    """A transaction that writes thousands of pages: they are brought from the log to their places on a thread of
    its own, beside what comes next, and not by the commit, which that would hold up for as long again."""
    connection = connections[using]
    is_outermost = not connection.in_atomic_block
    with connection.cursor() as cursor:
        usual = cursor.execute("PRAGMA wal_autocheckpoint").fetchone()[0]
    with _transaction_with(using, "wal_autocheckpoint", "0", str(usual)):
        yield
    if is_outermost:
        _checkpoint_beside(str(connection.settings_dict["NAME"]))


@contextmanager
def _transaction_with(using: str, option: str, inside: str, outside: str) -> Iterator[None]:
    """A transaction under another value of an option of the connection; within a transaction, a part of that."""
    connection = connections[using]
    is_outermost = not connection.in_atomic_block

    def put(value: str) -> None:
        if is_outermost:
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA {option}={value}")

    put(inside)
    try:
        with transaction.atomic(using=using):
            yield
    finally:
        put(outside)


def _checkpoint_beside(path: str) -> None:
    """Starts a checkpoint, once the one before is done, so that the log cannot grow without bound."""
    name = f"checkpoint of {path}"
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join()
    threading.Thread(target=_checkpoint, args=(path,), name=name).start()


def _checkpoint(path: str) -> None:
    try:
        # Not through Django, whose connection would be this thread's own and never closed; and it makes no file.
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=rw", uri=True)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    except sqlite3.Error as error:  # the next commit of anyone tries again
        log.warning("the checkpoint of %s did not end: %s", path, error)


def try_lock(cursor: Any, number: int) -> bool:
    """SQLite needs no lock of its own for what only one process may do: a file lock does it."""
    return True


def unlock(cursor: Any, number: int) -> None:
    """Nothing to let go of, see `try_lock`."""
