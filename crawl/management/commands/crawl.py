"""trawl crawl URL...: a whole crawl in one process."""

import json
import logging
import os
import signal
import sys
import threading
from argparse import ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, transaction
from rich.console import Console

from crawl import campaigns, tasks
from crawl.disk import shortage
from crawl.fetch.authorities import InvalidAuthorities
from crawl.fetch.engine import close_engine, engine, running_engine
from crawl.live import Display
from crawl.local import Busy, DataLock, LocalFleet, clean_up_after_a_kill
from crawl.models import Campaign, Run, ScopeRule
from crawl.models.campaign import MAX_BURST
from crawl.plan import read_plan
from crawl.ports import parse_ports
from crawl.progress import standing
from crawl.report import summary, table
from crawl.request_options import (
    add_network_options,
    add_request_options,
    apply_request_options,
    checked,
    network_options,
    seconds,
    without_secrets,
)
from crawl.scope import InvalidScope, Scope
from crawl.seeds import InvalidSeed, parse_seed, parse_seeds
from frontier.priority import MAX_WEIGHT
from frontier.sheet import MAX_DEPTH
from frontier.urls import URL
from trawl_project.celery import app

LOOK_SECONDS = 0.5
_ONLY_NEW = "links that were left out before are found only by reading the pages once more (--again)."
OK, NOTHING_FETCHED, USAGE, INTERRUPTED = 0, 1, 2, 130


class Command(BaseCommand):
    """Crawls sites in this one process."""

    help = "crawl sites, in one process, until nothing is left; the same command again goes on after a stop"

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("urls", nargs="*", metavar="URL", help="where to start")
        add(
            "--seeds",
            metavar="FILE",
            help="a file with one URL a line ('-': standard input; # begins a comment); after a tab a weight from 1 to"
            " 10: those of 10, which is the default, are taken first",
        )
        add("--name", help="the campaign's name (default: the first URL's host)")
        add("--scope", choices=Campaign.Reach.values, help="how far links are followed (default: host)")
        add("--include", metavar="RE", action="append", help="only URLs in which this pattern is found")
        add("--exclude", metavar="RE", action="append", help="no URL in which this pattern is found")
        add(
            "--ports",
            type=checked(parse_ports),
            metavar="N,...",
            help="ports that links may lead to, beside 80, 443, 8080, 8443 and those of the seeds; 'any': all that are"
            " not another protocol's",
        )
        add("--depth", type=_depth, metavar="N", help="at most N links away from a seed")
        add("--pages", type=_positive, metavar="N", help="at most N URLs asked for")
        add("--delay", type=seconds, metavar="S", help="seconds between two requests to a host (default: 1)")
        add("--burst", type=_burst, metavar="N", help="requests that may follow at once on a long pause (default: 1)")
        add(
            "--address-delay",
            type=seconds,
            metavar="S",
            help="seconds between two requests to a server address (default: a tenth of --delay, and none in networks"
            " named by --allow-network)",
        )
        add(
            "--no-adaptive-delay",
            action="store_true",
            help="keep to --delay also with hosts that answer slowly or with server errors",
        )
        add_request_options(parser)
        add("--no-warc", action="store_true", help="do not keep the responses")
        add(
            "--arrival-log",
            action=BooleanOptionalAction,
            help="log each request with the gap that was due; trawl manners NAME shows how hosts were treated",
        )
        add("--json", action="store_true", help="print the summary as one JSON object")
        add("--again", action="store_true", help="visit everything again, in a new run")
        add_network_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(stderr=True)
        try:
            campaign = prepare(options)
            code = Crawl(campaign, options, console).run()
        except (campaigns.CampaignError, InvalidScope, InvalidAuthorities) as error:
            raise CommandError(str(error), returncode=USAGE) from None
        except Busy as error:
            raise CommandError(f"{error}; wait for it, stop it, or use --data DIR", returncode=1) from None
        sys.exit(code)


def prepare(options: dict[str, Any]) -> Campaign:
    """The campaign that the options speak of: made, or found by its name and changed as they say."""
    seeds = [*((_seed(text), MAX_WEIGHT) for text in options["urls"]), *_seed_file(options["seeds"])]
    if not seeds and not options["name"]:
        raise CommandError("nothing to crawl: give a URL or --seeds FILE", returncode=USAGE)
    Scope("any", [], options["include"] or (), options["exclude"] or ())  # refuses a bad pattern before all else
    with transaction.atomic():
        return _prepared(options, seeds)


