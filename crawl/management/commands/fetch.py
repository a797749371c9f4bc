"""trawl fetch URL: one fetch through the engine of a crawl, with all that it shows."""

import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from django.core.management.base import CommandError, CommandParser
from rich.console import Console
from rich.table import Table
from rich.text import Text

from crawl.campaigns import CampaignError, check_contact_for, rules_of
from crawl.engine_options import engine_options
from crawl.fetch.authorities import InvalidAuthorities
from crawl.fetch.request_headers import basic, parse_headers
from crawl.fetch.single import InTurn, SingleFetch
from crawl.fetch_report import body_of, report
from crawl.fetch_text import Row, rows, summary
from crawl.lookup import USAGE, printable
from crawl.models import Campaign, Run
from crawl.open_campaign import has_database, open_campaign
from crawl.pages import page_of
from crawl.plan import Plan, plan_of, read_plan
from crawl.request_options import (
    add_network_options,
    add_request_options,
    credentials_of,
    network_options,
    seconds,
    without_userinfo,
)
from crawl.scope import InvalidScope, Scope
from crawl.targets import known_of
from frontier.urls import NO_RULES, URL, InvalidURL, Rules, canonicalise
from trawl_project.databases import prepare_databases
from trawl_project.detailed import DetailedCommand

DETAILS = """\
What is shown is what a crawl would do; no page is stored. The gap between two requests to a host is kept, also
to those of a crawl with the same data directory, and what robots.txt forbids is not asked for. Redirects are
followed to other hosts too, each by its own robots.txt.

exit code: 0 fetched, the last answer was a 2xx or 304; 1 anything else, the report says what; 2 wrong usage;
130 interrupted
"""
FETCHED, NOT_FETCHED, INTERRUPTED = 0, 1, 130


class Command(DetailedCommand):
    """Fetches one URL and shows what a crawl would make of it."""

    help = "fetch one URL as a crawl would, and show each hop, verdict, header and timing; nothing is stored"
    details = DETAILS
    needs_database = False  # but where there is one, hosts are asked in their turn
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("url", metavar="URL", help="what to fetch")
        add("--campaign", metavar="NAME", help="by the settings of this campaign: scope, delay, headers, ...")
        add("--again", action="store_true", help="ask by the ETag or date that the campaign has of the page")
        add("--no-follow", action="store_true", help="stop at the first redirect")
        add("--links", action="store_true", help="show every link, and why a crawl would leave it out")
        add("--body", action="store_true", help="write the decoded body, and nothing else, to standard output")
        add("--json", action="store_true", help="print one JSON object")
        add("--delay", type=seconds, metavar="S", help="seconds between two requests to a host (default: 1)")
        add_request_options(parser)
        add_network_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            record, body = _fetched(options, _Progress())
        except KeyboardInterrupt:
            print("trawl: interrupted", file=sys.stderr, flush=True)
            os._exit(INTERRUPTED)  # threads that look names up would keep the process for seconds
        out = sys.stderr if options["body"] else sys.stdout
        if options["json"]:
            print(json.dumps(record), file=out)
        else:
            _Page(out, plain=options["no_color"]).show(record, all_links=options["links"])
        if options["body"]:
            _write_body(body)
        sys.exit(FETCHED if record["ok"] else NOT_FETCHED)


def _fetched(options: dict[str, Any], progress: "_Progress") -> tuple[dict[str, Any], bytes]:
    """The record of a fetch, and the body where it is wanted."""
    campaign = open_campaign(options["campaign"]) if options["campaign"] is not None else None
    turns = None
    if campaign or has_database():
        prepare_databases()
        turns = InTurn(with_blocks=campaign is not None)
    if options["again"] and campaign is None:
        raise CommandError("--again needs --campaign: it asks by what that knows of the page", returncode=USAGE)
    url = _url(options["url"], rules_of(campaign) if campaign else NO_RULES)
    plan = _plan(campaign, options, url)
    page = page_of(campaign, url) if campaign else None
    with _engine(options, turns, progress) as engine:
        engine.fetch(
            url,
            plan,
            known=known_of(page.pk, plan) if page and options["again"] else None,
            depth=page.depth if page else 0,
            follow=not options["no_follow"],
        )
        asked = without_userinfo(options["url"])
        name = campaign.name if campaign else None
        record = report(engine, asked, name, links=options["links"])
        return record, body_of(engine) if options["body"] else b""


