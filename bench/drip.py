"""Hosts that drip one byte a second beside hosts that answer: what of their schedule do the good ones keep?

    .venv/bin/python -m bench.drip --drips 2000 --good 200 --seconds 120

One server on 127.0.0.1 answers for all names; a `trawl crawl` of its own process visits them. The schedule of a good
host is one page each delay from the first page that the server was asked for; robots.txt is not counted. Each drip
host sends its robots.txt, and all else, a byte a second.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DRIP_SECONDS = 1.0
LINKS = 3  # each good page leads to the next ones, without end
START_SECONDS = 60  # that a crawl may take before its first page


class DripServer:
    """Answers as good-N.test with pages at once, as drip-N.test with a byte a second. Runs on a thread of its own."""

    def __init__(self) -> None:
        self.pages: list[tuple[float, str]] = []  # time.monotonic() and host of each good page
        self.drips: Counter[str] = Counter()
        self.dripping = 0
        self.most_dripping = 0
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "DripServer":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled at the end; asyncio of Python 3.11 prints a traceback for each that lets it through.
        with closing(writer), suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1]
                host = head.lower().partition("\r\nhost:")[2].partition("\r\n")[0].strip().partition(":")[0]
                if host.startswith("drip"):
                    await self._drip(host, writer)
                    break
                writer.write(self._good(host, path))

    def _good(self, host: str, path: str) -> bytes:
        if path == "/robots.txt":
            return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n"
        self.pages.append((time.monotonic(), host))
        number = int(path.strip("/") or 0)
        body = "".join(f"<a href='/{number + ahead}'>next</a>" for ahead in range(1, LINKS + 1)).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def _drip(self, host: str, writer: asyncio.StreamWriter) -> None:
        self.drips[host] += 1
        self.dripping += 1
        self.most_dripping = max(self.most_dripping, self.dripping)
        try:
            for byte in b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Drip: " + b"z" * 100_000:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(DRIP_SECONDS)
        finally:
            self.dripping -= 1


def run(drips: int, good: int, seconds: float, delay: float, data: Path) -> dict[str, Any]:
    """Crawls for so many seconds and tells what came of it."""
    with DripServer() as server:
        names = [f"drip-{n}.test" for n in range(drips)] + [f"good-{n}.test" for n in range(good)]
        crawl_for(seconds, server, names, data, "--delay", str(delay), "--resolve", "*.test=127.0.0.1")
        return {
            "drip hosts": drips,
            **told(server, good, seconds, delay),
            "dripping at once, at most": server.most_dripping,
            "requests to drip hosts": server.drips.total(),
        }


def crawl_for(seconds: float, server: DripServer, names: list[str], data: Path, *options: str, **settings: str) -> Any:
    """Crawls these hosts until so many seconds after the first page; returns the summary. `settings`: environment."""
    seeds = data / "seeds.txt"
    # Mixed as the web mixes them: the good ones are not the first to be claimed.
    seeds.write_text("".join(f"http://{name}:{server.port}/\n" for name in sorted(names, key=hash_of)))
    command = [
        *(sys.executable, "-m", "trawl_project", "crawl", "--data", str(data / "data"), "--json", "--no-warc"),
        *("--seeds", str(seeds), "--allow-network", "127.0.0.0/8", *options),
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TRAWL_", "DATABASE_"))} | settings
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=-1, stderr=-1) as crawl:
        until = time.monotonic() + START_SECONDS
        while not server.pages and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(seconds)
        crawl.send_signal(signal.SIGINT)
        out, _ = crawl.communicate(timeout=90)
    return json.loads(out)


def hash_of(name: str) -> int:
    """The same in every process, as Python's own is not."""
    return int.from_bytes(name.encode(), "big") * 2_654_435_761 % 4_294_967_291


def told(server: DripServer, good: int, seconds: float, delay: float) -> dict[str, Any]:
    """What the good hosts kept of their schedule."""
    start = server.pages[0][0] if server.pages else 0.0
    within = [(at, host) for at, host in server.pages if at < start + seconds]
    by_host: dict[str, list[float]] = {}
    for at, host in within:
        by_host.setdefault(host, []).append(at)
    closest = min((b - a for times in by_host.values() for a, b in pairwise(times)), default=0.0)
    ideal = good * seconds / delay
    return {
        "good hosts": good,
        "seconds": seconds,
        "pages of good hosts": len(within),
        "schedule": int(ideal),
        "share kept": round(len(within) / ideal, 4),
        "smallest gap of a good host": round(closest, 4),
        "good hosts visited": len(by_host),
    }


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drips", type=int, default=2000)
    parser.add_argument("--good", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--delay", type=float, default=1)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(options.drips, options.good, options.seconds, options.delay, Path(folder)), indent=2))


if __name__ == "__main__":
    main()
