"""Hosts whose names nobody answers for beside hosts that answer: what of their schedule do the good ones keep?

    .venv/bin/python -m bench.dead_names --dead 200 --good 50 --seconds 60

A name server on 127.0.0.1 keeps silent about the dead names and tells the others; both runs, with the dead ones and
without, are crawls of their own, and what counts is the ratio of the pages that they got.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from bench.drip import DripServer, crawl_for, told
from tests.dnsserver import Says, name_server


def run(dead: int, good: int, seconds: float, delay: float) -> dict[str, Any]:
    """Crawls for so many seconds and tells what came of it."""
    there = {f"good-{n}.example": Says(("127.0.0.1",)) for n in range(good)}
    silent = {f"dead-{n}.example": Says(silent=True) for n in range(dead)}
    with tempfile.TemporaryDirectory() as folder, DripServer() as server, name_server(there | silent) as names:
        summary = crawl_for(
            *(seconds, server, [*there, *silent], Path(folder), "--delay", str(delay)),
            TRAWL_NAME_SERVERS=names.address,
            TRAWL_CONTACT="bench@trawl.example",
        )
        return {"dead names": dead, **told(server, good, seconds, delay), "look-ups": summary["dns"]}


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dead", type=int, default=200)
    parser.add_argument("--good", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--delay", type=float, default=1)
    options = parser.parse_args()
    rest = options.good, options.seconds, options.delay
    alone, beside = run(0, *rest), run(options.dead, *rest)
    ratio = beside["pages of good hosts"] / alone["pages of good hosts"]
    print(json.dumps({"without": alone, "with": beside, "with over without": round(ratio, 4)}, indent=2))


if __name__ == "__main__":
    main()
