"""Processes that are started in order, kept alive, and ended together."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
# A child that lived for so long was well: its next start waits for the first pause again.
WELL_SECONDS = 60.0
LONGEST_LOG_BYTES = 10 << 20
LAST_BYTES = 4096
TIED = Path(__file__).with_name("tied.py")


@dataclass
class Child:
    """A command, and what became of it."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = FIRST_PAUSE_SECONDS
    due: float | None = None  # when it is to be started again
    log_start: int = field(default=0, repr=False)  # where what it wrote since its start begins

    def start(self, environment: dict[str, str]) -> None:
        """Starts it, with all its output in its log, and in a session of its own, so that a Ctrl-C reaches the parent
        alone. Only from the main thread: a tied child ends with the thread that started it."""
        self._make_room()
        with self.log.open("ab") as log:
            self.log_start = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-E", str(TIED), str(os.getpid()), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.started, self.due = time.monotonic(), None

    def _make_room(self) -> None:
        if self.log.exists() and self.log.stat().st_size > LONGEST_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".1.log"))

    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def send(self, number: int) -> None:
        """Sends it a signal; to all of its session when it is to be killed."""
        if self.process and self.is_running():
            send = os.killpg if number == signal.SIGKILL else os.kill
            send(self.process.pid, number)

    def why(self) -> str:
        """How it ended, and the last line that it wrote."""
        code = self.process.poll() if self.process else None
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        last = self.last_line()
        return f"{how}: {last}" if last else how

    def last_line(self) -> str:
        """The last line that it wrote since its start, empty without one."""
        with self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self.log_start, end - LAST_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


class Children:
    """Children that are started again when they die, after a pause that doubles. `say` is told of it in sentences."""

    def __init__(self, environment: dict[str, str], logs: Path, say: Callable[[str], None]) -> None:
        self._environment, self._logs, self._say = environment, logs, say
        self._children: list[Child] = []

    def start(self, name: str, command: list[str]) -> Child:
        """Starts one more."""
        child = Child(name, command, self._logs / f"{name}.log")
        self._children.append(child)
        child.start(self._environment)
        return child

    def look(self) -> None:
        """Starts again what has ended and has waited."""
        now = time.monotonic()
        for child in self._children:
            if child.due is not None and child.due <= now:
                child.start(self._environment)
            elif child.due is None and not child.is_running():
                if now - child.started > WELL_SECONDS:
                    child.pause = FIRST_PAUSE_SECONDS
                self._say(f"{child.name} {child.why()}; it starts again in {child.pause:.0f} s ({child.log})")
                child.due = now + child.pause
                child.pause = min(2 * child.pause, LONGEST_PAUSE_SECONDS)

    def stop(self, is_hurried: Callable[[], bool], broker_last: Child | None = None) -> None:
        """Ends all: asks, waits, and kills what is left once `is_hurried`. The broker, which the others need for their
        last messages, goes when they are gone."""
        self._end([child for child in self._children if child is not broker_last], is_hurried)
        self._end([broker_last] if broker_last else [], is_hurried)

    def _end(self, children: list[Child], is_hurried: Callable[[], bool]) -> None:
        for child in children:
            child.send(signal.SIGTERM)
        while any(child.is_running() for child in children):
            if is_hurried():
                for child in children:
                    child.send(signal.SIGKILL)
            time.sleep(0.05)
