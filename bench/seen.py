"""What stands before the seen index, and what it spares: offered links a second, memory, restart, for each choice.

    ./trawl bench seen [--urls 1000000] [--rounds 3] [--redis redis://127.0.0.1:6379/15] [--choices cache,bloom]

Every choice has, in each round, two processes of its own. One takes the `crawl` stream (bench/stream.py) through
admission and merge on an empty SQLite database, its batches of pages dealt in turn to two workers: two caches, two
sets on disk, one shared set. The other puts as many random keys into the structure alone, and asks it for 400,000 new
keys and 400,000 known ones. `--redis` names a database that this may add keys to; it deletes them again.
A table and a JSON object go to standard output.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

from bench.arguments import Parser, absolute, whole
from bench.blocks import resident_mb, timed
from bench.measure import BATCH_PAGES, set_up_django
from bench.stream import PipedStream

CHOICES = ("none", "cache", "redis", "rocksdb", "bloom", "cuckoo")
ROWS = {
    "offered_per_s": ("links offered, a second", 0),
    "cpu_us": ("  CPU a link, us", 2),
    "written": ("  of them written into the inbox, %", 1),
    "looked_up": ("keys looked up in the runs, % of the merged", 1),
    "look_up_ns": ("  look-up with the filter, a key of a merge, ns", 0),
    "memory_mb": ("memory, MB a million keys", 1),
    "disk_mb": ("disk, MB a million keys", 1),
    "add_ns": ("adding a key, ns", 0),
    "new_ns": ("asking for a new key, ns", 0),
    "known_ns": ("asking for a known key, ns", 0),
    "restart_ms": ("ready after a restart, ms a million keys", 1),
}
CAMPAIGN, WORKERS, ASKED, PART = 1, 2, 400_000, 20_000


def main() -> None:
    parser = Parser("seen", __doc__)
    parser.add_argument("--urls", type=whole(), default=1_000_000, help="distinct URLs, and keys")
    parser.add_argument("--rounds", type=whole(), default=3)
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/15")
    parser.add_argument("--choices", default=",".join(CHOICES))
    parser.add_argument("--data", type=absolute, help="where the directories are made; default: a temporary one")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        step, choice = options.step
        print(json.dumps(run_step(step, choice, options)))
        return
    choices = options.choices.split(",")
    if not set(choices) <= set(CHOICES):
        parser.error(f"--choices takes some of {','.join(CHOICES)}")
    parser.check_data(options.data)
    if "redis" in choices:
        parser.check_redis(options.redis)
    rounds: dict[str, list[dict[str, float]]] = {choice: [] for choice in choices}
    for number, choice in itertools.product(range(1, options.rounds + 1), choices):
        rounds[choice].append(one_round(choice, options))
        print(f"round {number}, {choice}: {rounds[choice][-1]}", file=sys.stderr, flush=True)
    print(f"{options.urls:,} URLs, {options.urls:,} keys; median of {options.rounds}")
    print(f"{'':50}" + "".join(f"{choice:>12}" for choice in choices))
    for key, (title, digits) in ROWS.items():
        print(f"{title:50}" + "".join(cell([one.get(key) for one in rounds[choice]], digits) for choice in choices))
    print(json.dumps({"urls": options.urls, "rounds": rounds}))


def cell(values: list[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):12,.{digits}f}" if known else f"{'-':>12}"


def one_round(choice: str, options: argparse.Namespace) -> dict[str, float]:
    found: dict[str, float] = {}
    for step in STEPS:
        with tempfile.TemporaryDirectory(prefix="trawl-seen-", dir=options.data) as directory:
            command = [sys.executable, "-m", "bench.seen", "--step", step, choice, "--data", directory]
            command += ["--urls", str(options.urls), "--redis", options.redis]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            found |= json.loads(done.stdout.splitlines()[-1])
    return found


def run_step(step: str, choice: str, options: argparse.Namespace) -> dict[str, float]:
    set_up_django(options.data)
    from django.conf import settings

    settings.SEEN_PRECHECK = [{"none": "cache", "redis": options.redis}.get(choice, choice)]
    try:
        return STEPS[step](choice, options)
    finally:
        if choice == "redis":
            forget(options.redis)


def forget(url: str) -> None:
    """Deletes the shared set of this database."""
    import redis

    from frontier.models import FrontierState
    from frontier.seen.written import TOKEN, _halves

    for token in FrontierState.objects.filter(name=TOKEN).values_list("value", flat=True):
        redis.Redis.from_url(url).delete(*_halves(token))


# --- a stream through two workers and the merge ----------------------------------------------------------------


def stream(choice: str, options: argparse.Namespace) -> dict[str, float]:
    """Offers the stream; the reading of it is not counted."""
    import bench.trawl_frontier
    from frontier import admission
    from frontier.merge import merger
    from frontier.seen import prechecks
    from frontier.urls import canonicalise

    ours: Any = bench.trawl_frontier
    frontier = ours.TrawlFrontier()
    if choice == "none":
        admission.RECENT_LINKS = 0
    caches = [admission.Recent() for _ in range(WORKERS)]
    sets = [prechecks.written("default")] * WORKERS
    if choice == "rocksdb":
        sets[1] = prechecks.written.__wrapped__("default")
    index = merger("default").index  # the one that merge() uses
    written, asked, looked_up, seconds = 0, 0, 0, 0.0
    admit, known, look_up = ours.admit, index.known, index._look_up

    def admit_counted(*words: Any) -> int:
        nonlocal written
        left: int = admit(*words)
        written += left
        return left

    def known_timed(high: Any, low: Any) -> Any:
        nonlocal asked, seconds
        started = perf_counter()
        found = known(high, low)
        seconds += perf_counter() - started
        asked += len(high)
        return found

    def look_up_counted(high: Any, low: Any) -> Any:
        nonlocal looked_up
        looked_up += len(high)
        return look_up(high, low)

    ours.admit = admit_counted
    index.known, index._look_up = known_timed, look_up_counted  # type: ignore[method-assign]
    offered, wall, cpu = 0, 0.0, 0.0
    with PipedStream("crawl", options.urls, max(1, options.urls // 10)) as piped:
        for number, pages in enumerate(piped.batches(BATCH_PAGES)):
            links = [admission.Link(canonicalise(url), level, 1) for page in pages for level, url in page]
            worker = number % WORKERS
            admission.recent = lambda campaign, using="default", cache=caches[worker]: cache  # type: ignore[assignment]
            prechecks.written = lambda using="default", one=sets[worker]: one  # type: ignore[assignment]
            if choice == "none":
                caches[worker].clear()
            started, started_cpu = perf_counter(), process_time()
            frontier.admit(links)
            wall, cpu = wall + perf_counter() - started, cpu + process_time() - started_cpu
            offered += len(links)
    started, started_cpu = perf_counter(), process_time()
    frontier.settle()
    wall, cpu = wall + perf_counter() - started, cpu + process_time() - started_cpu
    if frontier.held()[0] != piped.totals.distinct:
        raise RuntimeError(f"{frontier.held()[0]:,} URLs are queued, {piped.totals.distinct:,} were offered")
    return {
        "offered_per_s": offered / wall,
        "cpu_us": cpu / offered * 1e6,
        "written": written / offered * 100,
        "looked_up": looked_up / asked * 100,
        "look_up_ns": seconds / asked * 1e9,
    }


# --- the structure alone -------------------------------------------------------------------------------------


def keys(choice: str, options: argparse.Namespace) -> dict[str, float]:
    """Random keys into the structure, and questions to it."""
    from django.core.management import call_command

    for alias in ("default", "inbox"):
        call_command("migrate", database=alias, verbosity=0, interactive=False)
    if choice == "none":
        return runs_alone(options)
    if choice == "cache":
        return cache_alone(options)
    return filter_alone(options) if choice in ("bloom", "cuckoo") else set_alone(choice, options)


def random_keys(count: int, seed: int) -> Any:
    """Keys in the order of a merge: 200,000 hosts, 64 random bits."""
    import numpy as np

    rng = np.random.default_rng(seed)
    high = np.sort(
        rng.integers(0, 200_000, count, np.uint64) << np.uint64(32) | rng.integers(0, 2**32, count, np.uint64)
    )
    return high, rng.integers(0, 2**64, count, np.uint64)


def sorted_runs(options: argparse.Namespace) -> Any:
    """An index of two runs, one a quarter of the other."""
    import numpy as np

    from frontier.seen.index import URL, SeenIndex
    from frontier.seen.runs import Run

    index = SeenIndex(options.data / "seen")
    empty = np.empty(0, np.uint64)
    small = options.urls // 5
    for count, seed in ((options.urls - small, 1), (small, 2)):
        high, low = random_keys(count, seed)
        index.grow(URL, Run(high, low, empty))
    return index


def sample(options: argparse.Namespace) -> Any:
    """(new keys, known keys), each a merge's worth."""
    import numpy as np

    count = options.urls - options.urls // 5
    high, low = random_keys(count, 1)
    some = np.sort(np.random.default_rng(3).permutation(count)[:ASKED])
    return random_keys(ASKED, 4), (high[some], low[some])


