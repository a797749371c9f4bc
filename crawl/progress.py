"""How a run stands right now, in numbers that are cheap to read."""

from dataclasses import dataclass

from django.db.models import Count, Min

from crawl.disk import shortage
from crawl.fetch.errors import FORBIDDEN_KINDS
from crawl.models import Campaign, Page, Run, Tally
from frontier import counts
from frontier.admission import waiting as inbox_waiting
from frontier.claim import leased
from frontier.politeness import now_ms
from frontier.schedule import NextHost, next_due


@dataclass(frozen=True, slots=True)
class Standing:
    """A run at one moment. `waits_for` is a sentence for people, '' when work is under way."""

    run: Run
    waiting_urls: int
    hosts: int
    visiting: int
    inbox_links: int
    errors: int
    forbidden: int  # by robots.txt, scope, ports or a domain block
    waits_for: str


def standing(campaign: Campaign) -> Standing:
    """Reads how the latest run of a campaign stands."""
    run = Run.objects.filter(campaign=campaign).latest("number")
    waiting = counts.waiting(campaign.pk)
    visiting = leased()
    links, _ = inbox_waiting()
    not_fetched = dict(Tally.objects.filter(run=run).exclude(kind__startswith="http-").values_list("kind", "count"))
    forbidden = sum(not_fetched.get(kind, 0) for kind in FORBIDDEN_KINDS)
    errors = sum(not_fetched.values()) - forbidden
    paused = Campaign.objects.filter(id=campaign.pk, status=Campaign.Status.PAUSED).first()
    if paused:
        waits = f"somebody to start it again: it was paused{f' ({paused.reason})' if paused.reason else ''}"
    else:
        waits = shortage() or ("" if visiting or links else _reason(campaign))
    return Standing(run, waiting.urls, waiting.hosts, visiting, links, errors, forbidden, waits)


def _reason(campaign: Campaign) -> str:
    now = now_ms()
    host = next_due()
    retry = Page.objects.filter(due_at__isnull=False).aggregate(at=Min("due_at"), n=Count("id"))
    if retry["at"] is not None and (host is None or retry["at"] < host.due_at):
        return f"{counted(retry['n'], 'URL')} to be asked for again, the first {_when(retry['at'] - now)}"
    if host is not None and host.due_at > now:
        return f"{host.name}{_because(host)}, due {_when(host.due_at - now)}"
    return ""


def _because(host: NextHost) -> str:
    return f" ({host.reason})" if host.reason else ""


def _when(ms: int) -> str:
    seconds = max(0, round(ms / 1000))
    return "now" if not seconds else f"in {duration(seconds)}"


def duration(seconds: float) -> str:
    """Seconds as people say them: 42 s, 3 min 5 s, 2 h 10 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def counted(number: int, thing: str) -> str:
    """'1 host', '2,000 hosts'."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def size(number: float) -> str:
    """Bytes as people say them, in powers of ten."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
