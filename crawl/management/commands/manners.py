"""trawl manners RUN: whether every host got the gaps that it was due."""

import math
import sys
import tempfile
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from crawl.conduct import Gap, HostConduct, HostJudge
from crawl.lookup import USAGE, Printer, printable
from crawl.manners import TOLERANCE_SECONDS, Conduct, Logs
from crawl.models import Campaign, Run
from crawl.open_campaign import has_database
from crawl.progress import counted
from crawl.steps import bars
from crawl.store.arrivals import PAUSE, SUFFIX, UNSENT, Arrival, folder_name
from trawl_project.databases import check_data_directory, prepare_databases
from trawl_project.detailed import DetailedCommand

DETAILS = """\
RUN is a campaign (its latest run), CAMPAIGN#NUMBER, the number of a run, or a path: an arrival log, or a folder of
them. The campaign must keep the log: trawl crawl --arrival-log.

A gap lies between the latest that a request may have arrived and the soonest that the next one may have. What was due
is reckoned from the delays that were known when the request was sent, and from what answers asked for: docs/manners.md.

exit code: 0 every gap was kept, 1 one was too small or cannot be told, 2 wrong usage, or no log
"""
OK, TOO_SMALL = 0, 1


class Command(DetailedCommand):
    """Prints the smallest gap of each host against the gap that was due."""

    help = "show by a run's arrival log how hosts were treated: the smallest gap of each against the gap that was due"
    details = DETAILS
    needs_database = False  # a path needs none
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("runs", nargs="+", metavar="RUN", help="a campaign, CAMPAIGN#NUMBER, a run's number, or a path")
        add("--host", metavar="NAME", help="every request to this host (name, or name:port), with the gap before it")
        add("--top", type=_whole, default=20, metavar="N", help="the N hosts with the tightest gaps (default: 20)")
        add(
            "--tolerance",
            type=_seconds,
            default=TOLERANCE_SECONDS,
            metavar="S",
            help=f"how many seconds a gap may be short, for the clock's sake (default: {TOLERANCE_SECONDS:g})",
        )
        add("--json", action="store_true", help="print one JSON object; with --host, one a line")

    def handle(self, *args: Any, **options: Any) -> None:
        printer = Printer(self.stdout, as_json=options["json"], plain=options["no_color"])
        paths = list(dict.fromkeys(path for word in options["runs"] for path in logs_of(word)))
        try:
            with _reading(paths, options) as logs:
                if options["host"]:
                    code = self._show_host(logs, printer, options)
                else:
                    code = self._show_all(logs, paths, printer, options)
        except OSError as error:
            where = f" {printable(str(error.filename))}" if error.filename else ""
            raise CommandError(f"cannot read or sort{where}: {error.strerror}", returncode=USAGE) from None
        self._tell_doubts(logs)
        sys.exit(max(code, TOO_SMALL if logs.reading.clock_steps or logs.reading.unreadable else OK))

    def _show_all(self, logs: Logs, paths: list[Path], printer: Printer, options: dict[str, Any]) -> int:
        with bars(sys.stderr.isatty() and logs.reading.lines > 100_000) as steps:
            conduct = logs.judge(options["top"], steps.begin("judging", logs.reading.lines))
        if options["json"]:
            printer.record(record_of(conduct, logs))
        else:
            show(conduct, logs, paths, printer)
        return TOO_SMALL if conduct.too_small else OK

    def _show_host(self, logs: Logs, printer: Printer, options: dict[str, Any]) -> int:
        judge, kept, requests = HostJudge(), True, 0
        for _, lines in logs.hosts():
            for one in lines:
                gap = judge.take(one)
                is_kept = gap is None or gap.is_kept(logs.tolerance)
                kept &= is_kept
                requests += 1
                if options["json"]:
                    printer.record(request_record(one, gap, is_kept))
                else:
                    printer.line(*sentence(one, gap, is_kept))
        if not requests:
            raise CommandError(f"no request to '{printable(options['host'])}' is in the log", returncode=USAGE)
        return OK if kept else TOO_SMALL

    def _tell_doubts(self, logs: Logs) -> None:
        """Says on standard error what of the files could not be used."""
        reading = logs.reading
        told = Printer(self.stderr, plain=True)
        for reason in (*reading.reasons, *reading.steps):
            told.line((reason, ""))
        for number, listed, what in (
            (reading.unreadable, len(reading.reasons), "unreadable lines"),
            (reading.clock_steps, len(reading.steps), "steps of the clock"),
        ):
            if number > listed:
                told.line((f"... and {number - listed:,} more {what}", ""))
        if reading.cut:
            told.line((f"{counted(reading.cut, 'last line')} cut off by a kill: left out", ""))
        told.flush()


