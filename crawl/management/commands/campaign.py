"""trawl campaign ...: what can be done with campaigns that are there, for terminals and cron."""

import json
import os
import shlex
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.console import Console
from rich.table import Table
from rich.text import Text

from crawl import campaigns
from crawl.fetch.engine import WORKER_ALIVE_MS
from crawl.fetch.errors import FORBIDDEN_KINDS
from crawl.lookup import printable
from crawl.models import Campaign, Run, Tally, Worker
from crawl.open_campaign import has_database, open_campaign
from crawl.plan import read_plan
from crawl.progress import counted, standing
from crawl.report import summary, table
from crawl.scope import InvalidScope
from frontier import counts
from frontier.politeness import now_ms
from trawl_project.databases import prepare_databases
from trawl_project.detailed import DetailedCommand

DETAILS = """\
  trawl campaign list
  trawl campaign show garden
  trawl campaign start garden             or goes on with it; --again: visits every known page once more
  trawl campaign pause garden --reason "their server is moved"
  trawl campaign resume garden            of what is paused only, so that cron starts nothing that somebody stopped
  trawl campaign stop garden              what is in flight is finished

Workers do the crawling: trawl up, or celery -A trawl worker.

exit code: 0 done, 1 it could not be done, 2 wrong usage or no such campaign
"""
# A file has no width; lines are cut for a terminal alone.
FILE_WIDTH = 200


