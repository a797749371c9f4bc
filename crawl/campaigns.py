"""What can be done with a campaign. Every act, from a command or the web, goes through here."""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection, connections, transaction
from django.db.models import Exists, F, OuterRef, Value
from django.db.models.functions import Greatest, Least
from django.utils import timezone

from crawl import samples
from crawl.fetch.errors import Kind
from crawl.fetch.resolver import parse_override, stays_here
from crawl.models import Campaign, Page, Run, Seed, Tally
from crawl.pages import page_of
from crawl.plan import read_plan
from frontier import counts, inbox
from frontier import merge as merging
from frontier.admission import Link, admit, waiting
from frontier.blocking import sweep_marks
from frontier.claim import wake
from frontier.fill import refill
from frontier.models import Queue
from frontier.politeness import now_ms
from frontier.priority import SEED, by_depth, by_weight
from frontier.router import inbox_alias
from frontier.urls import NO_RULES, URL, InvalidURL, Rules, canonicalise
from trawl_project.errors import parsed

_MAIL_ADDRESS = re.compile(r"[^@\s<>()]+@[^@\s<>().]+(\.[^@\s<>().]+)*")

# Pages fed back into their queues in one go.
FEED = 5_000
# Seeds stored, or handed to the frontier, in one go: a statement takes 250,000 values at most.
SEEDS = 20_000
# `sweep` clocks the runs every 5 s; a longer gap than this is one in which nothing ran.
CLOCK_MS = 15_000


class CampaignError(Exception):
    """An act that cannot be done; the message says why and what can be done instead."""


def rules_of(campaign: Campaign) -> Rules:
    """The campaign's site rules."""
    return Rules.from_dict(campaign.url_rules) if campaign.url_rules else NO_RULES


def add_seeds(campaign: Campaign, seeds: Iterable[tuple[str, int]]) -> int:
    """Adds seeds, each a URL and its weight (see Seed), that are not there yet; returns how many.

    Raises CampaignError for one that is no URL.
    """
    rows, rules = [], rules_of(campaign)
    for text, weight in seeds:
        try:
            rows.append(Seed(campaign=campaign, url=canonicalise(text, rules=rules).fetch, weight=weight))
        except InvalidURL as error:
            raise CampaignError(f"'{text}' cannot be a seed: {error}") from None
    before = campaign.seeds.count()
    Seed.objects.bulk_create(rows, ignore_conflicts=True, batch_size=SEEDS)
    added = campaign.seeds.count() - before
    if added:
        campaign.seeds_have_changed()
    return added


def check_contact(campaign: Campaign, overrides: Iterable[tuple[str, str]] = ()) -> None:
    """Refuses a campaign whose seeds lie beyond this machine and that nobody could complain about.

    `overrides` are name patterns with the addresses they stand for, beside those of the settings. Raises
    CampaignError. Whatever the seeds say, the fetch engine keeps a campaign without a contact on this
    machine (Plan.only_loopback).
    """
    check_contact_for(campaign.seeds.values_list("url", flat=True), campaign.contact, overrides)


def check_contact_for(urls: Iterable[str], contact: str, overrides: Iterable[tuple[str, str]] = ()) -> None:
    """The same for some URLs, with a contact or ''; that of the settings stands in for it."""
    contact = contact or settings.CONTACT
    if contact:
        check_address(contact)
        return
    pinned = [*overrides, *parsed("TRAWL_RESOLVE", settings.RESOLVE, parse_override)]
    for url in urls:
        if not stays_here(urlsplit(url).hostname or "", pinned):
            raise CampaignError(
                f"{url} is not on this machine, and site owners must be able to complain:"
                " name a mail address or a page as the contact (--contact, or TRAWL_CONTACT)"
            )


def check_address(contact: str) -> None:
    """Refuses a contact that cannot stand in the User-Agent header, or that nobody could write to. Raises
    CampaignError."""
    if not (contact.isascii() and contact.isprintable()):
        raise CampaignError(
            f"the contact {contact!r} goes into a request header: write it in plain ASCII, without line breaks"
        )
    if not (_MAIL_ADDRESS.fullmatch(contact) or _is_page(contact)):
        raise CampaignError(
            f"the contact '{contact}' is neither a mail address (me@example.org) nor a page (https://example.org/bot)"
        )


def _is_page(contact: str) -> bool:
    try:
        return contact.startswith(("http://", "https://")) and bool(canonicalise(contact))
    except InvalidURL:
        return False