def _prepared(options: dict[str, Any], seeds: list[tuple[URL, int]]) -> Campaign:
    campaign = _campaign(options, [url for url, _ in seeds])
    before = _scope_of(campaign) if campaign.runs.exists() else None
    _change(campaign, options)
    campaigns.add_seeds(campaign, [(url.fetch, weight) for url, weight in seeds])
    campaigns.check_contact(campaign, options["resolve"])
    if before is not None and before != _scope_of(campaign):
        campaign.scope_changed = True
        campaign.save(update_fields=["scope_changed"])
    return campaign


def _campaign(options: dict[str, Any], urls: list[URL]) -> Campaign:
    name = options["name"] or (Path(options["seeds"]).stem if options["seeds"] not in (None, "-") else "")
    name = name or urls[0].host
    campaign = Campaign.objects.filter(name=name).first()
    if campaign is None and not urls:
        raise CommandError(f"there is no campaign '{name}': give a URL to make it", returncode=USAGE)
    return campaign or Campaign.objects.create(name=name)


def _change(campaign: Campaign, options: dict[str, Any]) -> None:
    """Changes what the options name; the rest of the campaign stays as it was."""
    given = {
        "reach": options["scope"],
        "max_depth": options["depth"],
        "ports": None if options["ports"] is None else ",".join(options["ports"]),
        "max_pages": options["pages"],
        "delay_ms": options["delay"],
        "burst": options["burst"],
        "address_delay_ms": options["address_delay"],
        "contact": options["contact"],
        "adaptive": False if options["no_adaptive_delay"] else None,
        "store_warc": False if options["no_warc"] else None,
        "arrival_log": options["arrival_log"],
    }
    for field, value in given.items():
        if value is not None:
            setattr(campaign, field, value)
    campaign.save()
    apply_request_options(campaign, options)
    for action in (ScopeRule.Action.INCLUDE, ScopeRule.Action.EXCLUDE):
        if options[action] is not None:
            campaign.scope_rules.filter(action=action).delete()
            for pattern in options[action]:
                campaign.scope_rules.create(action=action, pattern=pattern)


def _scope_of(campaign: Campaign) -> tuple[Any, ...]:
    return campaign.reach, campaign.max_depth, campaign.ports, *campaign.scope_rules.values_list("action", "pattern")


