"""The synthetic web that judges a crawler, as a fixture: started on a free port, judged by its own log.

The rig is no part of this repository; RIG_DIR says where it is. Without it the tests that need it skip.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RIG_DIR = Path(os.environ.get("RIG_DIR") or ROOT.parent / "shared" / "rig")

needs_rig = pytest.mark.skipif(
    not (RIG_DIR / "synthweb").is_dir(), reason=f"the synthetic web is not at {RIG_DIR}; RIG_DIR says where it is"
)


@dataclass
class Rig:
    """A running synthetic web."""

    port: int
    log: Path
    seeds: Path
    environment: dict[str, str]

    def judge(self, *options: str) -> dict[str, Any]:
        """What the server saw, compared with the truth."""
        ask = subprocess.run(["curl", "-s", f"http://127.0.0.1:{self.port}/-/stats"], capture_output=True, check=True)
        assert ask.stdout
        judge = [sys.executable, "-m", "synthweb", "judge", str(self.log), "--json", *options]
        told = subprocess.run(judge, env=self.environment, capture_output=True, check=True, text=True)
        result: dict[str, Any] = json.loads(told.stdout)
        return result

    def requests(self) -> list[dict[str, Any]]:
        """The access log: h host, u target, s status, t start."""
        subprocess.run(["curl", "-s", f"http://127.0.0.1:{self.port}/-/stats"], capture_output=True, check=True)
        lines = self.log.read_text().splitlines()[1:]
        return [json.loads(line) for line in lines]


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serve_rig(folder: Path, hosts: int, pages: int, *options: str) -> Iterator[Rig]:
    """A synthetic web of so many hosts with so many pages each on average."""
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": str(RIG_DIR)}
    log, seeds = folder / "access.jsonl", folder / "seeds.txt"
    shape = ["--port", str(port), "--hosts", str(hosts), "--pages", str(pages)]
    with open(seeds, "w") as file:
        command = [sys.executable, "-m", "synthweb", "seeds", *shape]
        subprocess.run(command, env=environment, stdout=file, check=True)
    command = [sys.executable, "-m", "synthweb", "serve", *shape, "--log", str(log), *options]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    try:
        assert server.stdout
        server.stdout.readline()
        yield Rig(port, log, seeds, environment)
    finally:
        server.terminate()
        server.wait()
        if server.stdout:
            server.stdout.close()


def crawl_command(rig: Rig, data: Path, *options: str) -> list[str]:
    """`trawl crawl` over the whole synthetic web."""
    return [
        *(sys.executable, "-m", "trawl_project", "crawl", "--seeds", str(rig.seeds), "--scope", "any"),
        *("--resolve", "*.test=127.0.0.1", "--allow-network", "127.0.0.0/8", "--delay", "0"),
        *("--data", str(data), *options),
    ]


def wait_until(happened: Any, seconds: float = 60, every: float = 0.02) -> None:
    """Waits until a function returns something true."""
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(every)