def start(campaign: Campaign) -> Run:
    """Starts the campaign or goes on with its interrupted run; hands its new seeds to the frontier."""
    if not campaign.seeds.exists():
        raise CampaignError(f"campaign '{campaign.name}' has no seeds; add one")
    run = campaign.runs.filter(state__in=[Run.State.RUNNING, Run.State.STOPPED]).order_by("number").last()
    if run is None:
        last = campaign.runs.order_by("number").last()
        run = Run.objects.create(campaign=campaign, number=last.number + 1 if last else 1)
    # What a kill left reserved against the page limit is free again.
    Run.objects.filter(id=run.pk).update(
        state=Run.State.RUNNING, ended_at=None, taken=F("requests"), clocked_at=now_ms()
    )
    Campaign.objects.filter(id=campaign.pk).update(status=Campaign.Status.RUNNING, reason="")
    sweep_marks()  # blocks may have ended since; a run with nothing else to do would be over before the next sweep
    _admit_seeds(campaign)
    wake(campaign.pk)
    run.refresh_from_db()
    return run


def _admit_seeds(campaign: Campaign) -> None:
    rules = rules_of(campaign)
    while seeds := list(campaign.seeds.filter(admitted=False).order_by("id")[:SEEDS]):
        admit(campaign.pk, [Link(canonicalise(seed.url, rules=rules), by_weight(seed.weight), 0) for seed in seeds])
        campaign.seeds.filter(id__in=[seed.pk for seed in seeds]).update(admitted=True)


def again(campaign: Campaign) -> Run:
    """Begins a new run in which every known page of the campaign is visited again.

    When the scope has changed since they were read, their links are wanted again, so nothing is asked
    that could be answered "not modified".
    """
    anew = {"etag": "", "last_modified": ""} if campaign.scope_changed else {}
    Campaign.objects.filter(id=campaign.pk).update(scope_changed=False)
    queues = Queue.objects.filter(campaign=campaign.pk).order_by("id").values_list("id", flat=True)
    now = now_ms()
    for queue in queues.iterator():
        pages = Page.objects.filter(id__gte=queue << 32, id__lt=(queue + 1) << 32, queued=False)
        pages.update(due_at=now, failures=0, **anew)
    return start(campaign)


def fetch_now(campaign: Campaign, url: URL) -> str:
    """Has a URL fetched as soon as its host is due; returns what happens, as a sentence. A page that is known is asked
    for again; what is not known is taken like a seed. Raises CampaignError."""
    verdict = read_plan(campaign, Run(campaign=campaign)).scope.verdict(url)
    if not verdict.allowed:
        raise CampaignError(f"it is out of the campaign's scope: {verdict.rule}")
    if campaign.status != Campaign.Status.RUNNING:
        raise CampaignError(f"{_standing(campaign)}; start it first, nothing is fetched for it now")
    page = page_of(campaign, url)
    if page is None:
        admit(campaign.pk, [Link(url, SEED, 0)])
        return "It is on its way to its host's queue, and will be the next that is asked for there if it was not known."
    Page.objects.filter(id=page.pk, queued=False).update(due_at=now_ms(), failures=0)
    return "It will be asked for again within a few seconds, when its host is due."


def blocks_lifted(sender: Any, using: str, **kwargs: Any) -> None:
    """Links to blocked domains were left out: where there were any, pages must be read anew to find them."""
    refused = Tally.objects.using(using).filter(kind=Kind.BLOCKED_DOMAIN, run__campaign=OuterRef("id"))
    Campaign.objects.using(using).filter(Exists(refused)).update(scope_changed=True)


def lost_inbox() -> str:
    """Which inbox is gone, with the links that waited in it; '' where all is well. Nothing is changed."""
    return "" if inbox.belongs() else str(connections[inbox_alias("default")].settings_dict["NAME"])


def go_on_without_inbox() -> None:
    """Takes the inbox as it is; every campaign must read its pages anew to find the links that were in it."""
    with transaction.atomic():
        Campaign.objects.filter(Exists(Run.objects.filter(campaign=OuterRef("id")))).update(scope_changed=True)
        inbox.adopt()


def pause(campaign: Campaign, reason: str = "") -> None:
    """Stops visits of the campaign soon; everything waits where it is. Raises CampaignError if it does not run."""
    clock_runs()
    running = Campaign.objects.filter(id=campaign.pk, status=Campaign.Status.RUNNING)
    if not running.update(status=Campaign.Status.PAUSED, reason=reason):
        raise CampaignError(f"{_standing(campaign)}: there is nothing to pause")


def resume(campaign: Campaign) -> Run:
    """Goes on with a paused campaign. Raises CampaignError if it is not paused."""
    campaign.refresh_from_db()
    if campaign.status != Campaign.Status.PAUSED:
        raise CampaignError(f"{_standing(campaign)}, and not paused")
    return start(campaign)


