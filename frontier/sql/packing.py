"""What both databases share: how rows travel as a parameter, one JSON text, and how queues are asked for."""

import json
from collections.abc import Iterable
from typing import Any


def pack(values: Iterable[Any]) -> str:
    """The parameter for `rows`: an array of scalars (one column) or of arrays."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def by_count(queues: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """The ids of queues by the number of URLs that is wanted of each."""
    found: dict[int, list[int]] = {}
    for queue, count in queues:
        found.setdefault(count, []).append(queue)
    return found
