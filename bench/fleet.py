"""What several workers and a merger take in together: canonicalising, admitting and merging at the same time.

    ./trawl bench fleet [--urls N] [--hosts N] [--stream crawl|random|sequential] [--workers N]
                        [--database URL] [--rounds N] [--json] [--data DIR]

The pages of one stream are dealt out to files beforehand, one per worker, so that making them is not in the
figure. Then each worker, a process of its own, reads its pages, canonicalises their links and admits them
in batches as a crawl does, while another process merges without a pause. The clock runs from the moment
when all of them begin to the end of the last merge. Ends with 1 unless the frontier then holds exactly the
distinct URLs of the stream.

With --database postgres://... the tables are on that server, in a new database that is dropped afterwards.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, which puts this folder on the path in place of the project's
    sys.path[0] = str(ROOT)

from bench import report  # noqa: E402
from bench.arguments import Parser, absolute, whole  # noqa: E402
from bench.fleet_processes import run_fleet  # noqa: E402
from bench.machine import line, machine  # noqa: E402
from bench.progress import Progress, clear  # noqa: E402
from bench.report import Column  # noqa: E402
from bench.storage import scratch_database  # noqa: E402
from bench.stream import KINDS, MAX_LINKS, Stream, Totals, lines  # noqa: E402

MOST_WORKERS = 128  # each has a file open while the stream is dealt out, and must be ready in START_SECONDS
COLUMNS = (
    Column("offered_per_s", "links offered/s, canonicalisation included", ",.0f"),
    Column("new_per_s", "new URLs/s", ",.0f"),
    Column("workers_s", "until the workers were done, s", ",.1f"),
    Column("wall_s", "until all was merged, s", ",.1f"),
    Column("merges", "merges", ",.0f"),
    Column("inbox_age_median_s", "age of the oldest link in the inbox, median s", ".1f"),
    Column("inbox_age_max_s", "  at most", ".1f"),
    Column("worker_cpu_us_per_link", "CPU of a worker, us a link of its own", ".2f"),
    Column("merger_cpu_us_per_link", "CPU of the merger, us a link", ".2f"),
    Column("worker_rss_mb", "peak memory of the largest worker, MB", ",.0f"),
    Column("merger_rss_mb", "peak memory of the merger, MB", ",.0f"),
)


def deal(stream: Stream, files: list[Path]) -> Totals:
    """Writes the pages of a stream to files in turn, and returns what all of them hold together."""
    progress = Progress("making the stream")
    opened = [file.open("w", encoding="ascii") for file in files]
    try:
        for number, page in enumerate(lines(stream)):
            opened[number % len(opened)].write(page)
            progress.say(f"{stream.distinct:,} URLs")
    finally:
        for file in opened:
            file.close()
    return stream.totals


def run_all(options: argparse.Namespace) -> tuple[Totals, list[dict[str, Any]]]:
    """All rounds, each with a frontier of its own."""
    scratch = Path(tempfile.mkdtemp(prefix="trawl-fleet-", dir=options.data))
    files = [scratch / f"pages-{number}" for number in range(options.workers)]
    rounds = []
    try:
        totals = deal(Stream(options.stream, options.urls, options.hosts), files)
        for number in range(options.rounds):
            data = scratch / f"round-{number}"
            data.mkdir()
            Progress(f"round {number + 1} of {options.rounds}").say(f"{options.workers} workers and a merger")
            with scratch_database(options.database) as database:
                rounds.append(run_fleet(files, data, database, totals))
            shutil.rmtree(data)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    clear()
    return totals, rounds


def table(told: dict[str, Any]) -> Table:
    drawn = Table(title=report.title(told), caption=f"median of {told['rounds']}; {line(told['machine'])}")
    drawn.add_column("", no_wrap=True)
    drawn.add_column(f"{told['workers']} workers and a merger", justify="right")
    for key, title, form in COLUMNS:
        drawn.add_row(title, format(told["median"][key], form))
    return drawn


def parse_options() -> argparse.Namespace:
    parser = Parser("fleet", __doc__)
    parser.add_argument("--urls", type=whole(), default=2_000_000, help="distinct URLs (default: %(default)s)")
    parser.add_argument("--hosts", type=whole(), help="hosts to spread them over (default: a fifth of the URLs)")
    parser.add_argument("--stream", choices=KINDS, default="crawl")
    parser.add_argument("--workers", type=whole(most=MOST_WORKERS), default=2)
    parser.add_argument("--database", metavar="URL", help="any database of a PostgreSQL server; it is left alone")
    parser.add_argument("--rounds", type=whole(), default=3)
    parser.add_argument("--json", action="store_true", help="the results as JSON; the table goes to standard error")
    parser.add_argument(
        "--data", type=absolute, help="where to make the scratch directory (default: the temporary one)"
    )
    options = parser.parse_args()
    options.hosts = options.hosts or max(1, options.urls // 5)
    if options.urls < options.workers * MAX_LINKS:
        parser.error(f"{options.workers} workers have pages for all with --urls {options.workers * MAX_LINKS} or more")
    parser.check_data(options.data)
    if options.database is not None:
        parser.check_postgresql(options.database)
    return options


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that scratch data goes
    try:
        totals, rounds = run_all(options)
        on = machine(options.database)
    except RuntimeError as error:
        return fail(str(error))
    except psycopg.Error as error:
        return fail(f"cannot use the PostgreSQL server ({str(error).splitlines()[0]})")
    told = {
        "stream": options.stream,
        "offered": totals.offered,
        "urls": totals.distinct,
        "hosts": totals.hosts,
        "workers": options.workers,
        "rounds": options.rounds,
        "machine": on,
        "exact": all(each["exact"] for each in rounds),
        "median": report.medians(rounds, COLUMNS),
        "each": rounds,
    }
    Console(stderr=options.json, width=None if sys.stdout.isatty() else 140).print(table(told))
    if options.json:
        print(json.dumps(told, indent=1))
    return 0 if told["exact"] else fail("the frontier does not hold exactly the URLs of the stream")


def fail(text: str) -> int:
    print(f"trawl bench fleet: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