def stop(campaign: Campaign) -> None:
    """Stops the campaign's run; `start` goes on with it. Raises CampaignError if it neither runs nor is paused."""
    clock_runs()
    with transaction.atomic():
        active = Campaign.objects.filter(id=campaign.pk, status__in=[Campaign.Status.RUNNING, Campaign.Status.PAUSED])
        if not active.update(status=Campaign.Status.STOPPED, reason=""):
            raise CampaignError(f"{_standing(campaign)}: there is nothing to stop")
        Run.objects.filter(campaign=campaign, state=Run.State.RUNNING).update(
            state=Run.State.STOPPED, ended_at=timezone.now()
        )


def _standing(campaign: Campaign) -> str:
    campaign.refresh_from_db(fields=["status"])
    return f"campaign '{campaign.name}' is {Campaign.Status(campaign.status).label}"


def clock_runs() -> None:
    """Adds the time since the last call, wherever it was made, to the runs that run. After a gap, in which nobody
    called, CLOCK_MS at most count."""
    now = now_ms()
    since = Least(Greatest(Value(now) - F("clocked_at"), Value(0)), Value(CLOCK_MS))
    running = Run.objects.filter(state=Run.State.RUNNING, campaign__status=Campaign.Status.RUNNING)
    running.update(busy_ms=F("busy_ms") + since, clocked_at=now)


def left_over(campaign: Campaign) -> bool:
    """Whether a finished campaign has URLs that a new start would visit: beyond its last run's page limit,
    or on hosts that did not answer."""
    return counts.waiting(campaign.pk).urls > 0


def feed_due() -> int:
    """Puts pages that are due again (retries, recrawls) back into their queues; returns how many.

    Only pages whose fate is this one transaction: a page is in its queue if and only if `queued`.
    """
    running = Campaign.objects.filter(id=OuterRef("campaign"), status=Campaign.Status.RUNNING)
    mine = Queue.objects.filter(Exists(running), id=OuterRef("queue"))
    due = Page.objects.annotate(queue=F("id").bitrightshift(32)).filter(Exists(mine), due_at__lte=now_ms())
    # In the order of the index of due pages; in that of the ids SQLite would look through all pages.
    rows = sorted(due.order_by("due_at", "id").values_list("id", "depth", "ref")[:FEED])
    if not rows:
        return 0
    with transaction.atomic():
        taken = set(
            Page.objects.select_for_update()
            .filter(id__in=[r[0] for r in rows], due_at__isnull=False)
            .values_list("id", flat=True)
        )
        rows = [row for row in rows if row[0] in taken]
        refill([(page >> 32, by_depth(depth), depth, ref) for page, depth, ref in rows])
        Page.objects.filter(id__in=taken).update(queued=True, due_at=None)
    return len(rows)


def finish_idle() -> None:
    """Ends the runs in which nothing is left to do, or whose page limit is reached."""
    for run in Run.objects.filter(state=Run.State.RUNNING, campaign__status="running").select_related("campaign"):
        if page_limit_reached(run) or nothing_left(run.campaign):
            finish_run(run)


def page_limit_reached(run: Run) -> bool:
    """Whether as many URLs were asked for as the campaign allows, and none is under way."""
    limit = run.campaign.max_pages
    return limit is not None and run.requests >= limit and run.taken >= limit


def nothing_left(campaign: Campaign) -> bool:
    """Whether no URL of the campaign waits, is being visited, or will come back by itself.

    Read under the merge lock, in one statement and before the inbox: a URL that moves from a visit to the pages that
    are tried again, and from there to its queue, is always in one of the three. Where it is in none, nobody can add
    to the inbox any more, and nothing is taken out of it meanwhile. Hosts that are parked because they do not answer
    are left out: what waits on them waits for the next start.
    """
    comes_back = (
        "EXISTS (SELECT 1 FROM crawl_page p JOIN frontier_queue q ON q.id = p.id >> 32"
        " WHERE p.due_at IS NOT NULL AND q.campaign = %s)"
    )
    with merging.merge_lock("default") as mine:
        if not mine:
            return False
        with connection.cursor() as cursor:
            # A leased host is held by a visit whose results, links included, are not stored yet.
            cursor.execute(f"SELECT {counts.is_live('%s')} OR {comes_back}", [campaign.pk] * 3)
            return not cursor.fetchone()[0] and not waiting()[0]


def finish_run(run: Run) -> None:
    """Marks a run and its campaign as finished."""
    clock_runs()
    ended = Run.objects.filter(id=run.pk, state=Run.State.RUNNING).update(
        state=Run.State.FINISHED, ended_at=timezone.now()
    )
    if ended:
        samples.finish(Run.objects.select_related("campaign").get(id=run.pk))
        Campaign.objects.filter(id=run.campaign.pk, status=Campaign.Status.RUNNING).update(
            status=Campaign.Status.FINISHED
        )
