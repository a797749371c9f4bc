"""The rounds of all designs as one object, and as tables."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from bench import machine


class Column(NamedTuple):
    """A measure: its key in the JSON, what the table calls it, how it is shown."""

    key: str
    title: str
    form: str


COLUMNS = (
    Column("offered_per_s", "links offered/s", ",.0f"),
    Column("offered_per_s_with_canonicalisation", "  with canonicalisation", ",.0f"),
    Column("new_per_s", "new URLs/s", ",.0f"),
    Column("admit_cpu_us_per_link", "CPU a link offered, us", ".2f"),
    Column("merge_share", "share of merges in it", ".0%"),
    Column("second_half_rate", "rate of the second half / first", ".2f"),
    Column("last_5m_rate", "rate of the last 5M / first 2M", ".2f"),
    Column("claims_per_s", "512 hosts, 1 URL each: claimed/s", ",.0f"),
    Column("claim_p50_ms", "  claim, median ms", ".2f"),
    Column("claim_p99_ms", "  claim, p99 ms", ".2f"),
    Column("completes_per_s", "  completed/s, as claimed", ",.0f"),
    Column("round_trips_per_s", "  claimed and completed/s", ",.0f"),
    Column("completes_4096_per_s", "  completed/s, 4,096 a transaction", ",.0f"),
    Column("batch_claims_per_s", "64 hosts, 8 URLs each: claimed/s", ",.0f"),
    Column("batch_claim_p50_ms", "  claim, median ms", ".2f"),
    Column("batch_claim_p99_ms", "  claim, p99 ms", ".2f"),
    Column("batch_completes_per_s", "  completed/s, as claimed", ",.0f"),
    Column("batch_round_trips_per_s", "  claimed and completed/s", ",.0f"),
    Column("bytes_per_url", "bytes on disk a URL", ",.0f"),
    Column("bytes_written_per_url", "bytes written a new URL", ",.0f"),
    Column("rss_mb", "peak memory, MB", ",.0f"),
    Column("rss_end_mb", "memory at the end, MB", ",.0f"),
    Column("rss_anonymous_mb", "  of that not mapped files", ",.0f"),
    Column("restart_claim_s", "restart to the first claim, s", ".2f"),
    Column("restart_claim_with_setup_s", "  with the start of the program", ".2f"),
    Column("restart_merge_s", "restart to the first merge, s", ".2f"),
    Column("restart_merge_with_setup_s", "  with the start of the program", ".2f"),
    Column("drain_per_s", "drain: claimed and completed/s", ",.0f"),
    Column("drain_claims_per_s", "  claimed/s", ",.0f"),
    Column("drain_completes_per_s", "  completed/s", ",.0f"),
)
Rounds = list[dict[str, Any]]


def medians(rounds: Rounds, columns: Sequence[Column] = COLUMNS) -> dict[str, float]:
    """Of every measure that all rounds have."""
    return {key: statistics.median(each[key] for each in rounds) for key in _keys(rounds, columns)}


def ratios(ours: Rounds, theirs: Rounds) -> dict[str, float]:
    """Ours / theirs per measure, both of the same round; the median over the rounds."""
    return {
        key: statistics.median(a[key] / b[key] for a, b in zip(ours, theirs, strict=True))
        for key in _keys([*ours, *theirs], COLUMNS)
        if all(each[key] for each in theirs)
    }


def _keys(rounds: Rounds, columns: Sequence[Column]) -> list[str]:
    return [column.key for column in columns if all(each.get(column.key) is not None for each in rounds)]


def rates_by_size(rounds: Rounds, name: str) -> list[dict[str, float]]:
    """Medians over the rounds of `stretches` or `windows` (see bench/rates.py), which end at the same sizes."""
    return [
        {key: statistics.median(each[key] for each in same) for key in same[0]}
        for same in zip(*(each[name] for each in rounds), strict=False)
    ]


def is_exact(measured: dict[str, Any]) -> bool:
    """Does the design hold the URLs of the stream, and did every one come out at most once, or once in a drain?"""
    stream = measured["stream"]
    whole = measured["urls"] == stream["distinct"] and measured["hosts"] == stream["hosts"]
    return bool(whole and not measured["given_twice"] and measured.get("drain_exact", True))


def summary(results: dict[str, Rounds], stream: str, on: dict[str, str | int]) -> dict[str, Any]:
    """Everything as one JSON object; the first design is the one that the others are compared with."""
    ours, *_ = results
    rounds = results[ours]
    totals = rounds[0]["stream"]
    return {
        "stream": stream,
        "offered": totals["offered"],
        "urls": totals["distinct"],
        "hosts": totals["hosts"],
        "rounds": len(rounds),
        "machine": on,
        "exact": all(is_exact(each) for each_design in results.values() for each in each_design),
        "designs": {
            name: {
                "median": medians(rounds),
                "stretches": rates_by_size(rounds, "stretches"),
                "windows": rates_by_size(rounds, "windows"),
                "rounds": rounds,
            }
            for name, rounds in results.items()
        },
        "ratios": {name: ratios(rounds, theirs) for name, theirs in results.items() if name != ours},
    }


def title(told: dict[str, Any]) -> str:
    """What went in."""
    return f"{told['stream']}: {told['offered']:,} links, {told['urls']:,} URLs, {told['hosts']:,} hosts"


def table(told: dict[str, Any]) -> Table:
    """Measures down, designs across, and what the first design is to each of the others."""
    drawn = Table(title=title(told), caption=f"median of {told['rounds']}; {machine.line(told['machine'])}")
    _head(drawn, told)
    for key, label, form in COLUMNS:
        values = [each["median"].get(key) for each in told["designs"].values()]
        factors = [each.get(key) for each in told["ratios"].values()]
        if any(value is not None for value in values):
            drawn.add_row(label, *_cells(values, form), *_cells(factors, ".2f"))
    return drawn


def table_by_size(told: dict[str, Any]) -> Table:
    """Stretches down, designs across: links offered/s and new URLs/s, and the ratio of the offered."""
    drawn = Table(title="links offered/s, new URLs/s by distinct URLs held")
    _head(drawn, told)
    for start, same in _same_stretches(told):
        label = f"{start:,.0f} to {same[0]['to']:,.0f}"
        shown = [f"{each['offered_per_s']:,.0f} / {each['new_per_s']:,.0f}" for each in same]
        factors = [same[0]["offered_per_s"] / other["offered_per_s"] for other in same[1:]]
        drawn.add_row(label, *shown, *_cells(factors, ".2f"))
    return drawn


def _same_stretches(told: dict[str, Any]) -> Iterator[tuple[float, Sequence[dict[str, float]]]]:
    """Where each stretch of the first design starts, and that stretch of every design."""
    start = 0.0
    for same in zip(*(each["stretches"] for each in told["designs"].values()), strict=False):
        yield start, same
        start = same[0]["to"]


def _head(drawn: Table, told: dict[str, Any]) -> None:
    ours = next(iter(told["designs"]))
    drawn.add_column("", no_wrap=True)
    for name in (*told["designs"], *(f"{ours} / {name}" for name in told["ratios"])):
        drawn.add_column(name, justify="right")


def _cells(values: Sequence[float | None], form: str) -> list[str]:
    return ["-" if value is None else format(value, form) for value in values]