class Command(DetailedCommand):
    """Lists, shows, starts, pauses and stops campaigns."""

    help = "list, show, start, pause, resume and stop campaigns"
    details = DETAILS
    # A look at nothing leaves nothing behind.
    needs_database = False

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        listed = acts.add_parser("list", help="all campaigns, with how they stand")
        shown = acts.add_parser("show", help="one campaign: its latest run in numbers, and what it waits for")
        started = acts.add_parser("start", help="start a campaign, or go on with it")
        paused = acts.add_parser("pause", help="let everything wait where it is")
        for act, text in (("resume", "go on with a paused campaign"), ("stop", "stop a campaign; start goes on")):
            acts.add_parser(act, help=text).add_argument("name", metavar="NAME", help="the campaign")
        for one in (shown, started, paused):
            one.add_argument("name", metavar="NAME", help="the campaign")
        for one in (listed, shown):
            one.add_argument("--json", action="store_true", help="one JSON object for each campaign, in a line")
        started.add_argument("--again", action="store_true", help="visit every known page again, in a new run")
        paused.add_argument("--reason", default="", help="a note that is shown with it, up to 200 characters")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["act"] == "list":
            self._list(as_json=options["json"])
            return
        campaign = open_campaign(options["name"])
        try:
            getattr(self, f"_{options['act']}")(campaign, options)
        except (campaigns.CampaignError, InvalidScope) as error:
            raise CommandError(str(error)) from None

    # --- looking -------------------------------------------------------------------------------------------

    def _list(self, *, as_json: bool) -> None:
        rows: list[dict[str, Any]] = []
        if has_database():
            prepare_databases()
            rows = [_row(campaign) for campaign in Campaign.objects.order_by("name")]
        if as_json:
            for row in rows:
                self.stdout.write(json.dumps(row))
            return
        if not rows:
            self.stdout.write("no campaign yet; make one in the admin (trawl up), or with: trawl crawl URL")
            return
        told = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for column in ("campaign", "status", "run", "pages", "errors", "waiting", ""):
            told.add_column(column, justify="right" if column in ("run", "pages", "errors", "waiting") else "left")
        for row in rows:
            numbers = (f"{row[name]:,}" for name in ("run", "pages", "errors", "waiting_urls"))
            told.add_row(Text(printable(row["campaign"])), row["status"], *numbers, Text(printable(row["reason"])))
        self._print(told)

    def _show(self, campaign: Campaign, options: dict[str, Any]) -> None:
        if not campaign.runs.exists():
            seeds = campaign.seeds.count()
            if options["json"]:
                self.stdout.write(json.dumps(_row(campaign) | {"seeds": seeds}))
            else:
                self.stdout.write(f"{printable(campaign.name)}: {campaign.get_status_display()}")
                self.stdout.write(f"{counted(seeds, 'seed')}; start it with: {_command('start', campaign)}")
            return
        told, now = summary(campaign), standing(campaign)
        if options["json"]:
            more = {"status": campaign.status, "waits_for": now.waits_for, "visiting_hosts": now.visiting}
            self.stdout.write(json.dumps(told.as_dict() | more))
            return
        self._print(table(told, _command("start", campaign)))
        if campaign.status in (Campaign.Status.RUNNING, Campaign.Status.PAUSED):
            doing = f"waits for {now.waits_for}" if now.waits_for else f"{counted(now.visiting, 'host')} under visit"
            self.stdout.write(printable(doing))
            self._note_workers(campaign)

    def _print(self, what: Any) -> None:
        width = None if self.stdout.isatty() else FILE_WIDTH
        console = Console(width=width)
        with console.capture() as captured:
            console.print(what, soft_wrap=True)
        self.stdout.write("\n".join(line.rstrip() for line in captured.get().splitlines()))

    # --- acting ----------------------------------------------------------------------------------------------

    def _start(self, campaign: Campaign, options: dict[str, Any]) -> None:
        read_plan(campaign, Run(campaign=campaign))  # a scope that cannot be used is told before anything starts
        campaigns.check_contact(campaign)
        finished = campaign.status == Campaign.Status.FINISHED
        if options["again"]:
            if campaign.status in (Campaign.Status.RUNNING, Campaign.Status.PAUSED):
                raise campaigns.CampaignError(
                    f"campaign '{campaign.name}' is {campaign.get_status_display()}: stop it, or let it finish, first"
                )
            self._do(campaign, campaigns.again, "starts; every known page is visited again")
        elif campaign.status == Campaign.Status.RUNNING:
            self.stdout.write(f"campaign '{printable(campaign.name)}' runs already")
        elif finished and not campaign.seeds.filter(admitted=False).exists() and not campaigns.left_over(campaign):
            raise campaigns.CampaignError(
                f"campaign '{campaign.name}' is finished; visit everything again with:"
                f" {_command('start', campaign)} --again"
            )
        else:
            self._do(campaign, campaigns.start, "starts")
        self._note_workers(campaign)

    def _pause(self, campaign: Campaign, options: dict[str, Any]) -> None:
        reason = printable(options["reason"])[: Campaign._meta.get_field("reason").max_length]
        self._do(campaign, lambda one: campaigns.pause(one, reason), "is paused; what is in flight is finished")

    def _resume(self, campaign: Campaign, options: dict[str, Any]) -> None:
        campaigns.check_contact(campaign)
        self._do(campaign, campaigns.resume, "goes on")
        self._note_workers(campaign)

    def _stop(self, campaign: Campaign, options: dict[str, Any]) -> None:
        self._do(campaign, campaigns.stop, "is stopped; what is in flight is finished")

    def _do(self, campaign: Campaign, act: Callable[[Campaign], object], done: str) -> None:
        act(campaign)
        self.stdout.write(f"campaign '{printable(campaign.name)}' {done}")

    def _note_workers(self, campaign: Campaign) -> None:
        """Says so when a campaign runs and nobody works for it."""
        campaign.refresh_from_db(fields=["status"])
        alive = Worker.objects.filter(seen_at__gt=now_ms() - WORKER_ALIVE_MS).exists()
        if campaign.status == Campaign.Status.RUNNING and not alive:
            self.stderr.write("no worker runs; start one with: trawl up")


def _row(campaign: Campaign) -> dict[str, Any]:
    """A campaign in a line."""
    run = campaign.runs.order_by("number").last()
    errors = 0
    if run:
        failures = Tally.objects.filter(run=run).exclude(kind__startswith="http-").exclude(kind__in=FORBIDDEN_KINDS)
        errors = sum(failures.values_list("count", flat=True))
    return {
        "campaign": campaign.name,
        "status": campaign.status,
        "reason": campaign.reason,
        "run": run.number if run else 0,
        "requests": run.requests if run else 0,
        "pages": run.pages if run else 0,
        "errors": errors,
        "waiting_urls": counts.waiting(campaign.pk).urls,
    }


def _command(act: str, campaign: Campaign) -> str:
    """The words that do it, as they are typed."""
    return f"{os.environ.get('TRAWL_COMMAND', 'trawl')} campaign {act} {shlex.quote(printable(campaign.name))}"
