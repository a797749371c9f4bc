"""How fast the frontier takes links in, gives visits out and ends them, beside a reference design.

    python bench/frontier.py [--urls N] [--hosts N] [--stream crawl|random|sequential] [--vs-reference]
                             [--rounds N] [--json] [--data DIR]

Every design gets the same links in the same batches, in a fresh directory that is deleted afterwards, and
in a process of its own, so that memory and written bytes are its own. The designs take turns in every
round. The table shows medians over the rounds; a ratio is the median of the ratios within each round, so
that a machine that slows down for a while weighs on both sides. Ends with 1 when a design does not hold
exactly the distinct URLs of the stream.

The reference is described in bench/reference.py. Both run SQLite with synchronous=FULL and the same cache.
Canonicalisation is left out on both sides, and counted in once more for trawl alone.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
TRAWL = "trawl"
REFERENCES = ("reference", "reference without index")
KINDS = ("crawl", "random", "sequential")


class Column(NamedTuple):
    """A measure: its key in the JSON, what the table calls it, how it is shown."""

    key: str
    title: str
    form: str


COLUMNS = (
    Column("offered_per_s", "links offered, a second", ",.0f"),
    Column("offered_per_s_with_canonicalisation", "the same with canonicalisation", ",.0f"),
    Column("new_per_s", "new URLs, a second", ",.0f"),
    Column("admit_cpu_us_per_link", "CPU a link offered, us", ".2f"),
    Column("merge_share", "share of that time in merges", ".0%"),
    Column("second_half_rate", "rate of the second half / first", ".2f"),
    Column("claims_per_s", "URLs claimed, a second", ",.0f"),
    Column("claim_p50_ms", "claim of 512 hosts, median ms", ".2f"),
    Column("claim_p99_ms", "claim of 512 hosts, p99 ms", ".2f"),
    Column("completes_per_s", "visits completed, a second", ",.0f"),
    Column("bytes_per_url", "bytes on disk a URL", ",.0f"),
    Column("bytes_written_per_url", "bytes written a new URL", ",.0f"),
    Column("rss_mb", "peak memory, MB", ",.0f"),
)


def run_child(design: str, options: argparse.Namespace, label: str) -> dict[str, Any]:
    """One design through the stream in a fresh directory. Raises CalledProcessError when it fails."""
    if options.data:
        options.data.mkdir(parents=True, exist_ok=True)
    data = tempfile.mkdtemp(prefix="trawl-bench-", dir=options.data)
    command = [sys.executable, "-m", "bench.measure", design, "--data", data, "--stream", options.stream]
    command += ["--urls", str(options.urls), "--hosts", str(options.hosts), "--label", label]
    if options.reference_cache:
        command += ["--reference-cache", str(options.reference_cache)]
    try:
        child = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    measured: dict[str, Any] = json.loads(child.stdout)
    return measured


def run_all(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """The rounds of every design; each round begins with another one."""
    designs = (TRAWL, *REFERENCES) if options.vs_reference else (TRAWL,)
    results: dict[str, list[dict[str, Any]]] = {design: [] for design in designs}
    for number in range(options.rounds):
        turn = number % len(designs)
        for design in designs[turn:] + designs[:turn]:
            results[design].append(run_child(design, options, f"round {number + 1} of {options.rounds}, {design}"))
    if sys.stderr.isatty():
        print(f"\r{'':<78}\r", end="", file=sys.stderr)
    return results


def medians(rounds: list[dict[str, Any]]) -> dict[str, float]:
    return {
        column.key: statistics.median(each[column.key] for each in rounds)
        for column in COLUMNS
        if column.key in rounds[0]
    }


def ratios(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, float]:
    """trawl / reference per measure, both of the same round; the median over the rounds."""
    return {
        column.key: statistics.median(a[column.key] / b[column.key] for a, b in zip(ours, theirs, strict=True))
        for column in COLUMNS
        if column.key in theirs[0] and all(each[column.key] for each in theirs)
    }


def summary(results: dict[str, list[dict[str, Any]]], options: argparse.Namespace) -> dict[str, Any]:
    """Everything as one JSON object."""
    return {
        "stream": options.stream,
        "offered": results[TRAWL][0]["stream"]["offered"],
        "urls": results[TRAWL][0]["stream"]["distinct"],
        "hosts": results[TRAWL][0]["stream"]["hosts"],
        "rounds": options.rounds,
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "python": platform.python_version()},
        "exact": all(is_exact(each) for rounds in results.values() for each in rounds),
        "designs": {name: {"median": medians(rounds), "rounds": rounds} for name, rounds in results.items()},
        "ratios": {name: ratios(results[TRAWL], rounds) for name, rounds in results.items() if name != TRAWL},
    }


def is_exact(measured: dict[str, Any]) -> bool:
    stream = measured["stream"]
    return bool(measured["urls"] == stream["distinct"] and measured["hosts"] == stream["hosts"])


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def table(told: dict[str, Any]) -> Table:
    """Measures down, designs across, and what trawl is to each reference."""
    title = f"{told['stream']}: {told['offered']:,} links, {told['urls']:,} URLs, {told['hosts']:,} hosts"
    drawn = Table(title=title, caption=f"median of {told['rounds']}; {told['machine']['cpu']}")
    drawn.add_column("")
    for name in (*told["designs"], *(f"trawl / {name}" for name in told["ratios"])):
        drawn.add_column(name, justify="right")
    for key, label, form in COLUMNS:
        values = [each["median"].get(key) for each in told["designs"].values()]
        factors = [each.get(key) for each in told["ratios"].values()]
        drawn.add_row(
            label,
            *("" if value is None else format(value, form) for value in values),
            *("" if factor is None else f"{factor:.2f}" for factor in factors),
        )
    return drawn


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=1_000_000, help="distinct URLs (default: %(default)s)")
    parser.add_argument("--hosts", type=int, help="hosts to spread them over (default: a fifth of the URLs)")
    parser.add_argument("--stream", choices=KINDS, default="crawl")
    parser.add_argument("--vs-reference", action="store_true", help="run the reference designs too")
    parser.add_argument("--reference-cache", type=int, metavar="MB", help="give the reference another SQLite cache")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="the results as JSON; the table goes to standard error")
    parser.add_argument("--data", type=Path, help="where to make the scratch directories (default: the temporary one)")
    options = parser.parse_args()
    options.hosts = options.hosts or max(1, options.urls // 5)
    if min(options.urls, options.hosts, options.rounds) < 1:
        parser.error("--urls, --hosts and --rounds must be positive")
    try:
        results = run_all(options)
    except subprocess.CalledProcessError as error:
        print(f"frontier bench: {' '.join(error.cmd)} ended with {error.returncode}", file=sys.stderr)
        return 1
    told = summary(results, options)
    Console(stderr=options.json, width=None if sys.stdout.isatty() else 140).print(table(told))
    if options.json:
        print(json.dumps(told, indent=1))
    if not told["exact"]:
        print("frontier bench: a design does not hold exactly the URLs of the stream", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