def runs_alone(options: argparse.Namespace) -> dict[str, float]:
    from frontier.seen.index import SeenIndex

    added = timed(lambda: sorted_runs(options))
    new, known = sample(options)
    index = sorted_runs(options)
    index.record_all()
    other = SeenIndex(options.data / "seen")
    before = resident_mb()
    restart = timed(other.refresh)
    new_s, known_s = timed(lambda: other.known(*new)), timed(lambda: other.known(*known))
    return {
        "memory_mb": max(0.0, resident_mb() - before) / options.urls * 1e6,
        "disk_mb": sum(path.stat().st_size for path in (options.data / "seen").glob("url*")) / options.urls / 2,
        "add_ns": added / options.urls * 1e9,
        "new_ns": new_s / ASKED * 1e9,
        "known_ns": known_s / len(known[0]) * 1e9,
        "restart_ms": restart * 1e3 / options.urls * 1e6,
    }


def filter_alone(options: argparse.Namespace) -> dict[str, float]:
    from frontier.seen.filters import BloomFilter, _own, sieve

    index, (new, known) = sorted_runs(options), sample(options)
    made = sieve()
    assert made is not None
    restart = timed(lambda: made.follow(index._runs["url"]))
    one: Any = made._filter
    # As the filter tells it: what the process holds does not grow by it, for other memory has just been freed.
    bits = one._bloom.size_in_bits if isinstance(one, BloomFilter) else one._run(lambda: _own.filter.bits())
    return {
        "memory_mb": bits / 8 / options.urls,
        "add_ns": restart / options.urls * 1e9,
        "new_ns": timed(lambda: made.suspects(*new)) / ASKED * 1e9,
        "known_ns": timed(lambda: made.suspects(*known)) / len(known[0]) * 1e9,
        "restart_ms": restart * 1e3 / options.urls * 1e6,
    }


