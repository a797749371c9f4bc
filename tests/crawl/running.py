"""Runs the real command in a process of its own, as a person would."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig import ROOT

LOCAL = ("--allow-network", "127.0.0.0/8")


@dataclass
class Ran:
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        """Its JSON summary."""
        result: dict[str, Any] = json.loads(self.out)
        return result


def command(data: Path, *arguments: str) -> list[str]:
    """`trawl crawl` with a data directory of its own, without a delay, its summary as JSON."""
    return [
        *(sys.executable, "-m", "trawl_project", "crawl"),
        *("--data", str(data), "--json", "--delay", "0", *arguments),
    ]


def environment() -> dict[str, str]:
    """The environment without the settings of the test run."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TRAWL_", "DATABASE_"))}


def crawl(
    data: Path, *arguments: str, stdin: str | None = None, timeout: float = 90, settings: dict[str, str] | None = None
) -> Ran:
    """Runs a crawl to its end; `settings` are environment variables."""
    done = subprocess.run(
        command(data, *arguments),
        cwd=ROOT,
        env=environment() | (settings or {}),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)
