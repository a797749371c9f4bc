"""Why a crawl is not faster: what its hosts and workers do at this moment, in words, with what to do about it.

Everything is read from short tables or from the first rows of long ones, so that it costs the same at ten million URLs.
"""

import re
from collections import Counter
from dataclasses import dataclass

from django.db.models import Sum

from crawl.disk import shortage
from crawl.fetch.engine import WORKER_ALIVE_MS
from crawl.models import Campaign, Run, Worker
from frontier.claim import leased
from frontier.models import DueHost, Host
from frontier.politeness import now_ms
from frontier.schedule import HOST_BITS

# Waiting hosts that are looked at: those that are due next.
LOOKED_AT = 1_000
MOST = 10_000  # hosts that are counted
# `sweep` clocks the runs every 5 s; after so long without it nobody sends it, or nobody takes it.
SILENT_MS = 20_000
POLITE = "their delay: one request at a time for each host"
# "HTTP 429, asked to wait 3 s" and "Crawl-delay 30 s" are one cause each, however long the wait.
_HOW_LONG = re.compile(r"\s*\d[\d.,]* (?:s|ms|minutes?|hours?|days?)\b.*")


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts with URLs, by what they do; `more`: there are more waiting ones than were counted."""

    visited: int
    due: int
    waiting: int
    parked: int
    capacity: int
    more: bool


@dataclass(frozen=True, slots=True)
class Cause:
    """What holds hosts back: a share of them in percent, or None where it is the crawl as a whole."""

    text: str
    share: int | None = None
    advice: str = ""


def hosts() -> Hosts:
    """How many hosts do what."""
    now = now_ms()
    rows = DueHost.objects.order_by("id")
    due = rows.filter(id__lt=(now // 1000) << HOST_BITS)[:MOST].count()
    waiting = rows.filter(id__gte=(now // 1000) << HOST_BITS)[:MOST].count()
    parked = Host.objects.filter(parked_until__isnull=False).order_by()[:MOST].count()
    alive = Worker.objects.filter(seen_at__gt=now - WORKER_ALIVE_MS).aggregate(n=Sum("capacity"))["n"] or 0
    return Hosts(leased(), due, waiting, parked, alive, waiting >= MOST)


def causes(now: Hosts) -> list[Cause]:
    """What keeps the running campaigns from going faster, the gravest first; empty when none runs."""
    if not Campaign.objects.filter(status=Campaign.Status.RUNNING).exists():
        return []
    found = [*_stopped(now)]
    if now.due and now.capacity and now.visited >= now.capacity:
        found.append(
            Cause(
                f"All workers are full: {now.visited:,} hosts are being visited, and {now.due:,} more are due.",
                advice="Start more workers: trawl up --workers 2, or celery -A trawl worker on another machine.",
            )
        )
    found += _waits()
    if not found and now.visited:
        found.append(
            Cause(
                f"Hosts with URLs left: {now.visited:,}, and all of them are being visited: each gets one request at a"
                " time, with its delay between two."
            )
        )
    return found


def _stopped(now: Hosts) -> list[Cause]:
    """What stops everything."""
    found = []
    if missing := shortage():
        found.append(Cause(f"Nothing is fetched: there is no {missing}."))
    if not now.capacity:
        found.append(Cause("No worker runs.", advice="Start one: trawl up, or celery -A trawl worker."))
    clocked = Run.objects.filter(state=Run.State.RUNNING, campaign__status=Campaign.Status.RUNNING)
    last = clocked.order_by("-clocked_at").values_list("clocked_at", flat=True).first()
    if now.capacity and last is not None and last < now_ms() - SILENT_MS:
        found.append(
            Cause(
                "The beat is silent, or the broker does not pass its messages on.",
                advice="Start it: celery -A trawl beat (trawl up does so by itself), and look whether the broker runs.",
            )
        )
    return found


def _waits() -> list[Cause]:
    """Why hosts that are not being visited wait, by the reason that their last visit left."""
    keys = list(DueHost.objects.order_by("id").values_list("id", flat=True)[:LOOKED_AT])
    if not keys:
        return []
    reasons = Counter(
        _HOW_LONG.sub("", reason)
        for reason in Host.objects.filter(id__in=[key & (1 << HOST_BITS) - 1 for key in keys]).values_list(
            "reason", flat=True
        )
    )
    total = sum(reasons.values())
    return [Cause(reason or POLITE, max(1, round(100 * n / total))) for reason, n in reasons.most_common(8)]
