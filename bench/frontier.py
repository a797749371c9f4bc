"""How fast the frontier takes links in, gives visits out and ends them, beside a reference design.

    ./trawl bench frontier [--urls N] [--hosts N] [--stream crawl|random|sequential] [--drain]
                           [--database URL] [--vs-reference] [--rounds N] [--json] [--plot FILE.png] [--data DIR]

Every design gets the same links in the same batches, in a fresh directory that is deleted afterwards, and
in a process of its own, so that memory and written bytes are its own. The designs take turns in every
round. The table shows medians over the rounds; a ratio is the median of the ratios within each round, so
that a machine that slows down for a while weighs on both sides. A second process then starts on the same
data: how long to its first claim and its first merge. With --drain it claims and completes everything;
`sequential`, the work that published frontiers were measured with, always does.

Ends with 1 when a design does not hold exactly the distinct URLs of the stream, gives a URL twice, or keeps
one in a drain.

The reference is described in bench/reference.py. Both run SQLite with synchronous=FULL and the same cache.
With --database postgres://... both run on that server, each time in a new database that is dropped
afterwards; the reference is then that of bench/reference_postgresql.py, and disk, bytes written and
memory are the server's and ours, ours, as bench/storage.py says. Canonicalisation is left out on both
sides, and counted in once more for trawl alone.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, which puts this folder on the path in place of the project's
    sys.path[0] = str(ROOT)

from bench import report  # noqa: E402
from bench.arguments import Parser, absolute, whole  # noqa: E402
from bench.machine import machine  # noqa: E402
from bench.measure import REFERENCE, TRAWL, UNINDEXED  # noqa: E402
from bench.progress import clear  # noqa: E402
from bench.storage import scratch_database  # noqa: E402
from bench.stream import KINDS  # noqa: E402
from bench.visits import wait_politely  # noqa: E402

MOST_CACHE_MB = 2_000_000  # SQLite takes the KiB as 32 bits with a sign


def run_design(design: str, options: argparse.Namespace, label: str) -> dict[str, Any]:
    """One design through the stream in a fresh directory and database, then its restart.

    Raises CalledProcessError when it fails.
    """
    data = tempfile.mkdtemp(prefix="trawl-bench-", dir=options.data)
    try:
        with scratch_database(options.database) as database:
            place = ["--data", data, "--label", label]
            if database:
                place += ["--database", database]
            if options.reference_cache:
                place += ["--reference-cache", str(options.reference_cache)]
            size = ["--stream", options.stream, "--urls", str(options.urls), "--hosts", str(options.hosts)]
            measured = run_child("bench.measure", design, *place, *size)
            wait_politely()
            drain = []
            if options.drain:
                stream = measured["stream"]
                drain = ["--drain", "--distinct", str(stream["distinct"]), "--digest", str(stream["digest"])]
            return measured | run_child("bench.restart", design, *place, *drain, "--spawned-at", str(time.monotonic()))
    finally:
        shutil.rmtree(data, ignore_errors=True)


def run_child(module: str, *words: str) -> dict[str, Any]:
    """The JSON object that a module prints."""
    child = subprocess.run([sys.executable, "-m", module, *words], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    told: dict[str, Any] = json.loads(child.stdout)
    return told


def run_all(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """The rounds of every design; each round begins with another one."""
    designs: tuple[str, ...] = (TRAWL,)
    if options.vs_reference:
        designs = (TRAWL, REFERENCE) if options.database else (TRAWL, REFERENCE, UNINDEXED)
    results: dict[str, list[dict[str, Any]]] = {design: [] for design in designs}
    for number in range(options.rounds):
        turn = number % len(designs)
        for design in designs[turn:] + designs[:turn]:
            results[design].append(run_design(design, options, f"round {number + 1} of {options.rounds}, {design}"))
    clear()
    return results


def parse_options() -> argparse.Namespace:
    parser = Parser("frontier", __doc__)
    parser.add_argument("--urls", type=whole(), default=1_000_000, help="distinct URLs (default: %(default)s)")
    parser.add_argument("--hosts", type=whole(), help="hosts to spread them over (default: a fifth of the URLs)")
    parser.add_argument("--stream", choices=KINDS, default="crawl")
    parser.add_argument("--drain", action="store_true", help="claim and complete everything in the end")
    parser.add_argument("--database", metavar="URL", help="any database of a PostgreSQL server; it is left alone")
    parser.add_argument("--vs-reference", action="store_true", help="run the reference designs too")
    parser.add_argument(
        "--reference-cache",
        type=whole(most=MOST_CACHE_MB),
        metavar="MB",
        help="give the reference another SQLite cache",
    )
    parser.add_argument("--rounds", type=whole(), default=3)
    parser.add_argument("--json", action="store_true", help="the results as JSON; the tables go to standard error")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the rate against the size")
    parser.add_argument(
        "--data", type=absolute, help="where to make the scratch directories (default: the temporary one)"
    )
    options = parser.parse_args()
    options.hosts = options.hosts or max(1, options.urls // 5)
    options.drain = options.drain or options.stream == "sequential"
    if options.plot:
        parser.check_plot(options.plot)
    parser.check_data(options.data)
    if options.database is not None:
        parser.check_postgresql(options.database, "CHECKPOINT")
    return options


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that scratch data goes
    try:
        results = run_all(options)
        told = report.summary(results, options.stream, machine(options.database))
    except subprocess.CalledProcessError as error:
        return fail(f"{' '.join(error.cmd)} ended with {error.returncode}")
    except psycopg.Error as error:
        return fail(f"cannot use the PostgreSQL server ({str(error).splitlines()[0]})")
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 140)
    console.print(report.table(told), report.table_by_size(told))
    if options.json:
        print(json.dumps(told, indent=1))
    if options.plot:
        from bench.plot import plot  # takes a second to import

        try:
            plot(told, options.plot)
        except OSError as error:
            return fail(f"cannot write {options.plot} ({error.strerror})")
    return 0 if told["exact"] else fail("a design does not hold exactly the URLs of the stream, or gave one twice")


def fail(text: str) -> int:
    print(f"trawl bench frontier: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
