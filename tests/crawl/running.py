"""Runs the real command in a process of its own, as a person would."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
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


@cache
def _template() -> Path:
    """A data directory that no crawl has used yet, made by the real command: to make one takes a second of CPU."""
    folder = Path(tempfile.mkdtemp(prefix="trawl-tests-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    words = [sys.executable, "-m", "trawl_project", "--data", str(folder), "block", "list"]
    subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, check=True, timeout=90)
    return folder


def prepare(data: Path) -> None:
    """Gives a data directory its databases, if it has none."""
    data.mkdir(parents=True, exist_ok=True)
    if not any(data.iterdir()):
        shutil.copytree(_template(), data, dirs_exist_ok=True)


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
    prepare(data)
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
