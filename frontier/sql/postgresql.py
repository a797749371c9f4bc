"""PostgreSQL: rows go in by COPY or as one JSON parameter; rows are locked in key order."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from django.db import connections, transaction

from frontier.sql.packing import by_count
from frontier.sql.packing import pack as pack

I64 = npt.NDArray[np.int64]

LOCK_ROWS = "FOR UPDATE"
SKIP_LOCKED = "FOR UPDATE SKIP LOCKED"


def rows(names: str) -> str:
    """A sub-select that reads the JSON parameter in its place as rows, e.g. rows('id bigint, n bigint')."""
    parts = [part.split() for part in names.split(",")]
    if len(parts) == 1:
        name, kind = parts[0]
        return f"(SELECT CAST(value AS {kind}) AS {name} FROM json_array_elements_text(%s::json))"
    taken = ", ".join(f"CAST(value->>{i} AS {kind}) AS {name}" for i, (name, kind) in enumerate(parts))
    return f"(SELECT {taken} FROM json_array_elements(%s::json))"


def select(cursor: Any, taken: str, rest: str, params: Sequence[Any] = ()) -> list[list[Any]]:
    """All rows of SELECT `taken` `rest`."""
    cursor.execute(f"SELECT {taken} {rest}", params)
    return [list(row) for row in cursor.fetchall()]


def columns(cursor: Any, taken: str, rest: str, params: Sequence[Any] = ()) -> I64:
    """Integer columns of SELECT `taken` `rest`, one array each."""
    cursor.execute(f"SELECT {taken} {rest}", params)
    return np.array(cursor.fetchall(), np.int64).reshape(-1, taken.count(",") + 1).T


def lock_rows(cursor: Any, table: str, condition: str, params: Sequence[Any]) -> None:
    """Locks the rows that meet a condition, in key order: an UPDATE of many rows locks them in any order,
    and two of those can wait for each other."""
    cursor.execute(f"SELECT id FROM {table} WHERE {condition} ORDER BY id FOR UPDATE", params)


def _escaped(texts: Sequence[str]) -> Sequence[str]:
    """Texts as the text format of COPY has them. Most have nothing to escape, and to see that takes a tenth of
    the time of looking at each."""
    everything = "".join(texts)
    if not any(sign in everything for sign in _ESCAPES):
        return texts
    return [text.translate(_TRANSLATION) for text in texts]


_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TRANSLATION = str.maketrans(_ESCAPES)


def insert(cursor: Any, table: str, names: str, columns: Sequence[Sequence[Any]]) -> None:
    """Adds rows, given as columns with names and types, e.g. 'id bigint, name text'.

    By COPY, except for rows with bytes: those are few and long, and go in as they are, without being spelled out.
    """
    parts = [part.split() for part in names.split(",")]
    taken = ", ".join(name for name, _ in parts)
    if any(kind == "bytea" for _, kind in parts):
        marks = ", ".join(["%b"] * len(parts))
        # Not Django's cursor, which would put the values into the text of the statement.
        with cursor.db.wrap_database_errors, psycopg.Cursor(cursor.db.connection) as binary:
            binary.executemany(f"INSERT INTO {table}({taken}) VALUES ({marks})", list(zip(*columns, strict=True)))
        return
    insert_parts(cursor, table, names, [columns])


def insert_parts(cursor: Any, table: str, names: str, parts: Iterable[Sequence[Sequence[Any]]]) -> None:
    """Adds rows by one COPY, given part by part as columns: the server takes one in while the next is made."""
    columns = [name.split() for name in names.split(",")]
    row = "\t".join(["%s"] * len(columns)) + "\n"
    statement = f"COPY {table}({', '.join(name for name, _ in columns)}) FROM STDIN"
    with cursor.db.wrap_database_errors, cursor.copy(statement) as copy:
        for part in parts:
            texts = [_escaped(one) if kind == "text" else one for (_, kind), one in zip(columns, part, strict=True)]
            copy.write("".join(map(row.__mod__, zip(*texts, strict=True))))


def add(cursor: Any, table: str, column: str, ids: Sequence[int], amounts: Sequence[int]) -> None:
    """Adds an amount to an integer column of each row."""
    cursor.execute(
        f"UPDATE {table} SET {column} = {column} + told.n FROM unnest(%s::bigint[], %s::bigint[]) told(id, n)"
        f" WHERE {table}.id = told.id",
        [list(ids), list(amounts)],
    )


def first_urls(cursor: Any, queues: Sequence[tuple[int, int]]) -> list[list[Any]]:
    """[id, depth, ref] of the first n claimable URLs of each (queue id, n), in key order.

    One statement per distinct n, of which there are few: with a limit that it does not know the planner reads and
    sorts the whole queue (51 ms for 512 queues instead of 5).
    """
    found: list[list[Any]] = []
    for count, ids in by_count(queues).items():
        found += select(
            cursor,
            "u.id, u.depth, u.ref",
            "FROM unnest(%s::bigint[]) j(queue) CROSS JOIN LATERAL (SELECT id, depth, ref"
            " FROM frontier_queuedurl WHERE id >= (j.queue << 32) AND id < ((j.queue << 32) | 4026531840)"
            f" ORDER BY id LIMIT {int(count)}) u",
            [ids],
        )
    return sorted(found)


def find_refs(cursor: Any, wanted: Sequence[tuple[int, str]], most: int) -> list[list[Any]]:
    """[id, depth, ref] of the claimable URLs with these references: (first id to look at, reference) each."""
    return select(
        cursor,
        "u.id, u.depth, u.ref",
        "FROM unnest(%s::bigint[], %s::text[]) j(first, ref) CROSS JOIN LATERAL (SELECT * FROM (SELECT id, depth, ref"
        " FROM frontier_queuedurl WHERE id >= j.first AND id < (j.first | 4294967295) - 268435455 ORDER BY id LIMIT %s"
        ") looked_at WHERE looked_at.ref = j.ref) u",
        [[first for first, _ in wanted], [ref for _, ref in wanted], most],
    )


def find_any_ref(cursor: Any, first: int, refs: Sequence[str], most: int) -> list[list[Any]]:
    """[id, depth, ref] of the URLs with any of these references, among the `most` first ones from this id on."""
    return select(
        cursor,
        "id, depth, ref",
        "FROM (SELECT id, depth, ref FROM frontier_queuedurl WHERE id >= %s AND id < %s ORDER BY id LIMIT %s)"
        " looked_at WHERE ref = ANY(%s)",
        [first, (first | 0xFFFF_FFFF) - 0x0FFF_FFFF, most, list(refs)],
    )


def delete_urls(cursor: Any, ids: Sequence[int]) -> int:
    """Deletes queue rows that are still there; returns how many they were.

    The rows are locked in key order first, so that two workers with the same rows cannot deadlock.
    """
    cursor.execute("SELECT id FROM frontier_queuedurl WHERE id = ANY(%s) ORDER BY id FOR UPDATE", [list(ids)])
    cursor.execute("DELETE FROM frontier_queuedurl WHERE id = ANY(%s)", [[row[0] for row in cursor.fetchall()]])
    return int(cursor.rowcount)


@contextmanager
def light_transaction(using: str) -> Iterator[None]:
    """A transaction that a power cut may undo, together with all after it that are light as well."""
    outermost = not connections[using].in_atomic_block
    with transaction.atomic(using=using):
        if outermost:
            with connections[using].cursor() as cursor:
                cursor.execute("SET LOCAL synchronous_commit = off")
        yield


@contextmanager
def heavy_transaction(using: str) -> Iterator[None]:
    """A transaction that writes thousands of pages; the server brings them to their places by itself."""
    with transaction.atomic(using=using):
        yield


def try_lock(cursor: Any, number: int) -> bool:
    """Takes an advisory lock of this session if it is free."""
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [number])
    return bool(cursor.fetchone()[0])


def unlock(cursor: Any, number: int) -> None:
    """Lets go of an advisory lock."""
    cursor.execute("SELECT pg_advisory_unlock(%s)", [number])
