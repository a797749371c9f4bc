"""Sorted runs: an exact set of 16-byte keys in a few memory-mapped files.

A run file is a header of 32 bytes (magic, keys, columns, checksum), then the high halves of all keys in
order, then the low halves, then (in a run with values) one value per key; all little-endian uint64. Memory
follows the pages that look-ups touch, not the number of keys. A run is never changed; two runs become a new one.
"""

import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64

U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

MAGIC = 0x31_4E_55_52_4C_57_52_54  # "TRWLRUN1"
HEADER = 32
# Keys merged or looked up at a time: the bound on what that holds, about 20 MB.
CHUNK = 250_000
# A run is merged with the one before it when that is less than FAN times as large. 4 was measured
# best: fewer runs cost writes, more runs cost look-ups.
FAN = 4


@dataclass(frozen=True, slots=True)
class Run:
    """One sorted run in memory or mapped from a file; `value` is empty in a run of plain keys."""

    high: U64
    low: U64
    value: U64
    mapping: mmap.mmap | None = None

    def __len__(self) -> int:
        return len(self.high)

    def let_go(self) -> None:
        """Tells the kernel that the pages of the file that were read need not stay in this process's memory. They
        stay in the page cache while nobody else needs the room."""
        if self.mapping is not None:
            self.mapping.madvise(mmap.MADV_DONTNEED)

    @property
    def columns(self) -> tuple[U64, U64, U64]:
        return self.high, self.low, self.value


class DamagedRun(Exception):
    """A run file is missing, too short, or not a run file."""


def member(run: Run, high: U64, low: U64) -> tuple[Mask, npt.NDArray[np.intp]]:
    """Which of the keys (sorted by `high`) are in the run, and at which positions.

    Keys with equal high halves stand together, so the whole equal range is scanned: looking at its
    first slot only would let a key in twice.
    """
    found = np.zeros(len(high), bool)
    where = np.zeros(len(high), np.intp)
    at = np.searchsorted(run.high, high)
    asked = np.flatnonzero(at < len(run.high))
    at = at[asked]
    while len(asked):
        same = run.high[at] == high[asked]
        asked, at = asked[same], at[same]
        hit = run.low[at] == low[asked]
        found[asked[hit]] = True
        where[asked[hit]] = at[hit]
        asked, at = asked[~hit], at[~hit] + 1
        inside = at < len(run.high)
        asked, at = asked[inside], at[inside]
    return found, where


def merged(a: Run, b: Run) -> Iterator[Run]:
    """The union of two runs without common keys, in chunks of about CHUNK keys."""
    i = j = 0
    while i < len(a) or j < len(b):
        # Both runs are cut below the same high half, so no equal range spans a cut.
        next_i, next_j = min(i + CHUNK, len(a)), min(j + CHUNK, len(b))
        bounds = [run.high[end] for run, end in ((a, next_i), (b, next_j)) if end < len(run)]
        if bounds:
            bound = min(bounds)
            next_i = i + int(np.searchsorted(a.high[i:next_i], bound))
            next_j = j + int(np.searchsorted(b.high[j:next_j], bound))
            if next_i == i and next_j == j:  # an equal range longer than a chunk: take it whole
                next_i = i + int(np.searchsorted(a.high[i:], bound, side="right"))
                next_j = j + int(np.searchsorted(b.high[j:], bound, side="right"))
        yield _interleaved(_cut(a, i, next_i), _cut(b, j, next_j))
        a.let_go()
        b.let_go()
        i, j = next_i, next_j


def _cut(run: Run, start: int, end: int) -> Run:
    return Run(run.high[start:end], run.low[start:end], run.value[start:end])


def _interleaved(a: Run, b: Run) -> Run:
    if not len(b):
        return a
    if not len(a):
        return b
    places = np.searchsorted(a.high, b.high) + np.arange(len(b))
    from_b = np.zeros(len(a) + len(b), bool)
    from_b[places] = True
    columns = []
    for x, y in zip(a.columns, b.columns, strict=True):
        if len(x) + len(y) == 0:
            columns.append(x)
            continue
        column = np.empty(len(from_b), np.uint64)
        column[from_b], column[~from_b] = y, x
        columns.append(column)
    return _run(columns)


def _run(columns: Iterable[U64]) -> Run:
    high, low, value = columns
    return Run(high, low, value)


def joined(chunks: Iterator[Run]) -> Run:
    """Chunks as one run in memory."""
    parts = list(chunks)
    if len(parts) == 1:
        return parts[0]
    return _run(np.concatenate(column) for column in zip(*(part.columns for part in parts), strict=True))


def write(path: Path, size: int, chunks: Iterator[Run], with_values: bool) -> None:
    """Writes a run of `size` keys and makes it durable. Raises OSError; leaves no part of it behind."""
    columns = 3 if with_values else 2
    temporary = path.with_suffix(".tmp")
    try:
        with open(temporary, "wb") as file:
            sums = [xxh3_64() for _ in range(columns)]
            done = 0
            for chunk in chunks:
                for number, column in enumerate(chunk.columns[:columns]):
                    data = np.ascontiguousarray(column, "<u8").data
                    file.seek(HEADER + 8 * (number * size + done))
                    file.write(data)
                    sums[number].update(data)
                done += len(chunk)
            file.seek(0)
            np.array([MAGIC, size, columns, _checksum(sums)], "<u8").tofile(file)
            if done != size:
                raise ValueError(f"{path.name}: {done} keys instead of {size}")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes the names of new files in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(columns: list[xxh3_64]) -> int:
    """One number for the sums of all columns; not 0, which stands in files that were written without."""
    return xxh3_64(b"".join([column.digest() for column in columns])).intdigest() or 1


def load(path: Path, verify: bool = True) -> Run:
    """Maps a run file. Raises DamagedRun when it is not whole, or not what was written; `verify` reads all of it
    for that, 0.1 s for ten million keys."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            header = np.fromfile(file, "<u8", 4)
    except OSError as error:
        raise DamagedRun(f"{path}: {error.strerror}") from error
    if len(header) < 4 or header[0] != MAGIC or size != HEADER + 8 * int(header[1]) * int(header[2]):
        raise DamagedRun(f"{path}: not a whole run file")
    count, columns = int(header[1]), int(header[2])
    empty = np.empty(0, np.uint64)
    if not count:
        return Run(empty, empty, empty)
    try:
        mapped = np.memmap(path, "<u8", "r", HEADER, (columns, count))
    except OSError as error:  # replaced by a merge since it was looked at
        raise DamagedRun(f"{path}: {error.strerror}") from error
    run = Run(mapped[0], mapped[1], mapped[2] if columns == 3 else empty, mapped._mmap)  # type: ignore[attr-defined]
    if verify and header[3] and _sum_of(run, columns) != int(header[3]):
        raise DamagedRun(f"{path}: its contents are not what was written")
    return run


def _sum_of(run: Run, columns: int) -> int:
    sums = [xxh3_64() for _ in range(columns)]
    for number, column in enumerate(run.columns[:columns]):
        for start in range(0, len(run), CHUNK):
            sums[number].update(np.ascontiguousarray(column[start : start + CHUNK]).data)
            run.let_go()
    return _checksum(sums)