class Crawl:
    """One call of the command, from its start to its exit code."""

    def __init__(self, campaign: Campaign, options: dict[str, Any], console: Console) -> None:
        self.campaign = campaign
        self.options = options
        self.console = console
        self.interrupted = threading.Event()
        self.resume = _resume_command(campaign)
        self.lock_is_there: Callable[[], bool] = bool
        self.lost_links = False
        self.look_ups: dict[str, int | float] = {}

    def run(self) -> int:
        """Crawls until the end or an interruption."""
        lock = DataLock(settings.DATA_DIR)
        lock.take()
        if missing := shortage():
            raise CommandError(f"no {missing}", returncode=1)
        self._check_inbox()
        self.lock_is_there = lock.path.exists
        for damage in clean_up_after_a_kill():
            self.console.print(f"stored responses are lost: {damage}", style="yellow", highlight=False)
        if not self._start():
            return OK
        fleet = LocalFleet(app)  # sets up Django once more, and with it the logs
        self.log = _log_to_file()
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._interrupt)
        engine(lambda: tasks.make_engine(**network_options(self.options)))
        fleet.start()
        tasks.trigger_merge()
        tasks.trigger_sweep()
        try:
            self._watch()
        finally:
            self._end(fleet)
        return self._report()

    def _check_inbox(self) -> None:
        """Refuses to go on where links are missing, unless all pages are to be read anew."""
        lost = campaigns.lost_inbox()
        if lost and not self.options["again"]:
            raise CommandError(
                f"{lost} is not the inbox of this database: it was deleted or replaced, and the links that waited in it"
                f" are missing. Put it back, or read all pages once more: {self.resume} --again",
                returncode=1,
            )
        self.lost_links = bool(lost)
        if lost:
            campaigns.go_on_without_inbox()
            self.campaign.refresh_from_db()

    def _start(self) -> bool:
        """Starts or goes on with a run; False when the campaign is finished and nothing was asked anew."""
        campaign = self.campaign
        read_plan(campaign, Run(campaign=campaign))  # a scope that cannot be used is told before anything starts
        finished = campaign.status == Campaign.Status.FINISHED
        fresh_seeds = campaign.seeds.filter(admitted=False).exists()
        left = campaigns.left_over(campaign)
        if self.options["again"] and (finished or self.lost_links):
            campaigns.again(campaign)
        elif finished and not fresh_seeds and not left:
            self._print_finished()
            return False
        else:
            if campaign.scope_changed:
                self.console.print(
                    f"The scope has changed, or a domain block has ended; {_ONLY_NEW}", highlight=False, soft_wrap=True
                )
            campaigns.start(campaign)
        return True

    def _print_finished(self) -> None:
        told = summary(self.campaign)
        self.console.print(f"Campaign '{self.campaign.name}' is finished: {told.pages:,} pages in run {told.run}.")
        if self.campaign.scope_changed:
            self.console.print(
                f"Since then its scope has changed, or a domain block has ended; {_ONLY_NEW}",
                highlight=False,
                soft_wrap=True,
            )
        self.console.print(f"Visit everything again: {self.resume} --again", soft_wrap=True, highlight=False)
        if self.options["json"]:
            print(json.dumps(told.as_dict()))

    def _watch(self) -> None:
        """Shows how it goes until the run is over."""
        with Display(self.console, self.campaign) as display:
            while not self.interrupted.wait(LOOK_SECONDS):
                if not self.lock_is_there():
                    display.say(f"trawl: the data directory {settings.DATA_DIR} was deleted; nothing can be stored")
                    os._exit(1)  # the writer would try for ever
                # A full disk, for one, is waited out; the next look tells the time then.
                with suppress(OperationalError):
                    campaigns.clock_runs()
                standing_now = standing(self.campaign)
                display.show(standing_now)
                if standing_now.run.state != Run.State.RUNNING:
                    break
            else:
                display.say("stopping after the requests in flight; Ctrl-C again stops at once, nothing is lost")

    def _end(self, fleet: LocalFleet) -> None:
        if self.interrupted.is_set():
            with suppress(campaigns.CampaignError):  # it has just finished
                campaigns.stop(self.campaign)
        running = running_engine()
        if running:
            running.stop()
            self.look_ups = running.resolver.look_ups.as_dict()
        fleet.stop()
        close_engine()
        clean_up_after_a_kill()  # hosts that were claimed and whose message nobody took any more

    def _report(self) -> int:
        told = summary(self.campaign, self.look_ups)
        if self.options["json"]:
            print(json.dumps(told.as_dict()))
        else:
            # Elsewhere than on a terminal nothing is folded: a file has no width.
            Console(width=None if sys.stdout.isatty() else 200).print(table(told, self.resume), soft_wrap=True)
        if self.interrupted.is_set():
            return INTERRUPTED
        return OK if told.pages or told.status.get("304") else NOTHING_FETCHED

    def _interrupt(self, number: int, frame: Any) -> None:
        if self.interrupted.is_set():
            os._exit(INTERRUPTED)  # as safe as any kill: everything committed stays
        self.interrupted.set()


def _log_to_file() -> Path:
    """What workers log goes to a file: the terminal shows the progress."""
    path = Path(settings.DATA_DIR) / "crawl.log"
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().handlers = [handler]
    logging.raiseExceptions = False  # a log that cannot be written, on a full disk, is no news for the terminal
    return path


def _resume_command(campaign: Campaign) -> str:
    words = [word for word in sys.argv[1:] if word != "--again"]
    return without_secrets([os.environ.get("TRAWL_COMMAND", "trawl"), *words])


def _seed(text: str) -> URL:
    try:
        return parse_seed(text)
    except InvalidSeed as error:
        raise CommandError(str(error), returncode=USAGE) from None


def _seed_file(name: str | None) -> list[tuple[URL, int]]:
    """The seeds of a file with their weights."""
    if name is None:
        return []
    try:
        return parse_seeds(sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}", returncode=USAGE) from None
    except UnicodeDecodeError:
        raise CommandError(f"{name} is not a UTF-8 text file", returncode=USAGE) from None
    except InvalidSeed as error:
        raise CommandError(f"{name}, {error}", returncode=USAGE) from None


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"'{text}' is not a whole number")
    return int(text)


def _depth(text: str) -> int:
    return min(_whole(text), MAX_DEPTH)


def _positive(text: str) -> int:
    number = _whole(text)
    if not 1 <= number < 2**31:
        raise ArgumentTypeError("it must be at least 1 and at most 2147483647")
    return number


def _burst(text: str) -> int:
    number = _whole(text)
    if not 1 <= number <= MAX_BURST:
        raise ArgumentTypeError(f"it must be at least 1 and at most {MAX_BURST}")
    return number
