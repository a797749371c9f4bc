"""trawl url URL...: what a URL is to trawl, and what a campaign knows of it."""

import sys
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, CommandParser

from crawl.lookup import USAGE, CampaignLookup, Printer, take_urls
from crawl.open_campaign import open_campaign
from crawl.scope import InvalidScope
from crawl.url_report import answer, columns, facts
from frontier.urls import NO_RULES, InvalidURL, Rules, canonicalise
from trawl_project.detailed import DetailedCommand

DETAILS = """\
Without --campaign nothing is read or written. The key of a URL is made with a secret number of the
installation, so it is shown only with --campaign.

With '-' there is one line out for each line in, with tabs between its columns:
  CANONICAL  FETCH  HOST                                  or, for what is no URL:  invalid  REASON  LINE
  CANONICAL  FETCH  HOST  KEY  STATE  SCOPE  ROBOTS       with --campaign

exit code: 0 all are URLs, 1 some are not, 2 wrong usage
"""


class Command(DetailedCommand):
    """Prints the forms of URLs; with --campaign also where they stand."""

    help = "show the canonical form of a URL and, with --campaign, where it stands"
    details = DETAILS
    needs_database = False  # --campaign opens it by itself
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("urls", nargs="+", metavar="URL", help="a URL, or '-' for one URL a line from standard input")
        add("--base", metavar="URL", help="the page that relative references are resolved against")
        add("--rules", metavar="NAMES", type=_rules, help="site rules to apply, with commas between")
        add("--campaign", metavar="NAME", help="what this campaign knows of the URL; applies its site rules")
        add("--json", action="store_true", help="print one JSON object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        _check_base(options["base"])
        lookup = _open(options["campaign"]) if options["campaign"] is not None else None
        if lookup and options["rules"] is not None:
            raise CommandError("a campaign brings its own site rules; leave out --rules", returncode=USAGE)
        rules = lookup.plan.rules if lookup else options["rules"] or NO_RULES
        printer = Printer(self.stdout, as_json=options["json"], plain=options["no_color"])
        streaming = "-" in options["urls"]
        all_valid, first = True, True
        for batch in take_urls(options["urls"]):
            for record in answer(batch, options["base"], rules, lookup, options["json"] or not streaming):
                all_valid &= "error" not in record
                if options["json"]:
                    printer.record(record)
                elif streaming:
                    printer.columns(*columns(record))
                else:
                    printer.facts(facts(record), gap=not first)
                first = False
            printer.flush()
        if not all_valid:
            sys.exit(1)


# --- options ----------------------------------------------------------------------------------------------


def _rules(text: str) -> Rules:
    try:
        return Rules.from_dict({name.strip(): True for name in text.split(",") if name.strip()})
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _check_base(base: str | None) -> None:
    if base is not None:
        try:
            canonicalise(base)
        except InvalidURL as error:
            raise CommandError(f"--base is not usable: {error}", returncode=USAGE) from None


def _open(name: str) -> CampaignLookup:
    try:
        return CampaignLookup(open_campaign(name))
    except (InvalidScope, ValueError) as error:
        raise CommandError(f"campaign '{name}' cannot be used: {error}; correct it first", returncode=1) from None
