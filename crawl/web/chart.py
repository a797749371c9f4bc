"""Rates over time as lines of an SVG picture: no script draws it, so that it can be replaced every few seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from crawl.models import Sample
from crawl.progress import duration

WIDTH, HEIGHT = 600, 120
MOST_POINTS = 200  # wide enough for the eye; a mean of neighbours above that


@dataclass(frozen=True, slots=True)
class Line:
    """One line: `points` as SVG has them, and the latest rate."""

    name: str
    points: str
    latest: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines of rates per second; empty without two samples."""

    lines: list[Line]
    highest: float = 0.0
    span: str = ""

    @property
    def text(self) -> str:
        """The same for who does not see it."""
        latest = ", ".join(f"{line.name} {line.latest:.1f}" for line in self.lines)
        return f"a second, over the last {self.span}: now {latest}; at most {self.highest:.1f}"


def chart(samples: Sequence[Sample], fields: Sequence[tuple[str, str]]) -> Chart:
    """The rates of some fields of samples; `fields`: names of columns, and what they are called."""
    step = max(1, len(samples) // MOST_POINTS)
    chosen = [*samples[:-1:step], *samples[-1:]]
    spans = [(one, other) for one, other in pairwise(chosen) if other.at > one.at]
    if not spans:
        return Chart([])
    began, ended = spans[0][0].at, spans[-1][1].at
    rates = {
        name: [(getattr(b, column) - getattr(a, column)) * 1000 / (b.at - a.at) for a, b in spans]
        for column, name in fields
    }
    highest = max(max(values) for values in rates.values()) or 1.0
    lines = []
    for name, values in rates.items():
        if any(values):
            points = [
                f"{WIDTH * (b.at - began) / (ended - began):.1f},{HEIGHT - HEIGHT * max(value, 0) / highest:.1f}"
                for (_, b), value in zip(spans, values, strict=True)
            ]
            lines.append(Line(name, " ".join([f"0,{points[0].split(',')[1]}", *points]), values[-1]))
    return Chart(lines, highest, duration((ended - began) / 1000))
