"""How a rate changes with the size of a frontier, reckoned from samples taken during its growth."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

WINDOWS = 40
DECAY_URLS = 500_000  # below that the few merges of a stream say nothing of how the rate falls
MILLION = 1_000_000


class Sample(NamedTuple):
    """So far: links offered, distinct URLs among them, seconds spent. Taken when everything is merged."""

    offered: int
    distinct: int
    seconds: float


def rates(samples: Sequence[Sample]) -> dict[str, Any]:
    """The rates of a growth by size; the first sample is that of the empty frontier.

    `stretches`: between the marks of 1, 2, 5, 10 ... million distinct URLs. `windows`: WINDOWS of equal size.
    Both as {"to": distinct URLs at its end, "offered_per_s", "new_per_s"}. And two shares, where the growth
    is long enough for them: `second_half_rate` is the rate of the second half of the links to that of the
    first, `last_5m_rate` that of the last 5 million distinct URLs to that of the first 2 million.
    """
    told: dict[str, Any] = {"stretches": stretches(samples), "windows": windows(samples)}
    last = samples[-1]
    if last.distinct >= DECAY_URLS:
        middle = next(sample for sample in samples if sample.offered >= last.offered / 2)
        told["second_half_rate"] = _rate(middle, last) / _rate(samples[0], middle) if middle != last else 1.0
    if last.distinct >= 7 * MILLION:
        early, late = _at(samples, 2 * MILLION), _at(samples, last.distinct - 5 * MILLION)
        told["last_5m_rate"] = _rate(late, last) / _rate(samples[0], early)
    return told


def stretches(samples: Sequence[Sample]) -> list[dict[str, float]]:
    """The rates between marks. A stretch ends with the first sample at or after its mark, the last one at the end."""
    ends = [_at(samples, mark) for mark in _marks(samples[-1].distinct)]
    return _between([samples[0], *(end for end in ends if end != samples[-1]), samples[-1]])


def windows(samples: Sequence[Sample]) -> list[dict[str, float]]:
    """The rates in WINDOWS equal parts of the distinct URLs. Between two samples the work counts as even."""
    offered, distinct, seconds = np.array(samples, float).T
    grid = np.linspace(0, distinct[-1], WINDOWS + 1)
    edges = zip(np.interp(grid, distinct, offered), grid, np.interp(grid, distinct, seconds), strict=True)
    return _between([Sample(round(links), round(urls), float(spent)) for links, urls, spent in edges])


def _marks(distinct: int) -> Iterator[int]:
    size = MILLION
    while size <= distinct:
        yield from (factor * size for factor in (1, 2, 5) if factor * size <= distinct)
        size *= 10


def _at(samples: Sequence[Sample], distinct: int) -> Sample:
    return next(sample for sample in samples if sample.distinct >= distinct)


def _rate(start: Sample, end: Sample) -> float:
    return (end.offered - start.offered) / max(end.seconds - start.seconds, 1e-9)


def _between(edges: Sequence[Sample]) -> list[dict[str, float]]:
    return [
        {
            "to": end.distinct,
            "offered_per_s": _rate(start, end),
            "new_per_s": (end.distinct - start.distinct) / max(end.seconds - start.seconds, 1e-9),
        }
        for start, end in pairwise(edges)
        if end != start
    ]
