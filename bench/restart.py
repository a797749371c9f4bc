"""A start on what bench/measure.py has left: how long to the first claim and the first merge, and the drain.

    python -m bench.restart DESIGN --data DIR [--database URL] --spawned-at SECONDS
                            [--drain --distinct N --digest N]

SECONDS is time.monotonic() of the process that started this one. Times are told from there, and from the
moment when the interpreter, the imports and Django's set-up are done. Files are in the page cache, as after
a crash of the program; after a crash of the machine they would have to be read first.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from bench.design import Design
from bench.measure import DESIGNS, TRAWL, VISITED, make_design, parse, set_up_django
from bench.progress import Progress
from bench.stream import fingerprint
from bench.visits import CLAIM_HOSTS, Ledger, drain

# The inbox of the first merge: new URLs of one new host.
INBOX_URLS = [f"https://restart.example/page/{i}" for i in range(1000)]
INBOX_LEVEL = 4


def set_up(options: argparse.Namespace) -> None:
    """What every command does before it can look at the frontier."""
    if options.design == TRAWL:
        set_up_django(options.data, options.database)
        import bench.trawl_frontier  # noqa: F401 - for the time that its imports take


def measure_restart(options: argparse.Namespace) -> tuple[Design, dict[str, Any], Ledger]:
    """The design, the times in seconds, and what was given out since it was empty."""
    set_up(options)
    ready = time.monotonic()
    design = make_design(options.design, options.data, options.reference_cache, options.database)
    design.polite_ms = 0
    design.resume()
    visits = design.claim(CLAIM_HOSTS)
    claimed = time.monotonic()
    design.admit([design.link(parse(url), INBOX_LEVEL, 1) for url in INBOX_URLS])
    design.merge()
    merged = time.monotonic()
    ledger = Ledger()
    ledger.load(options.data / VISITED)
    ledger.add(visits)
    design.complete(visits)
    times = {
        "restart_claim_s": claimed - ready,
        "restart_claim_with_setup_s": claimed - options.spawned_at,
        "restart_merge_s": merged - ready,
        "restart_merge_with_setup_s": merged - options.spawned_at,
    }
    return design, times, ledger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("design", choices=DESIGNS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--database")
    parser.add_argument("--reference-cache", type=int)
    parser.add_argument("--spawned-at", type=float, required=True)
    parser.add_argument("--drain", action="store_true", help="then claim and complete everything")
    parser.add_argument("--distinct", type=int, default=0, help="URLs that must have come out in the end")
    parser.add_argument("--digest", type=int, default=0, help="the sum of their fingerprints modulo 2^64")
    parser.add_argument("--label", default="")
    options = parser.parse_args()
    design, measured, ledger = measure_restart(options)
    if options.drain:
        measured |= drain(design, ledger, Progress(options.label).say)
        digest = (options.digest + sum(map(fingerprint, INBOX_URLS))) % (1 << 64)
        measured["drain_exact"] = ledger.holds(options.distinct + len(INBOX_URLS), digest)
    measured["given_twice"] = ledger.repeats()
    design.close()
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
