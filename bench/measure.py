"""One design through one stream, in this process: what bench/frontier.py starts for every round.

    python -m bench.measure DESIGN --data DIR --stream crawl --urls N --hosts N

DIR must be empty. Progress goes to standard error, one JSON object to standard output.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from bench.design import Design
from bench.stream import KINDS, PipedStream
from frontier.urls import URL, canonicalise

DESIGNS = ("trawl", "reference", "reference without index")
# Pages whose links are committed together: what crawl/record.py collects at most.
BATCH_PAGES = 400
CLAIMS, CLAIM_HOSTS = 60, 512
DECAY_URLS = 500_000  # below that the few merges of a stream say nothing of how the rate falls
PROGRESS_SECONDS = 0.5 if sys.stderr.isatty() else 20.0


def make_design(name: str, data: Path, cache_mb: int | None) -> Design:
    """The design of that name on an empty directory."""
    if name == "trawl":
        set_up_django(data)
        from bench.trawl_frontier import TrawlFrontier

        return TrawlFrontier()
    from bench.reference import Reference

    return Reference(data, indexed=name == "reference", cache_mb=cache_mb)


def set_up_django(data: Path) -> None:
    """Points Django at this directory and at SQLite in it, whatever the environment of the user says."""
    import django

    for name in list(os.environ):
        if name.startswith("TRAWL_") or name in ("DATABASE_URL", "BROKER_URL"):
            del os.environ[name]
    os.environ["TRAWL_DATA"] = str(data)
    os.environ["DJANGO_SETTINGS_MODULE"] = "trawl_project.settings"
    django.setup()


class Clock:
    """Adds up wall time and CPU time of the calls under measurement."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> None:
        self._wall, self._cpu = perf_counter(), process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += perf_counter() - self._wall
        self.cpu += process_time() - self._cpu


class Progress:
    """A line on standard error now and then."""

    def __init__(self, label: str, urls: int) -> None:
        self._label, self._urls = label, urls
        self._next = 0.0

    def say(self, text: str, force: bool = False) -> None:
        if force or time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_SECONDS
            tty = sys.stderr.isatty()
            line = f"{self._label}: {text}"
            print(f"\r{line:<78}" if tty else line, end="" if tty else "\n", file=sys.stderr, flush=True)


def parse(url: str) -> URL:
    """What canonicalise gives for the URLs of the streams, which are canonical as they are."""
    return URL(url, url, url.split("/", 3)[2])


def measure(design: Design, options: argparse.Namespace) -> dict[str, Any]:
    """Admits the whole stream, then claims and completes; see COLUMNS in bench/frontier.py for the units."""
    progress = Progress(options.label or options.design, options.urls)
    read = canonicalise if options.design == "trawl" else parse
    link, reading, admitting = design.link, Clock(), Clock()
    written = bytes_written()
    offered, marks = 0, [(0, 0.0)]
    with PipedStream(options.stream, options.urls, options.hosts) as stream:
        for pages in stream.batches(BATCH_PAGES):
            with reading:
                links = [link(read(url), level, level) for page in pages for level, url in page]
            with admitting:
                design.admit(links)
            offered += len(links)
            marks.append((offered, admitting.wall))
            progress.say(f"{offered:,} links offered, {offered / admitting.wall:,.0f}/s")
    with admitting:
        design.settle()
    marks.append((offered, admitting.wall))
    written = bytes_written() - written
    held, hosts = design.held()
    measured = {
        "stream": stream.totals._asdict(),
        "urls": held,
        "hosts": hosts,
        "offered_per_s": offered / admitting.wall,
        "new_per_s": held / admitting.wall,
        "admit_cpu_us_per_link": admitting.cpu / offered * 1e6,
        "merge_share": design.merge_seconds / admitting.wall,
        "bytes_per_url": bytes_on_disk(options.data) / held,
        "bytes_written_per_url": written / held,
    }
    if held >= DECAY_URLS:
        measured["second_half_rate"] = second_half_rate(marks)
    if options.design == "trawl":
        measured["offered_per_s_with_canonicalisation"] = offered / (admitting.wall + reading.wall)
    progress.say("claims")
    return measured | measure_claims(design) | {"rss_mb": peak_rss_mb()}


def measure_claims(design: Design) -> dict[str, Any]:
    """Claims of CLAIM_HOSTS hosts, one URL each, every claim completed before the next."""
    design.scatter()
    claim_seconds: list[float] = []
    completing = Clock()
    visited = 0
    for _ in range(CLAIMS):
        started = perf_counter()
        visits = design.claim(CLAIM_HOSTS)
        taken = perf_counter() - started
        if not visits:
            break
        claim_seconds.append(taken)
        visited += len(visits)
        with completing:
            design.complete(visits)
    claim_seconds.sort()
    return {
        "visited": visited,
        "claims_per_s": visited / sum(claim_seconds),
        "claim_p50_ms": claim_seconds[len(claim_seconds) // 2] * 1e3,
        "claim_p99_ms": claim_seconds[int(len(claim_seconds) * 0.99)] * 1e3,
        "completes_per_s": visited / completing.wall,
    }


def second_half_rate(marks: Sequence[tuple[int, float]]) -> float:
    """Links a second in the second half of the stream, as a share of the rate in the first half."""
    offered, seconds = marks[-1]
    middle, then = next((at, when) for at, when in marks if at >= offered / 2)
    return ((offered - middle) / max(seconds - then, 1e-9)) / (middle / then)


def bytes_on_disk(directory: Path) -> int:
    """Blocks that the files below a directory take."""
    return sum(path.stat().st_blocks * 512 for path in files(directory))


def files(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file())


def bytes_written() -> int:
    """Bytes that this process has sent to storage so far (Linux counts them when pages become dirty)."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def peak_rss_mb() -> float:
    """The most memory this process ever had resident."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("design", choices=DESIGNS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--stream", choices=KINDS, required=True)
    parser.add_argument("--urls", type=int, required=True)
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--reference-cache", type=int, help="SQLite cache of the reference in MB, if not trawl's")
    parser.add_argument("--label", default="")
    parser.add_argument("--profile", type=Path, help="write a cProfile of the design's calls there")
    options = parser.parse_args()
    if any(options.data.iterdir()):
        parser.error(f"{options.data} is not empty")
    design = make_design(options.design, options.data, options.reference_cache)
    if options.profile:
        import cProfile

        profile = cProfile.Profile()
        measured = profile.runcall(measure, design, options)
        profile.dump_stats(options.profile)
    else:
        measured = measure(design, options)
    print(json.dumps({"design": options.design} | measured))


if __name__ == "__main__":
    main()
