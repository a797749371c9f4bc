"""Moves URLs that wait to a better level: many pages link to them by now, or a sitemap or a seed names them.

A hint and no more: what is not found or cannot be moved stays where it is. So the work is bounded by the
number of rows looked at, and hosts that are being visited are passed over, since whoever visits them
holds the ids of their first rows.
"""

from typing import Any, NamedTuple

import numpy as np

from frontier.counts import Count, change
from frontier.fill import fill
from frontier.lines import Lines
from frontier.models import SEQUENCE_BITS
from frontier.priority import HELD
from frontier.schedule import HOST_MASK
from frontier.sql import dialect

# Rows of one queue that are looked through for references, in their order.
ROWS_LOOKED_AT = 20_000
# From so many references on, a queue is looked through for all of them at once, by a statement of its own.
MANY = 8


class Promotion(NamedTuple):
    """A queued URL, by its queue and reference, and the level that it should have."""

    queue: int
    level: int
    ref: str


def promote(cursor: Any, using: str, wanted: list[Promotion], most_rows: int) -> list[Promotion]:
    """Moves URLs in the caller's transaction, looking at about `most_rows` rows; returns those that are left for
    later: on hosts that are being visited, and in queues that are too long for the work that was allowed."""
    if not wanted:
        return []
    by_queue: dict[int, dict[str, int]] = {}
    for one in wanted:
        levels = by_queue.setdefault(one.queue, {})
        levels[one.ref] = min(one.level, levels.get(one.ref, HELD))
    free, visited = _free(cursor, using, by_queue.keys())
    # First where the same work finds most.
    free.sort(key=lambda found: found[0] / len(by_queue[found[1]]))
    rows, chosen = 0, set()
    for length, queue in free:
        rows += min(length, ROWS_LOOKED_AT) * (1 if len(by_queue[queue]) >= MANY else len(by_queue[queue]))
        if rows > most_rows:
            break
        chosen.add(queue)
    moved = _taken_out(cursor, using, {queue: by_queue[queue] for queue in sorted(chosen)})
    if moved:
        _put_in(cursor, using, moved)
    left = visited.union(queue for _, queue in free) - chosen
    return [Promotion(queue, level, ref) for queue in left for ref, level in by_queue[queue].items()]


def _free(cursor: Any, using: str, queues: Any) -> tuple[list[tuple[int, int]], set[int]]:
    """(most URLs it can hold, queue) of the queues whose host is due, and the queues whose host is being visited.

    The hosts stay due until the commit: where others could claim them meanwhile, their rows are locked.
    """
    sql = dialect(using)
    found = sql.columns(
        cursor,
        "id, host_id, next_seq",
        f"FROM frontier_queue WHERE id IN {sql.rows('id bigint')} ORDER BY id",
        [sql.pack(sorted(queues))],
    ).T.tolist()
    hosts = sql.pack(sorted({host for _, host, _ in found}))
    held = f"FROM {{}} WHERE id & {HOST_MASK} IN {sql.rows('id bigint')} ORDER BY id"
    leased = sql.columns(cursor, "id", held.format("frontier_leasedhost"), [hosts])[0] & HOST_MASK
    due = sql.columns(cursor, "id", f"{held.format('frontier_duehost')} {sql.SKIP_LOCKED}", [hosts])[0] & HOST_MASK
    at_work, waiting = set(leased.tolist()), set(due.tolist())
    return (
        [(length, queue) for queue, host, length in found if host in waiting],
        {queue for queue, host, _ in found if host in at_work},
    )


def _taken_out(cursor: Any, using: str, wanted: dict[int, dict[str, int]]) -> list[tuple[int, int, int, str]]:
    """Deletes the rows of references that stand at a worse level; (queue, new level, depth, reference) of each."""
    sql = dialect(using)
    few = [
        (queue << 32 | (level + 1) << SEQUENCE_BITS, ref)
        for queue, levels in wanted.items()
        for ref, level in levels.items()
        if len(levels) < MANY
    ]
    rows = sql.find_refs(cursor, few, ROWS_LOOKED_AT) if few else []
    for queue, levels in wanted.items():
        if len(levels) >= MANY:
            first = queue << 32 | (min(levels.values()) + 1) << SEQUENCE_BITS
            rows += sql.find_any_ref(cursor, first, list(levels), ROWS_LOOKED_AT)
    worse = []
    for row, depth, ref in sorted(rows):
        level = wanted[row >> 32][ref]
        if row >> SEQUENCE_BITS & HELD > level:
            worse.append((row, level, depth, ref))
    sql.delete_urls(cursor, sorted(row for row, *_ in worse))
    return [(row >> 32, level, depth, ref) for row, level, depth, ref in worse]


def _put_in(cursor: Any, using: str, moved: list[tuple[int, int, int, str]]) -> None:
    queues = np.array([row[0] for row in moved])
    levels = np.array([row[1] for row in moved])
    depths = np.array([row[2] for row in moved])
    filled = fill(cursor, using, queues, levels, np.arange(len(moved)), depths, Lines(row[3] for row in moved))
    # `fill` has counted them as new.
    change(cursor, {campaign: Count(-count.urls, -count.held) for campaign, count in filled.campaigns.items()})
