"""How rows travel as a parameter: one JSON text, for both databases."""

import json
from collections.abc import Iterable
from typing import Any


def pack(values: Iterable[Any]) -> str:
    """The parameter for `rows`: an array of scalars (one column) or of arrays."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))
