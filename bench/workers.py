"""A crawl by several `celery -A trawl worker` and a beat, on a Redis of its own, to its end.

    .venv/bin/python -m bench.workers --seeds seeds.txt --data DIR [--workers 2] [--database URL] [--warc]

Every process that it starts is below it, Redis too, so what runs it can count the CPU and memory of all of them; a
PostgreSQL that is named is not. TRAWL_RESOLVE and TRAWL_ALLOW_NETWORKS are handed on. Prints one JSON object; ends with
1 when a process died or the crawl has not ended after --timeout seconds.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CELERY = [sys.executable, "-m", "celery", "-A", "trawl"]
LOOK_SECONDS = 0.5
STOP_SECONDS = 60


@contextmanager
def process(*command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is asked to end when the block is left, and waited for."""
    with log.open("wb") as file, subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file) as one:
        try:
            yield one
        finally:
            one.terminate()
            one.wait(STOP_SECONDS)


@contextmanager
def redis_server(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An empty Redis on a free port, which BROKER_URL names from now on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(data))
    with process("redis-server", *options, log=data / "redis.log") as server:
        os.environ["BROKER_URL"] = f"redis://127.0.0.1:{port}/0"
        until = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", port)):
            if time.monotonic() > until or server.poll() is not None:
                sys.exit(f"bench.workers: Redis does not start, see {data}/redis.log")
            time.sleep(0.05)
        yield server


def crawl(seeds: list[str], workers: int, data: Path, warc: bool, timeout: float) -> dict[str, Any]:
    """Crawls to the end and tells of it. Every setting is in the environment by now."""
    import django

    django.setup()
    from crawl import campaigns
    from crawl.models import Campaign, Run
    from trawl_project.databases import prepare_databases

    prepare_databases()
    campaign = Campaign.objects.create(name="workers", reach="any", delay_ms=0, store_warc=warc)
    campaigns.add_seeds(campaign, [(url, 10) for url in seeds])
    campaigns.start(campaign)
    began = time.monotonic()
    commands: list[tuple[str, ...]] = [("worker", "-n", f"worker{number}") for number in range(workers)] + [("beat",)]
    with _all(commands, data) as processes:
        while Run.objects.get().state == Run.State.RUNNING:
            time.sleep(LOOK_SECONDS)
            dead = [name for name, one in processes.items() if one.poll() is not None]
            if dead or time.monotonic() - began > timeout:
                sys.exit(f"bench.workers: {dead or 'the crawl'} did not end in time; the logs are in {data}")
    run = Run.objects.get()
    return {"workers": workers, "seconds": round(time.monotonic() - began, 1), "pages": run.pages, "state": run.state}


@contextmanager
def _all(commands: list[tuple[str, ...]], data: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Starts all of them, by name."""
    if not commands:
        yield {}
        return
    first, *others = commands
    name = first[-1]
    with process(*CELERY, *first, log=data / f"{name}.log") as one, _all(others, data) as rest:
        yield {name: one, **rest}


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="a directory that is new or empty")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--database", default="", help="a PostgreSQL database without tables; else SQLite")
    parser.add_argument("--warc", action="store_true")
    parser.add_argument("--timeout", type=float, default=600)
    options = parser.parse_args()
    if not shutil.which("redis-server"):
        parser.error("redis-server is not installed (Debian: apt-get install redis-server)")
    data = options.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    if any(data.iterdir()):
        parser.error(f"{data} is not empty")
    os.environ["TRAWL_DATA"] = str(data)
    os.environ["DJANGO_SETTINGS_MODULE"] = "trawl_project.settings"
    if options.database:
        os.environ["DATABASE_URL"] = options.database
    with redis_server(data):
        print(
            json.dumps(crawl(options.seeds.read_text().split(), options.workers, data, options.warc, options.timeout))
        )


if __name__ == "__main__":
    main()