@contextmanager
def _reading(paths: list[Path], options: dict[str, Any]) -> Iterator[Logs]:
    """The lines of the files, as long as they are needed."""
    with tempfile.TemporaryDirectory(prefix="trawl-manners-") as folder:
        logs = Logs(Path(folder), options["tolerance"])
        with bars(sys.stderr.isatty()) as steps:
            total = sum(path.stat().st_size for path in paths)
            logs.read(paths, steps.begin("reading", total), options["host"] or "")
        if logs.reading.unreadable and not logs.reading.lines:
            raise CommandError(f"no arrival log: {printable(logs.reading.reasons[0])}", returncode=USAGE)
        if not logs.reading.lines and not options["host"]:
            raise CommandError("there is no request in the log, so it shows nothing", returncode=USAGE)
        yield logs


# --- which logs -----------------------------------------------------------------------------------------------


def logs_of(word: str) -> list[Path]:
    """The files that a RUN stands for. Raises CommandError."""
    path = Path(word)
    if "/" in word or word.endswith(SUFFIX):
        return _at(path)
    run = _run(word, or_path=path.exists())
    if run is None:
        return _at(path)
    folder = Path(settings.DATA_DIR) / "arrivals" / folder_name(run)
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not files:
        raise CommandError(
            f"run {run.number} of '{run.campaign.name}' has kept no arrival log, there is none in {folder}:"
            " start it with --arrival-log",
            returncode=USAGE,
        )
    return files


def _at(path: Path) -> list[Path]:
    try:
        is_folder = path.is_dir()
        files = sorted(path.rglob(f"*{SUFFIX}")) if is_folder else [path] * path.exists()
    except (OSError, ValueError):  # a NUL in the name
        files, is_folder = [], False
    if not files:
        what = f"no arrival log ({SUFFIX}) is in" if is_folder else "there is no"
        raise CommandError(f"{what} {printable(str(path))}", returncode=USAGE)
    return files


def _run(word: str, or_path: bool) -> Run | None:
    """The run that is meant; None for a path that goes by no run's name."""
    if not has_database():
        if or_path:
            return None
        file = settings.DATABASES["default"]["NAME"]
        raise CommandError(f"there is no run '{printable(word)}': there is no {file}", returncode=USAGE)
    check_data_directory()
    prepare_databases()
    runs = Run.objects.select_related("campaign").order_by("number")
    campaign = Campaign.objects.filter(name=printable(word)).first()
    name, _, number = word.rpartition("#")
    found: list[Run]
    if campaign:
        found = list(runs.filter(campaign=campaign))[-1:]
        if not found:
            raise CommandError(f"campaign '{campaign}' was never started", returncode=USAGE)
    elif number.isascii() and number.isdigit() and len(number) < 10:
        of_name = {"campaign__name": printable(name)} if name else {}
        found = list(runs.filter(number=int(number), **of_name))
    else:
        found = []
    if len(found) > 1:
        names = ", ".join(f"'{run.campaign.name}#{run.number}'" for run in found[:10])
        raise CommandError(f"{len(found)} campaigns have a run {number}: say which, as {names}", returncode=USAGE)
    if found or or_path:
        return found[0] if found else None
    names = ", ".join(f"'{name}'" for name in Campaign.objects.order_by("name").values_list("name", flat=True)[:10])
    there = f"there are the campaigns {names}" if names else "there is no campaign yet"
    raise CommandError(f"there is no run '{printable(word)}'; {there}", returncode=USAGE)


# --- what is said ---------------------------------------------------------------------------------------------


def show(conduct: Conduct, logs: Logs, paths: list[Path], printer: Printer) -> None:
    """Prints the table and what follows from it."""
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths):,} files, the first is {paths[0]}"
    facts = [("log", where)]
    if conduct.requests:
        facts.append(("from", f"{_moment(conduct.first)} to {_moment(conduct.last)}"))
    facts.append(("tolerance", f"{logs.tolerance:g} s"))
    if conduct.unsent:
        facts.append(("never sent", f"{counted(conduct.unsent, 'request')}, since no connection came about"))
    if closest := conduct.closest:
        hosts = " and ".join(dict.fromkeys(closest.hosts))
        facts.append(
            ("address", f"two requests to {closest.address} were begun {closest.seconds:.3f} s apart ({hosts})")
        )
    printer.facts(facts)
    if conduct.tightest:
        printer.line(("", ""))
        _table(conduct.tightest, printer)
    if conduct.hosts > len(conduct.tightest):
        printer.line((f"... and {conduct.hosts - len(conduct.tightest):,} more", ""))
    printer.line(("", ""))
    for gap in conduct.examples:
        printer.line((_complaint(gap), "red"))
    if conduct.too_small > len(conduct.examples):
        printer.line((f"... and {conduct.too_small - len(conduct.examples):,} more", "red"))
    printer.line(*verdict(conduct, logs))


def verdict(conduct: Conduct, logs: Logs) -> list[tuple[str, str]]:
    """The closing line, as pieces of (text, style)."""
    told = f"{counted(conduct.requests, 'request')} to {counted(conduct.hosts, 'host')}: "
    if conduct.too_small:
        were = "gap was" if conduct.too_small == 1 else "gaps were"
        return [(f"{told}{conduct.too_small:,} {were} too small", "bold red")]
    if logs.reading.clock_steps:
        return [(f"{told}not shown, since the clock went back", "bold red")]
    if logs.reading.unreadable:
        return [(f"{told}every gap was kept, as far as the lines can be read", "bold yellow")]
    return [(f"{told}every gap was kept", "bold green")]


