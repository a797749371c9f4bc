"""Filters in front of the runs: they tell the merge which keys are surely new. In memory only, made from the runs.

A key goes in as 64 bits, mixed from both of its halves: two keys that share them are one more false positive.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from scf import PyScalableCuckooFilter  # type: ignore[import-untyped]

from frontier.lines import I64
from frontier.seen.prechecks import BLOOM, CUCKOO, Filter, choice, package
from frontier.seen.runs import CHUNK, U64, Mask, Run

# Of the new keys, the share that is looked up in the runs for nothing. Lower rates take more memory and more time a
# key, to spare less than one look-up in a hundred.
FALSE_POSITIVES = 0.01
MIN_CAPACITY = 1_000_000
# Room for what is to come: a filter that is full is made anew from all runs.
HEADROOM = 1.5
_MIX = np.uint64(0x9E37_79B9_7F4A_7C15)
_Result = TypeVar("_Result")
# The cuckoo filter of each owner thread: PyO3 lets no other thread use it, or free it.
_own = threading.local()


class BloomFilter:
    """rbloom: 1.2 bytes a key of its capacity at 1 %."""

    def __init__(self, capacity: int) -> None:
        self._bloom = package(BLOOM).Bloom(capacity, FALSE_POSITIVES)

    def add(self, keys: U64) -> None:
        self._bloom.update(keys.tolist())

    def may_hold(self, keys: U64) -> Mask:
        return np.array(list(map(self._bloom.__contains__, keys.tolist())), bool)


class CuckooFilter:
    """cjrh-scalable-cuckoo-filter, in a thread of its own; its other traps are told in frontier/blockfilter.py.

    It fills up with keys that are inserted twice, and is never deleted from.
    """

    def __init__(self, capacity: int) -> None:
        self._thread = ThreadPoolExecutor(1, "seen-filter")
        self._run(_make, capacity)

    def add(self, keys: U64) -> None:
        self._run(_insert, keys)

    def may_hold(self, keys: U64) -> Mask:
        return self._run(_may_hold, keys)

    def _run(self, function: Callable[..., _Result], *args: Any) -> _Result:
        return self._thread.submit(function, *args).result()


def _make(capacity: int) -> None:
    _own.filter = PyScalableCuckooFilter(capacity, FALSE_POSITIVES)


def _insert(keys: U64) -> None:
    insert = _own.filter.insert
    for text in _texts(keys):
        insert(text)


def _may_hold(keys: U64) -> Mask:
    return np.array(list(map(_own.filter.might_contain, _texts(keys))), bool)


def _texts(keys: U64) -> list[str]:
    """The keys in hexadecimal: texts take 0.2 us, bytes 0.8 us, integers 1.7 us each."""
    text = keys.tobytes().hex()
    return [text[start : start + 16] for start in range(0, len(text), 16)]


FILTERS: dict[str, Callable[[int], Filter]] = {BLOOM: BloomFilter, CUCKOO: CuckooFilter}


class Sieve:
    """A filter that is kept in step with the run files: no answer before it holds every key of every one."""

    def __init__(self, make: Callable[[int], Filter]) -> None:
        self._make = make
        self._filter: Filter | None = None
        self._files: set[str] = set()  # whose keys are all in the filter
        self._capacity = 0

    def follow(self, runs: dict[str, Run]) -> None:
        """Makes the filter anew when it lacks a file (at the start, after another process's merge, after a merge that
        was cut short), or when it is full."""
        keys = sum(map(len, runs.values()))
        if self._filter is not None and runs.keys() <= self._files and keys <= self._capacity:
            self._files &= runs.keys()
            return
        self._files = set()
        self._capacity = max(MIN_CAPACITY, int(HEADROOM * keys))
        self._filter = None  # frees the old one first
        self._filter = self._make(self._capacity)
        for file, run in runs.items():
            for start in range(0, len(run), CHUNK):
                part = slice(start, start + CHUNK)
                self._filter.add(_mixed(run.high[part], run.low[part]))
            run.let_go()
            self._files.add(file)

    def extend(self, fresh: Run, file: str, replaces: list[str]) -> None:
        """Takes in new keys, which went into this file together with those of the files it replaces."""
        if self._filter is not None and self._files.issuperset(replaces):
            self._filter.add(_mixed(fresh.high, fresh.low))
            self._files.add(file)

    def suspects(self, high: U64, low: U64) -> I64:
        """The places of the keys that the runs must be asked for, in order; call `follow` first."""
        if self._filter is None:
            return np.arange(len(high))
        return np.flatnonzero(self._filter.may_hold(_mixed(high, low)))


def _mixed(high: U64, low: U64) -> U64:
    return (high * _MIX) ^ low


def sieve() -> Sieve | None:
    """The merge's pre-check that the setting names, or None."""
    kind = choice().filter
    return Sieve(FILTERS[kind]) if kind else None
