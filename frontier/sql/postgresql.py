"""PostgreSQL: rows go in by COPY or as one JSON parameter; rows are locked in key order."""

from collections.abc import Sequence
from typing import Any

from frontier.sql.packing import pack as pack

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


def numbers(cursor: Any, column: str, rest: str, params: Sequence[Any] = ()) -> list[int]:
    """One integer column of SELECT `column` `rest`."""
    cursor.execute(f"SELECT {column} {rest}", params)
    return [row[0] for row in cursor.fetchall()]


def lock_hosts(cursor: Any, condition: str, params: Sequence[Any]) -> None:
    """Locks the hosts that meet a condition, in key order: an UPDATE of many rows locks them in any
    order, and two of those can wait for each other."""
    cursor.execute(f"SELECT id FROM frontier_host WHERE {condition} ORDER BY id FOR UPDATE", params)


def insert_urls(cursor: Any, ids: Sequence[int], depths: Sequence[int], refs: Sequence[str]) -> None:
    """Adds queue rows by COPY. A query may hold a backslash, the escape character of COPY."""
    texts = [ref.replace("\\", "\\\\") for ref in refs] if any("\\" in ref for ref in refs) else refs
    lines = "".join([f"{i}\t{d}\t{r}\n" for i, d, r in zip(ids, depths, texts, strict=True)])
    with cursor.copy("COPY frontier_queuedurl(id, depth, ref) FROM STDIN") as copy:
        copy.write(lines)


def first_urls(cursor: Any, queues: Sequence[tuple[int, int]]) -> list[list[Any]]:
    """[id, depth, ref] of the first n claimable URLs of each (queue id, n), in key order."""
    return select(
        cursor,
        "u.id, u.depth, u.ref",
        "FROM unnest(%s::bigint[], %s::bigint[]) j(queue, n) CROSS JOIN LATERAL (SELECT id, depth, ref"
        " FROM frontier_queuedurl WHERE id >= (j.queue << 32) AND id < ((j.queue << 32) | 4026531840)"
        " ORDER BY id LIMIT j.n) u ORDER BY u.id",
        [[q for q, _ in queues], [n for _, n in queues]],
    )


def delete_urls(cursor: Any, ids: Sequence[int]) -> None:
    """Deletes queue rows that are still there and lowers the counts of their queues by as many.

    The rows are locked in key order first, so that two workers with the same rows cannot deadlock;
    the counts come from what this statement really deleted.
    """
    cursor.execute("SELECT id FROM frontier_queuedurl WHERE id = ANY(%s) ORDER BY id FOR UPDATE", [sorted(ids)])
    found = [row[0] for row in cursor.fetchall()]
    queues = sorted({i >> 32 for i in found})
    cursor.execute("SELECT id FROM frontier_queue WHERE id = ANY(%s) ORDER BY id FOR UPDATE", [queues])
    cursor.execute(
        "WITH gone AS (DELETE FROM frontier_queuedurl WHERE id = ANY(%s) RETURNING id), counted AS"
        " (SELECT id >> 32 AS queue, count(*) FILTER (WHERE ((id >> 28) & 15) < 15) AS n,"
        " count(*) FILTER (WHERE ((id >> 28) & 15) = 15) AS h FROM gone GROUP BY 1)"
        " UPDATE frontier_queue SET pending = pending - n, held = held - h FROM counted"
        " WHERE frontier_queue.id = counted.queue",
        [found],
    )


def try_lock(cursor: Any, number: int) -> bool:
    """Takes an advisory lock of this session if it is free."""
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [number])
    return bool(cursor.fetchone()[0])


def unlock(cursor: Any, number: int) -> None:
    """Lets go of an advisory lock."""
    cursor.execute("SELECT pg_advisory_unlock(%s)", [number])