COLUMNS = ("host", "requests", "tightest gap", "due then", "ratio", "set by", "verdict")


def _table(hosts: list[HostConduct], printer: Printer) -> None:
    rows = [_row(host) for host in hosts]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    printer.line((_aligned(COLUMNS, widths), "cyan"))
    for row, host in zip(rows, hosts, strict=True):
        printer.line((_aligned(row, widths), "red" if host.too_small else ""))


def _aligned(values: Iterable[str], widths: list[int]) -> str:
    numbers = range(1, 5)
    cells = (
        value.rjust(width) if place in numbers else value.ljust(width)
        for place, (value, width) in enumerate(zip(values, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _row(host: HostConduct) -> tuple[str, ...]:
    gap = host.tightest
    said = f"too small ({host.too_small:,})" if host.too_small else "kept"
    name, requests = printable(host.host), f"{host.requests:,}"
    if gap is None:
        return (name, requests, "-", "-", "-", "-", said)
    if gap.ratio is None:
        return (name, requests, f"{gap.kept:.3f}", "0", "-", gap.cause, said)
    return (name, requests, f"{gap.kept:.3f}", f"{gap.due:.3f}", _ratio(gap.ratio), gap.cause, said)


def _ratio(ratio: float) -> str:
    """Rounded down, so that what was too small never looks as if it were not."""
    return f"{math.floor(ratio * 1000) / 1000:.3f}"


def _complaint(gap: Gap) -> str:
    return (
        f"{_moment(gap.one.begun)}  {gap.one.host}: {gap.kept:.6f} s instead of {gap.due:.6f} s ({gap.cause}),"
        f" {gap.one.url} after {gap.after or 'a pause'}"
    )


def sentence(one: Arrival, gap: Gap | None, is_kept: bool) -> list[tuple[str, str]]:
    """The line of one request, as pieces of (text, style)."""
    if one.kind == PAUSE:
        told = f"until {_moment(one.until)}" if one.until else ""
    elif one.kind == UNSENT:
        told = "no connection"
    elif gap is None:
        told = "the first"
    elif gap.ratio is None:
        told = f"gap {gap.kept:.3f} s, none due" + (" (burst)" if gap.cause == "burst" else "")
    else:
        told = f"gap {gap.kept:.3f} s, due {gap.due:.3f} s ({gap.cause})"
    if one.kind not in (PAUSE, UNSENT) and one.until:
        told += f", asked to wait until {_moment(one.until)}"
    start = f"{_moment(one.begun)}  {one.kind:6}  {one.result}  "
    return [
        (start, "cyan"),
        (told, "" if is_kept else "red"),
        ("" if is_kept else " TOO SMALL", "bold red"),
        (f"  {one.url}", ""),
    ]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


# --- for programs ---------------------------------------------------------------------------------------------


def record_of(conduct: Conduct, logs: Logs) -> dict[str, Any]:
    """The answer as JSON has it."""
    closest = conduct.closest
    return {
        "requests": conduct.requests,
        "hosts": conduct.hosts,
        "never_sent": conduct.unsent,
        "from": _iso(conduct.first) if conduct.requests else None,
        "to": _iso(conduct.last) if conduct.requests else None,
        "tolerance": logs.tolerance,
        "too_small": conduct.too_small,
        "cut_lines": logs.reading.cut,
        "unreadable_lines": logs.reading.unreadable,
        "clock_steps": logs.reading.clock_steps,
        "closest_on_address": closest
        and {"address": closest.address, "seconds": round(closest.seconds, 6), "hosts": list(closest.hosts)},
        "tightest": [
            {"host": one.host, "requests": one.requests, "too_small": one.too_small, **_gap_record(one.tightest)}
            for one in conduct.tightest
        ],
        "first_too_small": [
            {
                "host": gap.one.host,
                "at": _iso(gap.one.begun),
                **_gap_record(gap),
                "url": gap.one.url,
                "after": gap.after,
            }
            for gap in conduct.examples
        ],
    }


def request_record(one: Arrival, gap: Gap | None, is_kept: bool) -> dict[str, Any]:
    """One request as JSON has it."""
    return {
        "begun": _iso(one.begun),
        "arrived": _iso(one.arrived),
        "kind": one.kind,
        "result": one.result,
        "address": one.address,
        "url": one.url,
        "until": _iso(one.until) if one.until else None,
        **_gap_record(gap),
        "kept": is_kept,
    }


def _gap_record(gap: Gap | None) -> dict[str, Any]:
    if gap is None:
        return {"gap": None, "due": None, "ratio": None, "set_by": None}
    ratio = None if gap.ratio is None else round(gap.ratio, 6)
    return {"gap": round(gap.kept, 6), "due": round(gap.due, 6), "ratio": ratio, "set_by": gap.cause}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ArgumentTypeError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"'{text}' is not a number of seconds") from None
    if not 0 <= value < 1_000_000:
        raise ArgumentTypeError("it must be at least 0")
    return value
