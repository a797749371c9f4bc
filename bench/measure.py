"""One design through one stream, in this process: what bench/frontier.py starts for every round.

    python -m bench.measure DESIGN --data DIR --stream crawl --urls N --hosts N [--database URL]

DIR must be empty, and so must the PostgreSQL database, where one is named. Progress goes to standard error,
one JSON object to standard output.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from bench.design import Design
from bench.progress import Progress
from bench.rates import Sample, rates
from bench.storage import memory, storage
from bench.stream import KINDS, PipedStream
from bench.visits import Clock, Ledger, measure_claims
from frontier.urls import URL, canonicalise
from trawl_project.collector import relax

TRAWL, REFERENCE, UNINDEXED = DESIGNS = ("trawl", "reference", "reference without index")
# Pages whose links are committed together: what crawl/record.py collects at most.
BATCH_PAGES = 400
VISITED = "visited.fingerprints"  # where in DIR the later process finds which URLs were given out


def make_design(name: str, data: Path, cache_mb: int | None = None, database: str | None = None) -> Design:
    """The design of that name, on an empty directory and database or on what it has left there."""
    relax()  # as a worker does, and for all designs
    if name == TRAWL:
        set_up_django(data, database)
        from bench.trawl_frontier import TrawlFrontier

        return TrawlFrontier()
    if database:
        from bench.reference_postgresql import PostgresReference

        return PostgresReference(database)
    from bench.reference import Reference

    return Reference(data, indexed=name == REFERENCE, cache_mb=cache_mb)


def set_up_django(data: Path, database: str | None = None) -> None:
    """Points Django at this directory and at SQLite in it or at this database, whatever the user's environment says."""
    import django

    for name in list(os.environ):
        if name.startswith("TRAWL_") or name in ("DATABASE_URL", "BROKER_URL"):
            del os.environ[name]
    if database:
        os.environ["DATABASE_URL"] = database
    os.environ["TRAWL_DATA"] = str(data)
    os.environ["DJANGO_SETTINGS_MODULE"] = "trawl_project.settings"
    django.setup()


def parse(url: str) -> URL:
    """What canonicalise gives for the URLs of the streams, which are canonical as they are."""
    return URL(url, url, url.split("/", 3)[2])


def measure(design: Design, options: argparse.Namespace) -> dict[str, Any]:
    """Admits the whole stream, then claims and completes; see COLUMNS in bench/report.py for the units."""
    progress = Progress(options.label or options.design)
    measured = measure_admission(design, options, progress)
    progress.say("claims")
    ledger = Ledger()
    measured |= measure_claims(design, ledger)
    ledger.save(options.data / VISITED)
    return measured | memory()


def measure_admission(design: Design, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Admits the stream. Reading, and for trawl canonicalising, has a clock of its own."""
    kept = storage(options.data, options.database)
    read = canonicalise if options.design == TRAWL else parse
    link, reading, admitting = design.link, Clock(), Clock()
    before = kept.written()
    offered, merged, samples = 0, 0.0, [Sample(0, 0, 0.0)]
    with PipedStream(options.stream, options.urls, options.hosts) as stream:
        for pages in stream.batches(BATCH_PAGES):
            with reading:
                links = [link(read(url), level, level) for page in pages for level, url in page]
            with admitting:
                design.admit(links)
            offered += len(links)
            if design.merge_seconds != merged:
                merged = design.merge_seconds
                samples.append(Sample(offered, stream.distinct, admitting.wall))
            progress.say(f"{offered:,} links offered, {offered / admitting.wall:,.0f}/s")
    with admitting:
        design.settle()
    samples.append(Sample(offered, stream.distinct, admitting.wall))
    after = kept.written()
    held, hosts = design.held()
    measured = {
        "stream": stream.totals._asdict(),
        "urls": held,
        "hosts": hosts,
        "offered_per_s": offered / admitting.wall,
        "new_per_s": held / admitting.wall,
        "admit_cpu_us_per_link": admitting.cpu / offered * 1e6,
        "merge_share": design.merge_seconds / admitting.wall,
        "bytes_per_url": kept.size() / held,
        "bytes_written_per_url": None if before is None or after is None else (after - before) / held,
    }
    if options.design == TRAWL:
        measured["offered_per_s_with_canonicalisation"] = offered / (admitting.wall + reading.wall)
    return measured | rates(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("design", choices=DESIGNS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--database", help="an empty PostgreSQL database; SQLite in the data directory without it")
    parser.add_argument("--stream", choices=KINDS, required=True)
    parser.add_argument("--urls", type=int, required=True)
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--reference-cache", type=int, help="SQLite cache of the reference in MB, if not trawl's")
    parser.add_argument("--label", default="")
    parser.add_argument("--profile", type=Path, help="write a cProfile of the design's calls there")
    options = parser.parse_args()
    if any(options.data.iterdir()):
        parser.error(f"{options.data} is not empty")
    design = make_design(options.design, options.data, options.reference_cache, options.database)
    if options.profile:
        import cProfile

        profile = cProfile.Profile()
        measured = profile.runcall(measure, design, options)
        profile.dump_stats(options.profile)
    else:
        measured = measure(design, options)
    design.close()
    print(json.dumps({"design": options.design} | measured))


if __name__ == "__main__":
    main()
