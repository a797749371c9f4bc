"""Reading arrival logs, of any number of processes and of any length, and what they say of each host."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from crawl.conduct import Gap, HostConduct, HostJudge, tighter, tightness
from crawl.sorting import Sorter
from crawl.store.arrivals import HEADER, PAUSE, UNSENT, Arrival, NotALine, arrival_of

# Arrivals are stamped by a clock and not by the server; two readings of one moment differ by less.
TOLERANCE_SECONDS = 0.001
LINE_BYTES = 65_536  # a URL has 8,192 characters at most
TOLD = 20  # of a list of any length


@dataclass
class Reading:
    """What was found in the files."""

    lines: int = 0
    cut: int = 0
    """Last lines that a kill has cut off, one a file at most."""
    unreadable: int = 0
    reasons: list[str] = field(default_factory=list)
    """Of the first TOLD unreadable lines."""
    steps: list[str] = field(default_factory=list)
    """Of the first TOLD times that a clock went back."""
    clock_steps: int = 0


class Closest(NamedTuple):
    """The two requests to one server address that were begun closest to each other."""

    seconds: float
    address: str
    at: float
    hosts: tuple[str, str]


@dataclass
class Conduct:
    """How all hosts were treated."""

    requests: int = 0
    unsent: int = 0
    hosts: int = 0
    first: float = 0.0
    last: float = 0.0
    tightest: list[HostConduct] = field(default_factory=list)
    too_small: int = 0
    examples: list[Gap] = field(default_factory=list)
    """The first TOLD gaps that were too small."""
    closest: Closest | None = None


Progress = Callable[[int], None]


def read_lines(path: Path, reading: Reading, done: Progress, tolerance: float) -> Iterator[tuple[Arrival, str]]:
    """The arrivals of a file with their lines. Raises OSError."""
    before = 0.0
    for number, raw in enumerate(_lines(path), 1):
        done(len(raw))
        if not raw.endswith(b"\n") and len(raw) <= LINE_BYTES:
            reading.cut += 1
            continue
        try:
            text = _text(raw)
            if text == HEADER:
                before = 0.0
                continue
            one = arrival_of(text)
        except NotALine as error:
            reading.unreadable += 1
            if len(reading.reasons) < TOLD:
                reading.reasons.append(f"{path}, line {number}: {error}")
            continue
        if one.ended < before - tolerance:
            reading.clock_steps += 1
            if len(reading.steps) < TOLD:
                reading.steps.append(f"{path}, line {number}: the clock has gone back by {before - one.ended:.3f} s")
        before = one.ended
        reading.lines += 1
        yield one, text


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file with their ends; of one beyond LINE_BYTES only so much and a byte more."""
    with open(path, "rb") as file:
        while raw := file.readline(LINE_BYTES + 1):
            yield raw
            while len(raw) > LINE_BYTES and not raw.endswith(b"\n"):
                raw = file.readline(LINE_BYTES + 1)
                if not raw:
                    return


def _text(raw: bytes) -> str:
    if len(raw) > LINE_BYTES:
        raise NotALine(f"longer than {LINE_BYTES:,} bytes")
    try:
        return raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise NotALine("not UTF-8") from None


class Logs:
    """The lines of arrival logs by host, then in the order in which requests were begun."""

    def __init__(self, folder: Path, tolerance: float = TOLERANCE_SECONDS) -> None:
        self.tolerance = tolerance
        self.reading = Reading()
        self._by_host = Sorter(folder, "host")
        self._by_address = Sorter(folder, "address")

    def read(self, paths: Iterable[Path], done: Progress = lambda _: None, host: str = "") -> None:
        """Reads files; `host`: of that one alone. Raises OSError."""
        for path in paths:
            for one, text in read_lines(path, self.reading, done, self.tolerance):
                if host and one.host != host:
                    continue
                begun = f"{one.begun:017.6f}"
                self._by_host.add(f"{one.host}\t{begun}\t{text}")
                if one.address and one.kind not in (PAUSE, UNSENT):
                    self._by_address.add(f"{one.address}\t{begun}\t{one.host}")

    def hosts(self) -> Iterator[tuple[str, Iterator[Arrival]]]:
        """Each host with its lines."""
        rows = (line.split("\t", 2) for line in self._by_host.sorted())
        for host, group in groupby(rows, key=lambda row: row[0]):
            yield host, (arrival_of(row[2]) for row in group)

    def closest(self) -> Closest | None:
        """The two requests to one address that came closest to each other."""
        found: Closest | None = None
        before = ["", "0", ""]
        for line in self._by_address.sorted():
            row = line.split("\t")
            if row[0] == before[0]:
                seconds = float(row[1]) - float(before[1])
                if found is None or seconds < found.seconds:
                    found = Closest(seconds, row[0], float(row[1]), (before[2], row[2]))
            before = row
        return found

    def judge(self, top: int, done: Progress = lambda _: None) -> Conduct:
        """What the lines say; `top`: how many of the hosts are told by name, the tightest first."""
        conduct = Conduct()
        worst: list[tuple[tuple[bool, float], int, HostConduct]] = []
        for host, lines in self.hosts():
            one = self._judge_host(host, lines, conduct, done)
            if not one.requests:
                continue
            conduct.hosts += 1
            key = tightness(one.tightest) if one.tightest else (True, float("inf"))
            # A heap whose first entry is the least tight one; hosts come by name, and that decides between equals.
            entry = ((not key[0], -key[1]), -conduct.hosts, one)
            if len(worst) < top:
                heapq.heappush(worst, entry)
            elif worst:
                heapq.heappushpop(worst, entry)
        conduct.tightest = [entry[2] for entry in sorted(worst, reverse=True)]
        conduct.closest = self.closest()
        return conduct

    def _judge_host(self, host: str, lines: Iterator[Arrival], conduct: Conduct, done: Progress) -> HostConduct:
        judge = HostJudge()
        requests = too_small = 0
        tightest: Gap | None = None
        for one in lines:
            done(1)
            gap = judge.take(one)
            if one.kind == UNSENT:
                conduct.unsent += 1
            elif one.kind != PAUSE:
                requests += 1
                conduct.first = min(conduct.first or one.begun, one.begun)
                conduct.last = max(conduct.last, one.begun)
            if gap is None:
                continue
            tightest = tighter(tightest, gap)
            if not gap.is_kept(self.tolerance):
                too_small += 1
                if len(conduct.examples) < TOLD:
                    conduct.examples.append(gap)
        conduct.requests += requests
        conduct.too_small += too_small
        return HostConduct(host, requests, tightest, too_small)
