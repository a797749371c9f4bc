"""trawl block ...: domains that are never visited."""

import re
import signal
import sys
from argparse import ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from fnmatch import translate
from itertools import islice
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from crawl.lookup import USAGE, printable, standard_input
from crawl.models import Campaign
from crawl.progress import counted
from frontier.blocking import block, unblock, walk
from frontier.blocklists import (
    FORMATS,
    BlockList,
    NotAList,
    Source,
    Unreadable,
    is_top_level,
    open_list,
    parse_domain,
)
from frontier.blocks import above
from frontier.models import DomainBlock, Host
from frontier.purge import extent, purge
from frontier.urls import InvalidURL
from trawl_project.detailed import DetailedCommand

DETAILS = """\
A block covers a domain and every name below it, on all ports. It holds for running crawls within 5 seconds: their
requests in flight end, nothing more is asked for, and what waits stays where it is until the block is lifted.

  trawl block add tracker.example --reason "asked by mail" --expires 30d
  trawl block import hosts.txt.gz         hosts file, plain domains, Adblock ||domain^; '-' reads standard input
  trawl block test www.tracker.example    exit code 1 if one of the hosts is blocked
  trawl block purge tracker.example       deletes what waits there; see trawl block purge --help

exit code: 0 done, 1 see above, or a file that is no list, 2 wrong usage or a file that cannot be read
"""
UNDERSTOOD = """\
nothing was stored; understood are hosts files (0.0.0.0 ads.example), a domain in each line, and Adblock rules
(||ads.example^), all of them also as gzip"""
PURGE = """\
Deletes the URLs that wait on blocked hosts: of one domain with all names below it, or of all blocks.

This cannot be undone. A deleted URL stays known, so links to it do not bring it back, also after the block is
lifted; after `trawl rebuild_seen` it is new again, unless it was visited before. Pages that were fetched stay.
"""
# Domains in one transaction of an import: 0.1 to 0.3 s.
CHUNK = 20_000
# Domains that are sorted before they are stored, about 50 MB: in the order of a list that is not sorted, every
# transaction would write most pages of a large index, 20 GB for 5 million domains.
SORTED = 500_000
MOST = 10_000  # what the extent of a purge is counted up to


