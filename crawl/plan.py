"""A running campaign as a worker needs it: read once from the database, then used for thousands of pages."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.conf import settings

from crawl.fetch.request_headers import basic, parse_headers
from crawl.models import Campaign, Run
from crawl.scope import Scope
from crawl.store.arrivals import folder_name
from frontier.claim import wake
from frontier.urls import NO_RULES, InvalidURL, Rules, canonicalise
from trawl_project.version import AGENT, VERSION

# How long a worker goes on with what it has read before it looks for changes.
PLAN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker must know of a campaign that is running."""

    campaign: int
    run: int
    rules: Rules
    scope: Scope
    delay_ms: int
    burst: int
    address_delay_ms: int | None
    adaptive: bool
    max_pages: int | None
    user_agent: str
    only_loopback: bool
    warc: bool
    headers: tuple[str, ...] = field(default=(), repr=False)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)  # header line by origin
    cookies: bool = False
    arrival_log: str = ""  # the folder of the run's log; empty: it keeps none


def user_agent(contact: str) -> str:
    """The User-Agent header: which program this is, and whom to write to about it."""
    return f"{AGENT}/{VERSION} (+{contact})" if contact else f"{AGENT}/{VERSION}"


def read_plan(campaign: Campaign, run: Run) -> Plan:
    """The plan of one campaign's run. Raises InvalidScope."""
    rules = Rules.from_dict(campaign.url_rules) if campaign.url_rules else NO_RULES
    seeds = []
    for text in campaign.seeds.values_list("url", flat=True):
        try:
            seeds.append(canonicalise(text, rules=rules))
        except InvalidURL:
            continue  # refused when it was entered; an older version may have let it in
    patterns = list(campaign.scope_rules.values_list("action", "pattern"))
    scope = Scope(
        campaign.reach,
        seeds,
        [pattern for action, pattern in patterns if action == "include"],
        [pattern for action, pattern in patterns if action == "exclude"],
        campaign.max_depth,
        campaign.ports,
    )
    credentials = {one.origin: basic(one.user, one.password) for one in campaign.credentials.all()}
    return plan_of(campaign, run, rules, scope, credentials)


def plan_of(campaign: Campaign, run: Run, rules: Rules, scope: Scope, credentials: Mapping[str, str]) -> Plan:
    """The plan that follows from a campaign and a run, which need not be stored, and from what is kept beside them."""
    contact = campaign.contact or settings.CONTACT
    return Plan(
        campaign=campaign.pk or 0,
        run=run.pk,
        rules=rules,
        scope=scope,
        delay_ms=campaign.delay_ms,
        burst=campaign.burst,
        address_delay_ms=campaign.address_delay_ms,
        adaptive=campaign.adaptive,
        max_pages=campaign.max_pages,
        user_agent=user_agent(contact),
        only_loopback=not contact,
        warc=campaign.store_warc,
        headers=parse_headers(campaign.headers),
        credentials=credentials,
        cookies=campaign.cookies,
        arrival_log=folder_name(run) if campaign.arrival_log and run.pk else "",
    )


class Plans:
    """The plans of all running campaigns, at most PLAN_SECONDS old."""

    def __init__(self) -> None:
        self._read_at = 0.0
        self._read: dict[int, tuple[tuple[object, ...], Plan]] = {}  # by campaign, with its marks

    def running(self) -> dict[int, Plan]:
        """Plan by campaign id."""
        now = time.monotonic()
        if now - self._read_at > PLAN_SECONDS:
            runs = Run.objects.filter(state=Run.State.RUNNING, campaign__status=Campaign.Status.RUNNING).select_related(
                "campaign"
            )
            before = self._read
            after = {run.campaign.pk: _reread(run, before.get(run.campaign.pk)) for run in runs}
            # While this process did not know of a campaign it may have found the campaign's hosts idle.
            for campaign in after.keys() - before.keys():
                wake(campaign)
            self._read = after
            self._read_at = now
        return {campaign: plan for campaign, (_, plan) in self._read.items()}

    def forget(self) -> None:
        """Makes the next look read the database."""
        self._read_at = 0.0


def _reread(run: Run, before: tuple[tuple[object, ...], Plan] | None) -> tuple[tuple[object, ...], Plan]:
    """The plan of a run with its marks: the one from before while nothing in it has changed."""
    marks = _marks(run)
    return before if before and before[0] == marks else (marks, read_plan(run.campaign, run))


def _marks(run: Run) -> tuple[object, ...]:
    """What a plan is made of. Of the seeds only their version: to read a million of them takes seconds."""
    campaign = run.campaign
    return (
        run.pk,
        *(getattr(campaign, field.attname) for field in Campaign._meta.concrete_fields),
        *campaign.scope_rules.values_list("action", "pattern"),
        *campaign.credentials.values_list("origin", "user", "password"),
    )