def _url(text: str, rules: Rules) -> URL:
    shown = without_userinfo(text)
    if "://" not in text:
        raise CommandError(f"'{shown}' is not a URL: write it with http:// or https://", returncode=USAGE)
    try:
        return canonicalise(text, rules=rules)
    except InvalidURL as error:
        raise CommandError(f"'{shown}' cannot be fetched: {error}", returncode=USAGE) from None


def _plan(campaign: Campaign | None, options: dict[str, Any], url: URL) -> Plan:
    """The plan of a campaign, or of one that has nothing but defaults, with what the options say. Nothing is saved."""
    row = campaign or Campaign(reach=Campaign.Reach.ANY)
    for field, option in (("delay_ms", "delay"), ("contact", "contact")):
        if options[option] is not None:
            setattr(row, field, options[option])
    row.cookies = row.cookies or options["cookies"]
    if options["header"] is not None:
        row.headers = "\n".join(options["header"])
    try:
        check_contact_for([url.fetch], row.contact, options["resolve"])
        parse_headers(row.headers)
        plan = read_plan(row, Run(campaign=row)) if campaign else plan_of(row, Run(), NO_RULES, Scope("any", [url]), {})
    except (CampaignError, InvalidScope, ValueError) as error:
        raise CommandError(str(error), returncode=USAGE) from None
    added = {origin: basic(user, password) for origin, user, password in credentials_of(options)}
    return replace(plan, credentials={**plan.credentials, **added})


@contextmanager
def _engine(options: dict[str, Any], turns: InTurn | None, progress: "_Progress") -> Iterator[SingleFetch]:
    """An engine of its own, silent but for its progress."""
    with tempfile.TemporaryDirectory(prefix="trawl-") as folder:
        try:
            settings = engine_options(Path(folder), **network_options(options))
        except InvalidAuthorities as error:
            raise CommandError(str(error), returncode=USAGE) from None
        engine = SingleFetch(settings, turns, progress.tell)
        logging.disable(logging.CRITICAL)  # the report says it
        try:
            yield engine
            engine.close()
        finally:
            logging.disable(logging.NOTSET)
            progress.end()


# --- printing -----------------------------------------------------------------------------------------------


class _Progress:
    """A line on a terminal's standard error that says what is being waited for."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._status = console.status("") if console.is_terminal else None
        self._shown = ""

    def tell(self, doing: str) -> None:
        """Shows what is being done."""
        if self._status and doing != self._shown:
            self._shown = doing
            self._status.update(Text(printable(doing)))
            self._status.start()

    def end(self) -> None:
        """Takes the line away."""
        if self._status:
            self._status.stop()


class _Page:
    """Prints a record: on a terminal in colour and with long values folded beside their names, else unfolded."""

    def __init__(self, out: TextIO, plain: bool) -> None:
        self._out = out
        if isinstance(out, TextIOWrapper):  # a title in Greek and a terminal in Latin-1
            out.reconfigure(errors="backslashreplace")
        self._console = Console(file=out, no_color=plain or None) if out.isatty() else None

    def show(self, record: dict[str, Any], all_links: bool) -> None:
        """Prints the hops and the line at the end."""
        for number, hop in enumerate(record["hops"]):
            self._line(hop["url"], "bold")
            self._rows(rows(hop, all_links, "" if number else record["url"]))
            self._line("", "")
        self._line(summary(record), "green" if record["ok"] else "red")

    def _line(self, text: str, style: str) -> None:
        if self._console:
            self._console.print(Text(printable(text), style), soft_wrap=True)
        else:
            print(printable(text), file=self._out)

    def _rows(self, told: list[Row]) -> None:
        width = max(len(row.name) for row in told)
        if self._console is None:
            for row in told:
                print(f"  {row.name:{width}}  {printable(row.value)}".rstrip(), file=self._out)
            return
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(min_width=width + 2, no_wrap=True)
        grid.add_column(overflow="fold")
        for row in told:
            grid.add_row(Text(f"  {row.name}", "cyan"), Text(printable(row.value), row.style))
        self._console.print(grid)


def _write_body(body: bytes) -> None:
    """The very bytes; a terminal gets them as text that cannot steer it."""
    if sys.stdout.isatty():
        print("\n".join(map(printable, body.decode("utf-8", "backslashreplace").split("\n"))))
    else:
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
