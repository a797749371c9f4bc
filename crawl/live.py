"""The live view of a crawl: a panel on a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from crawl.models import Campaign
from crawl.progress import Standing, counted, duration, size

LINE_SECONDS = 5.0
# The rate shown is the mean over about this long.
RATE_SECONDS = 10.0


class Display:
    """Shows how a run stands. Use as a context manager."""

    def __init__(self, console: Console, campaign: Campaign) -> None:
        self._console = console
        self._campaign = campaign
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._history: list[tuple[float, int]] = []
        self._started = time.monotonic()
        self._last_line = 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """A sentence above the panel."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def show(self, now: Standing) -> None:
        """Shows the latest numbers."""
        rate = self._rate(now)
        if self._live:
            self._live.update(self._panel(now, rate))
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._console.print(line(now, rate), highlight=False, soft_wrap=True)

    def _rate(self, now: Standing) -> float:
        clock = time.monotonic()
        self._history.append((clock, now.run.requests))
        while len(self._history) > 2 and self._history[0][0] < clock - RATE_SECONDS:
            self._history.pop(0)
        (t0, n0), (t1, n1) = self._history[0], self._history[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else 0.0

    def _panel(self, now: Standing, rate: float) -> Table:
        known = now.run.requests + now.waiting_urls
        bar = ProgressBar(total=max(known, 1), completed=now.run.requests, width=40)
        grid = Table.grid(padding=(0, 2))
        grid.add_row(Text(self._campaign.name, style="bold"), bar)
        grid.add_row("pages", f"{now.run.pages:,}   {rate:,.1f} a second   {size(now.run.bytes)}")
        queue = f"{counted(now.waiting_urls, 'URL')} on {counted(now.hosts, 'host')}, {now.visiting:,} being visited"
        grid.add_row("queue", queue)
        grid.add_row("errors", Text(f"{now.errors:,}", style="yellow" if now.errors else ""))
        if now.forbidden:
            grid.add_row("forbidden", f"{now.forbidden:,}   by robots.txt, scope, ports or a domain block")
        left = f", about {duration(now.waiting_urls / rate)} for what is known" if rate and now.waiting_urls else ""
        grid.add_row("time", f"{duration(now.run.busy_ms / 1000)}{left}")
        if now.waits_for:
            grid.add_row("waits for", Text(now.waits_for, overflow="ellipsis", no_wrap=True))
        return grid


def line(now: Standing, rate: float) -> str:
    """The numbers as one plain line."""
    parts = [
        counted(now.run.pages, "page"),
        f"{rate:,.1f}/s",
        size(now.run.bytes),
        f"{counted(now.waiting_urls, 'URL')} waiting on {counted(now.hosts, 'host')}",
        f"{now.visiting:,} being visited",
        counted(now.errors, "error"),
    ]
    if now.forbidden:
        parts.append(f"{now.forbidden:,} forbidden")
    if now.waits_for:
        parts.append(f"waits for {now.waits_for}")
    return ", ".join(parts)
