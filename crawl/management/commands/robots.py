"""trawl robots FILE URL...: what a robots.txt says of URLs."""

import re
import sys
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, CommandParser

from crawl.fetch.robots import MAX_ROBOTS_BYTES, Robots
from crawl.lookup import USAGE, Printer, read_file, take_urls
from frontier.urls import InvalidURL, canonicalise
from trawl_project.detailed import DetailedCommand
from trawl_project.version import AGENT

DETAILS = """\
URLs are read as the crawler reads them: it asks for the form that `trawl url` shows as "fetch". A path
("/private/?q=1") will do. What holds for the whole file is printed first; with '-' as URL it goes to
standard error, so that there is one line out for each line in:
  allowed|disallowed|invalid  URL  REASON       with tabs between

With --json: one object for the file, then one for each URL.

exit code: 0 all are allowed, 1 some are not, 2 wrong usage or something that is no URL
"""
DISALLOWED = 1
# Stands for the site in front of a path; rules never look at it.
ANY_ORIGIN = "http://site.invalid"
_PRODUCT_TOKEN = re.compile(r"[A-Za-z_-]|\*$")


class Command(DetailedCommand):
    """Prints whether an agent may fetch URLs by a robots.txt, and the line that says so."""

    help = "show what a robots.txt says of URLs, and which line decides"
    details = DETAILS
    needs_database = False
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("file", metavar="FILE", help="a robots.txt, or '-' for standard input")
        add("urls", nargs="+", metavar="URL", help="a URL or path, or '-' for one a line from standard input")
        add("--agent", metavar="TOKEN", type=_agent, default=AGENT, help=f"the crawler's name (default: {AGENT})")
        add("--json", action="store_true", help="print one JSON object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        streaming = "-" in options["urls"]
        if streaming and options["file"] == "-":
            raise CommandError("standard input cannot be both the robots.txt and the URLs", returncode=USAGE)
        body, size = read_file(options["file"], MAX_ROBOTS_BYTES)
        robots = Robots.parse(body, options["agent"])
        told = about(robots, options["agent"], body, size)
        printer = Printer(self.stdout, as_json=options["json"], plain=options["no_color"])
        if options["json"]:
            printer.record(told)
        else:
            heading = Printer(self.stderr, plain=options["no_color"]) if streaming else printer
            heading.facts(facts(told))
            heading.line(("", ""))
            heading.flush()
        code = 0
        for batch in take_urls(options["urls"]):
            for text, problem in batch:
                record = answer(robots, text, problem)
                code = max(code, USAGE if "error" in record else 0 if record["allowed"] else DISALLOWED)
                if options["json"]:
                    printer.record(record)
                elif streaming:
                    printer.columns(*columns(record))
                else:
                    printer.line(*sentence(record))
            printer.flush()
        sys.exit(code)


def about(robots: Robots, agent: str, body: bytes, size: int | None) -> dict[str, Any]:
    """What holds for the whole file, as JSON has it. `bytes` is None for a stream longer than the limit."""
    return {
        "agent": agent,
        "group": robots.group,
        "crawl_delay": robots.crawl_delay,
        "sitemaps": list(robots.sitemaps),
        "bytes": size,
        "cut": len(body) > MAX_ROBOTS_BYTES,
    }


def answer(robots: Robots, text: str, problem: str) -> dict[str, Any]:
    """What is to be said of one URL, as JSON has it."""
    try:
        if problem:
            raise InvalidURL(problem)
        is_path = text.startswith("/") and not text.startswith("//")
        url = canonicalise(f"{ANY_ORIGIN}{text}" if is_path else text)
    except InvalidURL as error:
        return {"url": text, "error": str(error)}
    return {"url": text, **robots.verdict(url.fetch)._asdict()}


def facts(told: dict[str, Any]) -> list[tuple[str, str]]:
    """The names and values that are printed first."""
    group, delay, size = told["group"], told["crawl_delay"], told["bytes"]
    amount = f"more than {MAX_ROBOTS_BYTES:,} bytes" if size is None else f"{size:,} bytes"
    if told["cut"]:
        amount += f"; only the first {MAX_ROBOTS_BYTES:,} count (RFC 9309, section 2.5)"
    return [
        ("agent", told["agent"]),
        ("group", "none: no group speaks to it, everything is allowed" if group is None else group),
        ("crawl delay", "none" if delay is None else f"{delay:g} s"),
        *(("sitemaps", sitemap) for sitemap in told["sitemaps"] or ["none"]),
        ("size", amount),
    ]


def columns(record: dict[str, Any]) -> list[str]:
    """The line for a pipe."""
    word, reason = _word_and_reason(record)
    return [word, record["url"], reason]


def sentence(record: dict[str, Any]) -> list[tuple[str, str]]:
    """The line for people, as pieces of (text, style)."""
    word, reason = _word_and_reason(record)
    style = {"allowed": "green", "disallowed": "red"}.get(word, "yellow")
    return [(f"{word:10}", style), (f"  {record['url']}", ""), (f"  {reason}", "dim")]


def _word_and_reason(record: dict[str, Any]) -> tuple[str, str]:
    if "error" in record:
        return "invalid", record["error"]
    if record["rule"]:
        reason = f"line {record['line']}: {record['rule']}"
    elif record["group"] is None:
        reason = "no group speaks to this agent"
    else:
        reason = "no rule of the group speaks of it"
    return "allowed" if record["allowed"] else "disallowed", reason


def _agent(text: str) -> str:
    if not _PRODUCT_TOKEN.match(text):
        raise ArgumentTypeError(f"{text!r} is no product token: it is made of letters, '-' and '_', as {AGENT}")
    return text
