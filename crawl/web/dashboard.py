"""The numbers of the dashboard. Each costs the same at ten million URLs: counters, short tables, first rows."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from crawl.fetch.engine import WORKER_ALIVE_MS
from crawl.fetch.errors import FORBIDDEN_KINDS
from crawl.models import Campaign, Run, Sample, Tally, Worker
from crawl.progress import Standing, duration, size, standing
from crawl.web.chart import Chart, chart
from crawl.web.idle import causes, hosts
from frontier.politeness import now_ms

MOST_CAMPAIGNS = 10
MOST_ERRORS = 8
# The rate shown is the mean over the last samples that cover this long.
RATE_MS = 60_000
CLASSES = (
    ("ok", "2xx"),
    ("moved", "3xx"),
    ("refused", "4xx"),
    ("broken", "5xx"),
    ("failed", "no answer"),
)


@dataclass(frozen=True, slots=True)
class Active:
    """A campaign that runs or is paused, and its latest run."""

    campaign: Campaign
    now: Standing
    rate: float  # pages a second
    byte_rate: float
    share: int  # percent of the known URLs that were asked for
    end: str
    received: str
    pages_chart: Chart
    answers_chart: Chart


def dashboard(request: HttpRequest) -> dict[str, Any]:
    """What the dashboard's template shows."""
    active = Campaign.objects.filter(status__in=[Campaign.Status.RUNNING, Campaign.Status.PAUSED]).order_by("-id")
    campaigns = [_active(campaign) for campaign in active[:MOST_CAMPAIGNS]]
    now = hosts()
    return {
        "campaigns": campaigns,
        "recent": _recent() if not campaigns else [],
        "has_any": bool(campaigns) or Campaign.objects.exists(),
        "hosts": now,
        "causes": causes(now),
        "errors": _errors([one.now.run.pk for one in campaigns]),
        "workers": Worker.objects.filter(seen_at__gt=now_ms() - WORKER_ALIVE_MS).order_by("name"),
        "may_add": request.user.has_perm("crawl.add_campaign"),
    }


def _active(campaign: Campaign) -> Active:
    now = standing(campaign)
    samples = list(now.run.samples.order_by("at"))
    rate, byte_rate = rates(samples, now.run)
    known = now.run.requests + now.waiting_urls
    end = f"about {duration(now.waiting_urls / rate)} for what is known" if rate >= 0.01 and now.waiting_urls else ""
    return Active(
        campaign,
        now,
        rate,
        byte_rate,
        round(100 * now.run.requests / known) if known else 0,
        end,
        size(now.run.bytes),
        chart(samples, [("pages", "pages")]),
        chart(samples, CLASSES),
    )


def rates(samples: list[Sample], run: Run) -> tuple[float, float]:
    """Pages and bytes a second of late; 0 where nothing is known."""
    if not samples or run.campaign.status != Campaign.Status.RUNNING:
        return 0.0, 0.0
    now = now_ms()
    first = next((one for one in samples if one.at >= now - RATE_MS), samples[-1])
    seconds = (now - first.at) / 1000
    if seconds < 1:
        return 0.0, 0.0
    return (run.pages - first.pages) / seconds, (run.bytes - first.bytes) / seconds


def _recent() -> list[Run]:
    return list(Run.objects.select_related("campaign").order_by("-id")[:MOST_CAMPAIGNS])


def _errors(runs: list[int]) -> list[Tally]:
    """What was not fetched, by kind, with an example."""
    found = Tally.objects.filter(run__in=runs).exclude(kind__startswith="http-").exclude(kind__in=FORBIDDEN_KINDS)
    return list(found.select_related("run__campaign").order_by("-count")[:MOST_ERRORS])
