"""The cuckoo filter of blocked domains: 'surely not blocked', or 'ask the database'.

It only ever grows. A removed domain stays in it and costs a look-up now and then, until the filter is
built anew (frontier/blocks.py). To delete from it would not be safe: once the filter has grown past its first
table, a deletion may take the fingerprint of another domain instead (22 of 25,000 kept domains were lost so,
docs/decisions.md), and two processes that are out of step could delete twice what was inserted once.
"""

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from scf import PyScalableCuckooFilter  # type: ignore[import-untyped]
from xxhash import xxh3_64_hexdigest, xxh3_128

# Asked for; by its 14-bit fingerprints 0.03 % of unblocked names come out positive, 1.8 to 3.5 bytes a domain.
FALSE_POSITIVES = 0.001
MIN_CAPACITY = 4096
# Room for what is added later, since every further table of a filter costs each look-up time and memory.
HEADROOM = 1.25
MAGIC = b"TRAWLBLK"
FOOTER_BYTES = 512
_Result = TypeVar("_Result")

# What stands for a name in the filter. The crate's own hash spreads short names badly: "x1.com", "x2.com" and so
# on overflow a filter for 5 million when it is a third full.
_key = xxh3_64_hexdigest
# The filter of each owner thread: PyO3 lets no other thread use it, or free it.
_own = threading.local()


class DamagedFilter(Exception):
    """A filter file is missing, not whole, or not what was written."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a filter holds: all blocks up to a version (with its token) and a row id; see frontier/blocks.py."""

    version: int = 0
    token: int = 0
    last_id: int = 0
    removed: int = 0  # domains in the filter that the table has lost


class DomainFilter:
    """A cuckoo filter that any thread may ask: it lives in a thread of its own and gets there in batches.

    A call from outside costs about 30 us however many names it brings; each name costs 0.3 us.
    """

    def __init__(self, domains: int = 0) -> None:
        self._thread = ThreadPoolExecutor(1, "domain-filter")
        self.capacity = max(MIN_CAPACITY, int(domains * HEADROOM))
        self.domains = 0  # insertions so far
        self._run(_make, self.capacity)

    def _run(self, function: Callable[..., _Result], *args: Any) -> _Result:
        return self._thread.submit(function, *args).result()

    def add(self, domains: list[str]) -> None:
        """Inserts domains."""
        self._run(_insert, domains)
        self.domains += len(domains)

    def suspects(self, names: Iterable[str]) -> list[str]:
        """Those names that may be in the set; the others surely are not."""
        return self._run(_suspects, names)

    def save(self, path: Path, stamp: Stamp) -> None:
        """Writes the filter to a durable file in one step. Raises OSError; leaves no part of it behind."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.stem}-{secrets.token_hex(8)}.part")
        try:
            self._run(_write, str(part))
            told = {"digest": _digest(part), "capacity": self.capacity, "domains": self.domains, **asdict(stamp)}
            with open(part, "ab") as file:
                file.write(json.dumps(told).encode().ljust(FOOTER_BYTES) + MAGIC)
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: Path) -> "tuple[DomainFilter, Stamp]":
        """A filter from its file. Raises DamagedFilter."""
        try:
            before = path.stat()
            told = _footer(path)
            if _digest(path, FOOTER_BYTES + len(MAGIC)) != told.pop("digest"):
                raise DamagedFilter(f"{path}: its digest is wrong")
            loaded = cls.__new__(cls)
            loaded._thread = ThreadPoolExecutor(1, "domain-filter")
            loaded.capacity, loaded.domains = told.pop("capacity"), told.pop("domains")
            loaded._run(_read, str(path))
            if _identity(path.stat()) != _identity(before):
                raise DamagedFilter(f"{path}: it was replaced while it was read")
            return loaded, Stamp(**told)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedFilter(f"{path}: {error}") from error


def _identity(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _footer(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        file.seek(-(FOOTER_BYTES + len(MAGIC)), os.SEEK_END)
        footer = file.read()
    if not footer.endswith(MAGIC):
        raise DamagedFilter(f"{path}: not a whole filter file")
    told = json.loads(footer[:FOOTER_BYTES])
    if not isinstance(told, dict):
        raise DamagedFilter(f"{path}: not a filter file")
    return told


def _digest(path: Path, without: int = 0) -> str:
    """The digest of a file but for its last bytes."""
    left = path.stat().st_size - without
    state = xxh3_128()
    with open(path, "rb") as file:
        while left > 0 and (chunk := file.read(min(left, 1 << 20))):
            state.update(chunk)
            left -= len(chunk)
    return state.hexdigest()


# --- on the owner thread -------------------------------------------------------------------------------------


def _make(capacity: int) -> None:
    _own.filter = PyScalableCuckooFilter(capacity, FALSE_POSITIVES)


def _insert(domains: list[str]) -> None:
    insert = _own.filter.insert
    for domain in domains:
        insert(_key(domain.encode()))


def _suspects(names: Iterable[str]) -> list[str]:
    might_contain = _own.filter.might_contain
    return [name for name in names if might_contain(_key(name.encode()))]


def _write(path: str) -> None:
    _own.filter.write_to_file(path)


def _read(path: str) -> None:
    # What follows the filter in the file is left unread.
    _own.filter = PyScalableCuckooFilter.read_from_file(path)
