"""The summary of a run, for people and for programs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Q
from django.utils import timezone
from rich.console import Group
from rich.table import Table
from rich.text import Text

from crawl import campaigns
from crawl.models import Campaign, Run, Tally, WarcFile
from crawl.progress import counted, duration, size
from frontier import counts
from frontier.blocks import above
from frontier.models import DomainBlock


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """How often a kind of failure was met, and the latest example."""

    kind: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers; `seconds` is the time it was running, `status` counts answers by HTTP status."""

    campaign: str
    run: int
    state: str
    requests: int
    pages: int
    bytes: int
    seconds: float
    status: dict[str, int]
    errors: list[ErrorCount]
    links: int
    hosts: int
    waiting_urls: int
    unreachable_hosts: int
    unreachable_urls: int
    blocked_hosts: int
    blocked_urls: int
    blocked_by: str
    page_limit_reached: bool
    warc_files: list[str]
    dns: dict[str, int | float]  # the look-ups of this process, see crawl/fetch/resolver.py

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def summary(campaign: Campaign, look_ups: dict[str, int | float] | None = None) -> Summary:
    """Reads the summary of the latest run; `look_ups` are those of the process that ran it."""
    run = Run.objects.filter(campaign=campaign).select_related("campaign").latest("number")
    tallies = list(Tally.objects.filter(run=run).order_by("kind"))
    waiting = counts.waiting(campaign.pk)
    parked = counts.parked(campaign.pk)
    block = _block_of(parked.blocked_name) if parked.blocked_name else None
    files = WarcFile.objects.filter(directory__endswith=f"/{campaign.pk}").order_by("id")
    return Summary(
        campaign=campaign.name,
        run=run.number,
        state=run.state,
        requests=run.requests,
        pages=run.pages,
        bytes=run.bytes,
        seconds=round(run.busy_ms / 1000, 1),
        status={t.kind.removeprefix("http-"): t.count for t in tallies if t.kind.startswith("http-")},
        errors=[ErrorCount(t.kind, t.count, t.example) for t in tallies if not t.kind.startswith("http-")],
        links=run.links,
        hosts=waiting.hosts,
        waiting_urls=waiting.urls,
        unreachable_hosts=parked.hosts,
        unreachable_urls=parked.urls,
        blocked_hosts=parked.blocked_hosts,
        blocked_urls=parked.blocked_urls,
        blocked_by=block.domain if block else "",
        page_limit_reached=campaigns.page_limit_reached(run),
        warc_files=[f"{row.directory}/{row.name}" for row in files],
        dns=look_ups or {},
    )


def _block_of(host: str) -> DomainBlock | None:
    """The block in force that covers a host, the widest where there are several."""
    now = timezone.now()
    rows = DomainBlock.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), domain__in=above(host))
    return min(rows, key=lambda row: len(row.domain), default=None)


def table(told: Summary, resume: str) -> Group:
    """The summary as people read it. `resume` is the command that goes on with this campaign."""
    numbers = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    rate = f", {told.pages / told.seconds:.1f} a second" if told.seconds else ""
    numbers.add_row("pages", f"{told.pages:,}{rate}")
    numbers.add_row("received", size(told.bytes))
    numbers.add_row("time", duration(told.seconds))
    numbers.add_row("hosts", f"{told.hosts:,}")
    if told.dns.get("asked"):
        numbers.add_row("look-ups", names_looked_up(told.dns))
    numbers.add_row("answers", ", ".join(f"{status}: {count:,}" for status, count in told.status.items()) or "none")
    waiting = told.waiting_urls - told.unreachable_urls - told.blocked_urls
    if waiting > 0:
        numbers.add_row("still waiting", counted(waiting, "URL"))
    if told.warc_files:
        folder = told.warc_files[0].rpartition("/")[0]
        numbers.add_row("WARC", Text(f"{folder}/ ({counted(len(told.warc_files), 'file')})", overflow="fold"))
    parts: list[Any] = [Text(f"\n{told.campaign}, run {told.run}: {told.state}", style="bold"), numbers]
    if told.errors:
        errors = Table("not fetched", "times", "for example", box=None, padding=(0, 2, 0, 0), header_style="bold")
        for error in told.errors:
            errors.add_row(error.kind, f"{error.count:,}", Text(error.example, overflow="fold"))
        parts += [Text(), errors]
    parts += [Text(), *(Text(line) for line in advice(told, resume))]
    return Group(*parts)


def names_looked_up(dns: Mapping[str, int | float]) -> str:
    """The look-ups of names, in words."""
    words = [f"{dns['asked']:,}", f"{dns['mean_ms']:,.0f} ms each, the slowest {dns['slowest_ms'] / 1000:,.1f} s"]
    if dns["failed"]:
        unanswered = f", {dns['unanswered']:,} of them without an answer" if dns["unanswered"] else ""
        words.append(f"{dns['failed']:,} failed{unanswered}")
    return "; ".join(words)


def advice(told: Summary, resume: str) -> list[str]:
    """What to do next."""
    lines = []
    if any(error.kind == "blocked-address" for error in told.errors):
        lines.append("Addresses that are not public are refused; if the network is yours: --allow-network 127.0.0.0/8")
    if told.unreachable_urls:
        lines.append(
            f"{counted(told.unreachable_urls, 'URL')} left on {counted(told.unreachable_hosts, 'host')}"
            f" that did not answer; try again with: {resume}"
        )
    if told.blocked_urls:
        one = f", one of them by the block of {told.blocked_by}" if told.blocked_by else ""
        lines.append(
            f"{counted(told.blocked_urls, 'URL')} left on {counted(told.blocked_hosts, 'host')} under a domain block"
            f"{one}; see 'block list' and 'block remove', then go on with: {resume}"
        )
    if told.page_limit_reached and told.requests:
        lines.append("The page limit is reached; a larger --pages goes on from here.")
    if told.state == Run.State.STOPPED:
        lines.append(f"Stopped. Go on with: {resume}")
    elif told.state == Run.State.FINISHED:
        lines.append(f"Visit everything again, and see what changed: {resume} --again")
    return lines
