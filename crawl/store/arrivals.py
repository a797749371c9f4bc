"""Arrival logs: a line for each request, from which it can be shown how a host was treated.

    DATA/arrivals/ID-START/TIME-PID-MACHINE.tsv

Each process writes a file of its own per run, in lines of columns with tabs between, the first of which names the
columns. Files are only appended to, and never rotated. The lines of a file are in the order in which answers ended.
"""

import contextlib
import os
import re
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from crawl.models import Run

# Kinds of lines: requests, requests that no server can have seen, and pauses that trawl has put upon itself.
PAGE, ROBOTS, UNSENT, PAUSE = "page", "robots", "unsent", "pause"
KINDS = frozenset({PAGE, ROBOTS, UNSENT, PAUSE})
SUFFIX = ".tsv"


class Arrival(NamedTuple):
    """A request, with all that said when it might be sent. Times are seconds since 1970 UTC, delays are seconds.

    Of a pause the three times are the moment of the decision, and nothing but `until` and `result` is told.
    """

    begun: float
    """The server cannot have had it sooner."""
    arrived: float
    """As far as can be told from here, the server had it by then."""
    ended: float
    host: str
    address: str
    """Empty through a proxy, which looks names up by itself."""
    kind: str
    result: str
    """The HTTP status or the kind of failure; of a pause its reason."""
    gap: float | None
    """From the arrival of the visit's request before; None for its first."""
    delay: float | None
    """The operator's, for the host or else for the campaign."""
    crawl_delay: float | None
    adaptive: float | None
    """What follows from the host's answers, where that is longer than the operator's."""
    burst: int
    until: float | None
    """The end of the wait that this answer asks for, or of the pause."""
    url: str


HEADER = "\t".join(Arrival._fields)


class NotALine(ValueError):
    """What is no line of an arrival log; the message says why."""


def line_of(one: Arrival) -> str:
    """The line of an arrival, without its end."""
    return (
        f"{one.begun:.6f}\t{one.arrived:.6f}\t{one.ended:.6f}\t{_field(one.host)}\t{one.address}\t{one.kind}"
        f"\t{_field(one.result)}\t{_number(one.gap)}\t{_number(one.delay)}\t{_number(one.crawl_delay)}"
        f"\t{_number(one.adaptive)}\t{one.burst}\t{_number(one.until)}\t{_field(one.url)}"
    )


def arrival_of(line: str) -> Arrival:
    """The arrival of a line. Raises NotALine."""
    parts = line.split("\t")
    if len(parts) != len(Arrival._fields):
        raise NotALine(f"{len(parts)} columns instead of {len(Arrival._fields)}")
    begun, arrived, ended, host, address, kind, result, gap, delay, crawl_delay, adaptive, burst, until, url = parts
    if kind not in KINDS:
        raise NotALine(f"'{kind}' is no kind of line")
    if not host:
        raise NotALine("it names no host")
    if not burst.isascii() or not burst.isdigit() or not int(burst):
        raise NotALine(f"'{burst}' is not a burst")
    return Arrival(
        _time(begun),
        _time(arrived),
        _time(ended),
        host,
        address,
        kind,
        result,
        _read(gap, _SIGNED),
        _read(delay),
        _read(crawl_delay),
        _read(adaptive),
        int(burst),
        _read(until),
        url,
    )


_UNSIGNED = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_SIGNED = re.compile(r"-?\d{1,12}(\.\d{1,9})?", re.ASCII)


def _read(text: str, form: re.Pattern[str] = _UNSIGNED) -> float | None:
    return _checked(text, form) if text else None


def _time(text: str) -> float:
    return _checked(text, _UNSIGNED)


def _checked(text: str, form: re.Pattern[str]) -> float:
    if not form.fullmatch(text):
        raise NotALine(f"'{text}' is not a number of seconds")
    return float(text)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")


def _field(text: str) -> str:
    """Without what would break the line."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def folder_name(run: Run) -> str:
    """The folder of a run's logs: by its id and its start, since a database that is begun anew, or put back, gives an
    id once more."""
    return f"{run.pk}-{run.started_at.astimezone(UTC):%Y%m%d%H%M%S}"


class ArrivalLogs:
    """The arrival logs of a process. Belongs to the writer thread."""

    def __init__(self, directory: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.directory = directory
        machine = re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname())[:40]
        self._name = f"{now():%Y%m%d%H%M%S%f}-{os.getpid()}-{machine}{SUFFIX}"

    def write(self, arrivals: dict[str, list[Arrival]]) -> None:
        """Appends arrivals (by the name of their folder), and takes out of the mapping what is written. Raises
        OSError; the same call goes on after it."""
        for name in list(arrivals):
            text = "".join(f"{line_of(one)}\n" for one in arrivals[name])
            folder = self.directory / name
            folder.mkdir(parents=True, exist_ok=True)
            _append(folder / self._name, text)
            del arrivals[name]


def _append(path: Path, text: str) -> None:
    """All of the text, or nothing: what a full disk took of it is cut off again."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        left = memoryview((text if size else f"{HEADER}\n{text}").encode("utf-8", "surrogateescape"))
        try:
            while left:
                left = left[os.write(descriptor, left) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