class Command(DetailedCommand):
    """Adds, removes, imports and tells domain blocks."""

    help = "block domains: add, remove, import lists of millions, test, purge what waits"
    details = DETAILS

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        add = acts.add_parser("add", help="block domains with all names below them")
        add.add_argument("domains", nargs="+", metavar="DOMAIN", type=_domain)
        remove = acts.add_parser("remove", help="lift the blocks of these very domains")
        remove.add_argument("domains", nargs="+", metavar="DOMAIN", type=_domain)
        imports = acts.add_parser("import", help="block the domains of a list")
        imports.add_argument("file", metavar="FILE", help="the list, also as gzip, or '-' for standard input")
        imports.add_argument("--format", choices=FORMATS, default="auto", help="default: each line by its looks")
        for one in (add, imports):
            one.add_argument("--reason", default="", type=_reason, help="a note, up to 200 characters")
            one.add_argument("--expires", type=_moment, metavar="WHEN", help="30d, 12h, or a date; default: never")
        listed = acts.add_parser("list", help="show the blocks, by name")
        listed.add_argument("pattern", nargs="?", metavar="PATTERN", help="with * and ?, or a part of the name")
        test = acts.add_parser("test", help="tell whether hosts are blocked, by what and until when")
        test.add_argument("hosts", nargs="+", metavar="HOST", type=_domain)
        gone = acts.add_parser(
            "purge",
            help="delete the URLs that wait on blocked hosts",
            description=PURGE,
            formatter_class=RawDescriptionHelpFormatter,
        )
        which = gone.add_mutually_exclusive_group(required=True)
        which.add_argument("domain", nargs="?", metavar="DOMAIN", type=_domain)
        which.add_argument("--all", action="store_true", help="of every blocked host")
        gone.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"_{options['act']}")(options)

    # --- changing ------------------------------------------------------------------------------------------

    def _add(self, options: dict[str, Any]) -> None:
        domains, reason, expires = options["domains"], options["reason"], options["expires"]
        known = set(_stored(domains))
        done = block(domains, reason, expires)
        changed = 0
        if reason or expires:
            changed = self._change(sorted(known), reason, expires)
        self._mark()
        told = [f"{counted(done.added, 'domain')} blocked"]
        if changed:
            told.append(f"{changed:,} changed")
        if done.known > changed:
            told.append(f"{done.known - changed:,} blocked already")
        self.stdout.write(", ".join(told))
        for domain in filter(is_top_level, domains):
            self.stdout.write(f"{domain} is a top-level domain: the block covers every host below .{domain}")

    def _change(self, domains: list[str], reason: str, expires: datetime | None) -> int:
        """Gives blocks that were there a new reason or a new end."""
        changed = 0
        for row in DomainBlock.objects.filter(domain__in=domains):
            before = row.reason, row.expires_at
            row.reason, row.expires_at = reason or row.reason, expires or row.expires_at
            if (row.reason, row.expires_at) != before:
                row.save()
                changed += 1
        return changed

    def _remove(self, options: dict[str, Any]) -> None:
        domains = sorted(set(options["domains"]))
        removed = unblock(domains)
        self._mark()
        self.stdout.write(f"{counted(removed, 'block')} lifted, {len(domains) - removed:,} were none")
        for domain in domains:
            if row := _covering(domain):
                self.stdout.write(f"{domain} is still blocked, by {row.domain}")
        names = list(Campaign.objects.filter(scope_changed=True).order_by("id").values_list("name", flat=True)[:4])
        if removed and names:
            told = ", ".join(f"'{printable(name)}'" for name in names[:3]) + (", ..." if len(names) > 3 else "")
            self.stdout.write(
                f"links that were left out meanwhile are found by reading pages once more (crawl --again): {told}"
            )

    def _import(self, options: dict[str, Any]) -> None:
        name, found = options["file"], BlockList(options["format"])
        added, broken = 0, ""
        try:
            with open_list(name, standard_input() if name == "-" else None) as source:
                for chunk in self._chunks(source, found):
                    with _whole():
                        added += block(chunk, options["reason"], options["expires"]).added
        except Unreadable as error:
            broken = f"cannot read {printable(name)}: {error}"
        except NotAList as error:
            raise CommandError(f"{printable(f'{name} is no list: {error}')}\n{UNDERSTOOD}", returncode=1) from None
        except KeyboardInterrupt:
            self.stderr.write(
                f"interrupted: {counted(added, 'domain')} added, which stay blocked; the same command adds the rest"
            )
            raise
        if found.lines or not broken:
            self._summary(found, added)
        self._mark()
        if broken:
            raise CommandError(broken, returncode=USAGE)
        if found.bad_lines and not found.names:
            raise CommandError("the list holds no domain: is it the right file, or --format?", returncode=1)

    def _chunks(self, source: Source, found: BlockList) -> Iterator[list[str]]:
        """Domains to block, in the order of their names as far as SORTED go."""
        domains = found.domains(source.lines())
        before = 0
        with self._bar("lines read", source.total) as update:
            while part := sorted(set(islice(domains, SORTED))):
                for start in range(0, len(part), CHUNK):
                    yield part[start : start + CHUNK]
                    stored = min(start + CHUNK, len(part)) / len(part)
                    update(before + stored * (source.done() - before), f"{found.lines:,} lines")
                before = source.done()

    def _summary(self, found: BlockList, added: int) -> None:
        skipped = sum(found.skipped.values())
        self.stdout.write(
            f"{counted(found.lines, 'line')}: {counted(added, 'domain')} added, {found.names - added:,} already there,"
            f" {skipped:,} skipped, {found.bad_lines:,} bad"
        )
        for reason, count in found.skipped.most_common():
            self.stdout.write(f"skipped: {count:,} {reason}")
        for bad in found.bad:
            self.stderr.write(f"line {bad.line:,}: '{printable(bad.text)}': {printable(bad.why)}")
        if found.bad_lines > len(found.bad):
            self.stderr.write(f"and {found.bad_lines - len(found.bad):,} more bad lines")

    def _mark(self) -> None:
        """Marks the known hosts, where that was left for later."""
        hosts = Host.objects.order_by("-id").values_list("id", flat=True).first() or 0
        with self._bar("hosts marked", hosts) as update:
            done = 0
            for looked_at in walk():
                done += looked_at
                update(done, f"{done:,} hosts")

    # --- looking -------------------------------------------------------------------------------------------

    def _list(self, options: dict[str, Any]) -> None:
        pattern = (options["pattern"] or "*").lower()
        wanted = re.compile(translate(pattern if set(pattern) & set("*?[") else f"*{pattern}*")).match
        for row in _by_name():
            if wanted(row.domain):
                self.stdout.write("\t".join((row.domain, _until(row), printable(row.reason))).rstrip())

    def _test(self, options: dict[str, Any]) -> None:
        blocked = False
        for host in options["hosts"]:
            row = _covering(host)
            blocked |= row is not None
            if row is None:
                self.stdout.write(f"{host}\tnot blocked")
            else:
                by = f"blocked by {row.domain}"
                self.stdout.write("\t".join((host, by, _until(row), printable(row.reason))).rstrip())
        if blocked:
            sys.exit(1)

    # --- purging -------------------------------------------------------------------------------------------

    def _purge(self, options: dict[str, Any]) -> None:
        domains = None if options["all"] else [options["domain"]]
        if domains and _covering(domains[0]) is None and not _blocked_below(domains[0]):
            raise CommandError(f"{domains[0]} is not blocked: block it first", returncode=USAGE)
        self._mark()
        hosts, urls = extent(domains, most=MOST)
        if not urls:
            self.stdout.write(f"nothing waits on {counted(hosts, 'blocked host')}")
            return
        if not options["yes"]:
            self._ask(hosts, urls)
        gone = 0
        with self._bar("URLs deleted", None if urls >= MOST else urls) as update:
            for done in purge(domains):
                gone += done.urls
                update(gone, f"{gone:,} URLs")
        self.stdout.write(f"{counted(gone, 'URL')} deleted")

    def _ask(self, hosts: int, urls: int) -> None:
        what = f"{_at_least(urls, 'waiting URL')} on {_at_least(hosts, 'blocked host')}"
        if not sys.stdin or not sys.stdin.isatty():
            raise CommandError(f"this would delete {what}; say --yes to do it", returncode=USAGE)
        self.stderr.write(f"{PURGE.partition(chr(10))[2].strip()}\n")
        self.stderr.write(f"Delete {what}? [y/N] ", ending="")
        if input().strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was deleted", returncode=1)

    @contextmanager
    def _bar(self, what: str, total: int | None) -> Iterator[Any]:
        """A progress bar on standard error if that is a terminal; give it what is done, and a text."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
        )
        shown = self.stderr.isatty() and total != 0
        with Progress(*columns, console=Console(stderr=True), disable=not shown, transient=True) as bar:
            task = bar.add_task(what, total=total, told="")
            yield lambda done, told: bar.update(task, completed=done, told=told)


@contextmanager
def _whole() -> Iterator[None]:
    """Puts Ctrl-C off to the end of a transaction, so that it is known what is stored; a second one ends it at once."""
    pressed = False

    def note(*args: Any) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)  # which `before` may ignore, as under nohup


def _by_name() -> Iterator[DomainBlock]:
    """All blocks in the order of their names, a few thousand at a time."""
    last = ""
    while rows := list(DomainBlock.objects.filter(domain__gt=last).order_by("domain")[:CHUNK]):
        yield from rows
        last = rows[-1].domain


def _stored(domains: Iterable[str]) -> Iterable[str]:
    return DomainBlock.objects.filter(domain__in=domains).values_list("domain", flat=True)


def _covering(host: str) -> DomainBlock | None:
    """The block that covers a host, of several the one that ends last."""
    rows = [row for row in DomainBlock.objects.filter(domain__in=above(host)) if _is_in_force(row)]
    never = datetime.max.replace(tzinfo=UTC)
    return max(rows, key=lambda row: (row.expires_at or never, len(row.domain)), default=None)


def _is_in_force(row: DomainBlock) -> bool:
    return row.expires_at is None or row.expires_at > timezone.now()


def _blocked_below(domain: str) -> bool:
    return DomainBlock.objects.filter(domain__endswith=f".{domain}").exists()


def _until(row: DomainBlock) -> str:
    if row.expires_at is None:
        return "for ever"
    word = "until" if _is_in_force(row) else "expired"
    return f"{word} {row.expires_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _at_least(number: int, thing: str) -> str:
    return counted(number, thing) if number < MOST else f"{number:,} or more {thing}s"


# --- arguments -------------------------------------------------------------------------------------------------


def _domain(text: str) -> str:
    try:
        return parse_domain(text)
    except InvalidURL as error:
        raise ArgumentTypeError(f"'{text}' is no domain: {error}") from None


def _reason(text: str) -> str:
    if len(text) > 200:
        raise ArgumentTypeError("a reason has at most 200 characters")
    return text


def _moment(text: str) -> datetime:
    """A time from now on ("30d", "12h", "90m") or a date, in UTC."""
    units = {"d": "days", "h": "hours", "m": "minutes"}
    try:
        if text[-1:] in units and text[:-1].isascii() and text[:-1].isdigit():
            moment = timezone.now() + timedelta(**{units[text[-1]]: int(text[:-1])})
        else:
            moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ArgumentTypeError(f"'{text}' is no time: write 30d, 12h or 2027-01-31") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment <= timezone.now():
        raise ArgumentTypeError(f"'{text}' is over already")
    return moment