def cache_alone(options: argparse.Namespace) -> dict[str, float]:
    """As many keys as it holds at most: links of pages, whose hashes it reckons itself."""
    from frontier.admission import RECENT_LINKS, Link, Recent
    from frontier.urls import URL

    def links(start: int) -> list[Link]:
        named = (f"https://h{n % 1000}.test/{n}" for n in range(start, start + RECENT_LINKS - 1))
        return [Link(URL(url, url, "h.test"), 6, 1) for url in named]

    first, second, cache = links(0), links(RECENT_LINKS), Recent()
    before = resident_mb()
    added = timed(lambda: [len(cache.sift([link], 1)) for link in first])
    cache.old, cache.young = cache.young, {}
    cache.sift(second[:1], 1)
    known = timed(lambda: cache.sift(first, 1))
    memory = resident_mb() - before
    return {
        "memory_mb": memory / len(first) / 2 * 1e6,
        "add_ns": added / len(first) * 1e9,
        "new_ns": timed(lambda: cache.sift(second, 1)) / len(second) * 1e9,
        "known_ns": known / len(first) * 1e9,
        "restart_ms": 0.0,
    }


def set_alone(choice: str, options: argparse.Namespace) -> dict[str, float]:
    """A set of links that were written, in Redis or on disk."""
    import redis

    from frontier.seen import prechecks, written

    def named(first: int, count: int) -> list[bytes]:
        return [CAMPAIGN.to_bytes(8, "big") + os.urandom(12) for _ in range(first, first + count)]

    inside, new = named(0, options.urls), named(options.urls, ASKED)
    known = inside[:: max(1, len(inside) // ASKED)][:ASKED]
    started = perf_counter()
    one: Any = prechecks.written("default")
    one.known(new[:1])
    restart = perf_counter() - started
    client = redis.Redis.from_url(options.redis) if choice == "redis" else None
    before = used(client)

    def in_parts(ask: Callable[[list[bytes]], Any], what: list[bytes]) -> float:
        return timed(lambda: [ask(what[start : start + PART]) for start in range(0, len(what), PART)]) / len(what) * 1e9

    found = {"add_ns": in_parts(one.add, inside), "restart_ms": restart * 1e3}
    found |= {"new_ns": in_parts(one.known, new), "known_ns": in_parts(one.known, known)}
    if not all(one.known(known[:1000])):
        raise RuntimeError(f"{choice} lacks keys that were added")
    found["memory_mb"] = (used(client) - before) / options.urls * 1e6
    if isinstance(one, written.SetOnDisk):
        found["disk_mb"] = sum(f.stat().st_size for f in one.directory.rglob("*") if f.is_file()) / options.urls
        shutil.rmtree(one.directory.parent, ignore_errors=True)
    return found


def used(client: Any) -> float:
    """MB in use: by the Redis server, or by this process."""
    return client.info("memory")["used_memory"] / 1e6 if client else resident_mb()


STEPS: dict[str, Callable[[str, argparse.Namespace], dict[str, float]]] = {"stream": stream, "keys": keys}

if __name__ == "__main__":
    main()
