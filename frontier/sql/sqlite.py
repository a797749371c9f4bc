"""SQLite: rows travel as one JSON text; a write transaction has the database to itself."""

import json
from collections.abc import Sequence
from typing import Any

from frontier.sql.packing import pack as pack

LOCK_ROWS = ""  # BEGIN IMMEDIATE has locked everything already
SKIP_LOCKED = ""

# A parameter for every value takes 0.7 us a row, one JSON text 2.0. Fewer rows in a statement lose that
# again to the interpreter lock (see frontier/sql/__init__.py): beside a busy thread 1,000 rows take 6.4 us
# each, 10,000 take 1.6, JSON 2.6. SQLite allows 32,766 parameters unless built for more.
ROWS_PER_INSERT = 10_000
_INSERT_MANY = "INSERT INTO frontier_queuedurl(id, depth, ref) VALUES " + ",".join(["(%s,%s,%s)"] * ROWS_PER_INSERT)


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


def numbers(cursor: Any, column: str, rest: str, params: Sequence[Any] = ()) -> list[int]:
    """One integer column of SELECT `column` `rest`, fetched as one row."""
    cursor.execute(f"SELECT json_group_array({column}) FROM (SELECT {column} {rest})", params)
    found: list[int] = json.loads(cursor.fetchone()[0])
    return found


def lock_hosts(cursor: Any, condition: str, params: Sequence[Any]) -> None:
    """Nothing to lock, see LOCK_ROWS."""


def insert_urls(cursor: Any, ids: Sequence[int], depths: Sequence[int], refs: Sequence[str]) -> None:
    """Adds queue rows in the order of `ids`: whole statements first, the rest as JSON.

    Fixed-width numbers before the text in that: SQLite would parse a nested JSON array once more for
    every column.
    """
    whole = len(ids) - len(ids) % ROWS_PER_INSERT
    for start in range(0, whole, ROWS_PER_INSERT):
        part = slice(start, start + ROWS_PER_INSERT)
        values: list[Any] = [None] * (3 * ROWS_PER_INSERT)
        values[0::3], values[1::3], values[2::3] = ids[part], depths[part], refs[part]
        cursor.execute(_INSERT_MANY, values)
    rest = zip(ids[whole:], depths[whole:], refs[whole:], strict=True)
    texts = [f"{i:019d}{d:05d}{r}" for i, d, r in rest]
    cursor.execute(
        "INSERT INTO frontier_queuedurl(id, depth, ref) SELECT CAST(substr(value, 1, 19) AS INTEGER), "
        "CAST(substr(value, 20, 5) AS INTEGER), substr(value, 25) FROM json_each(%s)",
        [pack(texts)],
    )


def first_urls(cursor: Any, queues: Sequence[tuple[int, int]]) -> list[list[Any]]:
    """[id, depth, ref] of the first n claimable URLs of each (queue id, n), in key order.

    One statement per distinct n, of which there are few: SQLite's LIMIT cannot be a column.
    """
    by_count: dict[int, list[int]] = {}
    for queue, count in queues:
        by_count.setdefault(count, []).append(queue)
    found: list[list[Any]] = []
    for count, ids in by_count.items():
        found += select(
            cursor,
            "id, depth, ref",
            "FROM (SELECT q.id, q.depth, q.ref FROM json_each(%s) j JOIN frontier_queuedurl q ON q.id IN"
            " (SELECT id FROM frontier_queuedurl WHERE id >= (j.value << 32) AND id < ((j.value << 32) | 4026531840)"
            " ORDER BY id LIMIT %s))",
            [pack(ids), count],
        )
    return sorted(found)


def delete_urls(cursor: Any, ids: Sequence[int]) -> None:
    """Deletes queue rows that are still there and lowers the counts of their queues by as many."""
    known = pack(sorted(ids))
    cursor.execute(
        "UPDATE frontier_queue SET pending = pending - gone.n, held = held - gone.h FROM"
        " (SELECT id >> 32 AS queue, sum(((id >> 28) & 15) < 15) AS n, sum(((id >> 28) & 15) = 15) AS h"
        " FROM frontier_queuedurl WHERE id IN (SELECT value FROM json_each(%s)) GROUP BY 1) gone"
        " WHERE frontier_queue.id = gone.queue",
        [known],
    )
    cursor.execute("DELETE FROM frontier_queuedurl WHERE id IN (SELECT value FROM json_each(%s))", [known])


def try_lock(cursor: Any, number: int) -> bool:
    """SQLite needs no lock of its own for what only one process may do: a file lock does it."""
    return True


def unlock(cursor: Any, number: int) -> None:
    """Nothing to let go of, see `try_lock`."""
