"""Arrival logs: what a line costs the fetch loop and the writer, and how fast trawl manners judges them.

    ./trawl bench arrivals [--lines 1000000] [--hosts 100000] [--files 4] [--json FILE]

The lines are judged by a process of its own, whose peak memory is told.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import django

from bench.arguments import Parser
from bench.machine import line, machine
from bench.storage import peak_rss_mb

T = 1_796_000_000.0
BATCH = 300  # lines that the writer writes at once; it is how many results it takes at most
HOSTS_AT_ONCE = 1000


def main() -> None:
    """Measures, and prints."""
    options = _options()
    os.environ.setdefault("TRAWL_DATA", tempfile.gettempdir())
    os.environ.setdefault("TRAWL_SECRET_KEY", "of a bench")
    os.environ["DJANGO_SETTINGS_MODULE"] = "trawl_project.settings"
    django.setup()
    if options.judge:
        print(json.dumps(_judge([Path(name) for name in options.judge])))
        return
    told = machine()
    print(line(told))
    figures = {"log_request_us": _log_request(options.lines // 10), "off_us": _off()}
    with tempfile.TemporaryDirectory(prefix="trawl-bench-") as folder:
        paths, figures["write_us"] = _write(Path(folder), options)
        figures["bytes_a_line"] = sum(path.stat().st_size for path in paths) / options.lines
        words = [sys.executable, "-m", "bench.arrivals", "--judge", *map(str, paths)]
        judged = subprocess.run(words, capture_output=True, text=True, check=True)
        figures |= json.loads(judged.stdout)
    for name, value in figures.items():
        print(f"{name:16} {value:,.3f}")
    if options.json:
        options.json.write_text(json.dumps({"machine": told, **vars(options), "figures": figures}, default=str))


def _options() -> argparse.Namespace:
    parser = Parser("arrivals", __doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=4, help="as of so many worker processes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--judge", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


def _each_us(act: Callable[[], object], times: int) -> float:
    began = time.thread_time()
    for _ in range(times):
        act()
    return (time.thread_time() - began) / times * 1e6


def _visit(keeps_log: bool) -> Any:
    from crawl.fetch.visit import HostVisit
    from crawl.plan import Plan
    from crawl.record import Writer
    from frontier.claim import Visit
    from frontier.politeness import Pace

    writer = Writer(mock.Mock(), mock.Mock(), mock.Mock())
    around: Any = type("Around", (), {"proxies": (), "log_arrival": staticmethod(writer.log_arrival)})()
    lease = Visit(1, "h1.test", 1, 0, 1000, None, 0, "", [])
    visit = HostVisit(lease, mock.Mock(), around, pace=Pace(1000))
    plan: Any = Plan(
        *(1, 1, mock.Mock(), mock.Mock(), 1000, 1, 0, True, None, "trawl", True, False),
        arrival_log="1" if keeps_log else "",
    )
    visit.manners = (plan, None)
    return visit


def _log_request(times: int) -> float:
    """Microseconds of CPU on the fetch loop's thread for each request, the hand-over to the writer included."""
    from crawl.fetch.arrivals import log_request
    from crawl.fetch.response import Response

    visit = _visit(keeps_log=True)
    response = Response("http://h1.test/a/page.html", 200, address="127.0.0.1", started_at=T, arrived_at=T, ended_at=T)
    return _each_us(lambda: log_request(visit, response), times)


def _off() -> float:
    """The same without a log: one look whether there is one."""
    visit = _visit(keeps_log=False)
    return _each_us(lambda: visit.manners and visit.manners[0].arrival_log, 1_000_000)


def _arrivals(lines: int, hosts: int) -> Iterator[Any]:
    """Requests of hosts that are visited so many at a time, each a second after its last one."""
    from crawl.store.arrivals import PAGE, Arrival

    at_once = min(HOSTS_AT_ONCE, hosts)
    rounds = max(1, lines // hosts)
    hosts -= hosts % at_once
    for number in range(lines):
        round_, place = divmod(number, at_once)
        host = f"h{(round_ // rounds * at_once + place) % hosts}.test"
        at = T + round_ * 1.001 + place / at_once
        yield Arrival(
            *(
                at,
                at + 0.0005,
                at + 0.0006,
                host,
                f"192.0.2.{number % 250}",
                PAGE,
                "200",
                1.0,
                1.0,
                None,
                None,
                1,
                None,
            ),
            f"http://{host}/pages/{number}.html",
        )


def _write(folder: Path, options: argparse.Namespace) -> tuple[list[Path], float]:
    """The files, and microseconds of CPU on the writer's thread for each line."""
    from crawl.store.arrivals import ArrivalLogs

    logs = [ArrivalLogs(folder) for _ in range(options.files)]
    arrivals, spent, batch = _arrivals(options.lines, options.hosts), 0.0, 0
    while lines := list(islice(arrivals, BATCH)):
        began = time.thread_time()
        logs[batch % options.files].write({"1": lines})
        spent += time.thread_time() - began
        batch += 1
    return sorted((folder / "1").iterdir()), spent / options.lines * 1e6


def _judge(paths: list[Path]) -> dict[str, float]:
    from crawl.manners import Logs

    with tempfile.TemporaryDirectory(prefix="trawl-bench-") as folder:
        began, cpu = time.perf_counter(), time.process_time()
        logs = Logs(Path(folder))
        logs.read(paths)
        read = time.perf_counter()
        conduct = logs.judge(20)
        judged = time.perf_counter()
    if conduct.too_small or logs.reading.unreadable:
        raise SystemExit(f"{conduct.too_small} gaps too small, {logs.reading.unreadable} lines unreadable")
    return {
        "read_seconds": read - began,
        "judge_seconds": judged - read,
        "judge_cpu_seconds": time.process_time() - cpu,
        "peak_mb": peak_rss_mb(),
    }


if __name__ == "__main__":
    main()
