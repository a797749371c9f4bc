"""Domain blocks at scale: import, loading, memory and verdicts of millions of blocked domains.

    ./trawl bench blocks [--domains 5000000] [--rounds 3] [--hosts 1000000] [--data DIR]

Every round has an empty SQLite database in a directory of its own and, for each thing that is measured, a fresh
process, so that no memory is counted twice. A table and a JSON object go to standard output.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from bench.arguments import Parser, absolute, whole
from bench.measure import set_up_django

ROWS = {
    "import_s": ("import of the list, s", 1),
    "import_per_s": ("  domains a second", 0),
    "again_s": ("the same import once more, s", 1),
    "table_mb": ("database, MB", 0),
    "from_database_s": ("filter from the database, s", 1),
    "from_file_s": ("filter from its file, s", 3),
    "file_mb": ("filter file, MB", 1),
    "rss_mb": ("memory of the filter, MB", 1),
    "catch_up_ms": ("a change by another process, ms", 2),
    "false_positives": ("false positives, % of names", 4),
    "cached_ns": ("verdict, unblocked, known, CPU ns", 0),
    "cold_batch_ns": ("verdict, unblocked, unknown, 500 at once, CPU ns", 0),
    "cold_single_us": ("verdict, unblocked, unknown, alone, us", 1),
    "blocked_batch_us": ("verdict, blocked, unknown, 500 at once, us", 1),
    "database_batch_us": ("verdict without the filter, 500 at once, us", 1),
    "walk_s": ("marking the known hosts, s", 1),
}
BATCH = 500
LEAST_DOMAINS = 20_000  # CHUNK of frontier/blocks.py: the filter of fewer is not kept in a file


def domain(number: int) -> str:
    """One of the names of the list: 8 to 30 characters, as in public lists."""
    rng = random.Random(number)
    label = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=rng.randint(4, 16)))
    return f"{label}x{number:x}.{rng.choice(('com', 'net', 'xyz', 'co.uk', 'top', 'blogspot.com'))}"


def main() -> None:
    parser = Parser("blocks", __doc__)
    parser.add_argument("--domains", type=whole(LEAST_DOMAINS), default=5_000_000)
    parser.add_argument(
        "--hosts", type=whole(), default=1_000_000, help="known hosts, of which one in a hundred is blocked"
    )
    parser.add_argument("--rounds", type=whole(), default=3)
    parser.add_argument("--data", type=absolute, help="where the directories are made; default: a temporary one")
    parser.add_argument("--step", choices=[*STEPS, "list"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        run_step(options)
        return
    parser.check_data(options.data)
    rounds = []
    for number in range(1, options.rounds + 1):
        with tempfile.TemporaryDirectory(prefix="trawl-blocks-", dir=options.data) as directory:
            rounds.append(one_round(Path(directory), options))
        print(f"round {number}: {rounds[-1]}", file=sys.stderr, flush=True)
    medians = {key: statistics.median(found[key] for found in rounds) for key in ROWS}
    print(f"{options.domains:,} domains, {options.hosts:,} known hosts; median of {options.rounds}")
    for key, (title, digits) in ROWS.items():
        print(f"{title:50}{medians[key]:>14,.{digits}f}")
    print(json.dumps({"domains": options.domains, "hosts": options.hosts, "rounds": rounds}))


def one_round(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    found: dict[str, float] = {}
    for step in ("list", *STEPS):
        command = [sys.executable, "-m", "bench.blocks", "--step", step, "--data", str(directory)]
        command += ["--domains", str(options.domains), "--hosts", str(options.hosts)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


def run_step(options: argparse.Namespace) -> None:
    if options.step == "list":
        with open(options.data / "list.txt", "w") as file:
            file.writelines(f"0.0.0.0 {domain(number)}\n" for number in range(options.domains))
        print("{}")
        return
    set_up_django(options.data)
    print(json.dumps(STEPS[options.step](options)))


# --- what is measured, each in a process of its own ------------------------------------------------------------


def importing(options: argparse.Namespace) -> dict[str, float]:
    """`trawl block import` of a hosts file, twice, on a database that knows no host."""
    from django.core.management import call_command

    for alias in ("default", "inbox"):
        call_command("migrate", database=alias, verbosity=0, interactive=False)
    first, again = (timed(lambda: call_command("block", "import", str(options.data / "list.txt"))) for _ in range(2))
    table = sum(path.stat().st_size for path in options.data.glob("trawl.sqlite3*"))
    return {
        "import_s": first,
        "import_per_s": options.domains / first,
        "again_s": again,
        "table_mb": table / 1e6,
    }


def marking(options: argparse.Namespace) -> dict[str, float]:
    """A walk over all known hosts."""
    from frontier.blocking import WALK, walk
    from frontier.models import FrontierState, Host

    names = (f"www.{domain(n)}" if n % 100 == 0 else f"h{n}.example" for n in range(options.hosts))
    Host.objects.bulk_create((Host(name=name) for name in names), batch_size=10_000)
    FrontierState.objects.create(name=WALK, value=0)
    seconds = timed(lambda: list(walk()))
    blocked = Host.objects.filter(blocked=True).count()
    assert blocked == len(range(0, min(options.hosts, options.domains), 100)), blocked
    return {"walk_s": seconds}


def loading(options: argparse.Namespace) -> dict[str, float]:
    """A first start: the filter is made from the table and kept in a file."""
    started = perf_counter()
    loaded()
    seconds = perf_counter() - started
    [path] = (options.data / "blocks").glob("*.filter")
    return {"from_database_s": seconds, "file_mb": path.stat().st_size / 1e6}


def starting(options: argparse.Namespace) -> dict[str, float]:
    """Any later start, what the filter takes, and what a change by another process costs."""
    from frontier.blocking import block
    from frontier.blocks import in_force

    in_force_without_filter()
    before = resident_mb()
    started = perf_counter()
    blocks = loaded()
    seconds = perf_counter() - started
    memory = resident_mb() - before
    block(["another.example"])
    catch_up = timed(in_force)
    assert blocks.covers("www.another.example")
    return {"from_file_s": seconds, "rss_mb": memory, "catch_up_ms": catch_up * 1e3}


def asking(options: argparse.Namespace) -> dict[str, float]:
    """Verdicts of hosts that nobody has asked for yet, and of those."""
    from frontier.blocks import covering

    blocks = loaded()
    # Two names in three of a crawl's hosts have no more than three labels.
    free = [f"www.site{n}.example" if n % 3 else f"a.b.site{n}.co.example" for n in range(100_000)]
    batches = [free[start : start + BATCH] for start in range(0, 80_000, BATCH)]
    cold = used(lambda: [blocks.blocked(batch) for batch in batches]) / 80_000
    known = free[:80_000]
    covers = blocks.covers
    cached = used(lambda: [covers(host) for host in known])
    alone = free[80_000:90_000]
    single = timed(lambda: [covers(host) for host in alone]) / len(alone)
    rng = random.Random(1)
    hosts = [f"www.{domain(rng.randrange(options.domains))}" for _ in range(20_000)]
    parts = [hosts[start : start + BATCH] for start in range(0, len(hosts), BATCH)]
    blocked = timed(lambda: [blocks.blocked(part) for part in parts]) / len(hosts)
    assert all(map(covers, hosts[:1000]))
    straight = timed(lambda: [covering(batch) for batch in batches[:40]]) / (40 * BATCH)
    names = [f"other{n}.example" for n in range(500_000)]
    suspects = len(blocks._filter.suspects(names)) if blocks._filter else 0
    return {
        "cold_batch_ns": cold * 1e9,
        "cached_ns": cached / len(known) * 1e9,
        "cold_single_us": single * 1e6,
        "blocked_batch_us": blocked * 1e6,
        "database_batch_us": straight * 1e6,
        "false_positives": suspects / len(names) * 100,
    }


STEPS: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "import": importing,
    "load": loading,
    "start": starting,
    "ask": asking,
    "mark": marking,
}


def loaded() -> Any:
    """The blocks of this process, with their filter."""
    from frontier.blocks import in_force

    blocks = in_force()
    blocks.wait()
    return in_force()


def in_force_without_filter() -> None:
    """Everything that a verdict imports and opens, so that only the filter is counted after it."""
    from frontier.blockfilter import DomainFilter
    from frontier.blocks import covering

    DomainFilter().suspects(["a.example"])
    covering(["a.example"])


def timed(function: Callable[[], Any]) -> float:
    started = perf_counter()
    function()
    return perf_counter() - started


def used(function: Callable[[], Any]) -> float:
    """CPU seconds of all threads."""
    started = process_time()
    function()
    return process_time() - started


def resident_mb() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
