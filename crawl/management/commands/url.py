"""trawl url URL...: what a URL is to trawl, and what a campaign knows of it."""

import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from crawl.lookup import USAGE, CampaignLookup, Found, Printer, take_urls
from crawl.models import Fetch, Page, Run, WarcFile
from crawl.open_campaign import open_campaign
from crawl.scope import InvalidScope
from frontier.counts import Count, in_queue
from frontier.models import Host
from frontier.politeness import now_ms
from frontier.priority import HELD, POPULAR, REDIRECT, SEED, SITEMAP, SITEMAP_FIRST
from frontier.schedule import Slot
from frontier.urls import NO_RULES, URL, InvalidURL, Rules, canonicalise
from trawl_project.detailed import DetailedCommand

DETAILS = """\
Without --campaign nothing is read or written. The key of a URL is made with a secret number of the
installation, so it is shown only with --campaign.

With '-' there is one line out for each line in, with tabs between its columns:
  CANONICAL  FETCH  HOST                                  or, for what is no URL:  invalid  REASON  LINE
  CANONICAL  FETCH  HOST  KEY  STATE  SCOPE  ROBOTS       with --campaign

exit code: 0 all are URLs, 1 some are not, 2 wrong usage
"""
COLUMNS = ("canonical", "fetch", "host")
LEVEL_NAMES = {
    SEED: "seed",
    REDIRECT: "redirect",
    SITEMAP_FIRST: "sitemap, important",
    SITEMAP: "sitemap",
    POPULAR: "many links to it",
    HELD: "held",
}


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


def answer(
    batch: list[tuple[str, str]], base: str | None, rules: Rules, lookup: CampaignLookup | None, details: bool
) -> list[dict[str, Any]]:
    """What is to be said of each line, as JSON has it."""
    records: list[dict[str, Any]] = []
    urls: list[URL] = []
    for text, problem in batch:
        try:
            if problem:
                raise InvalidURL(problem)
            url = canonicalise(text, base, rules)
        except InvalidURL as error:
            records.append({"url": text, "error": str(error)})
        else:
            records.append({"url": text, **url._asdict()})
            urls.append(url)
    if lookup:
        found = iter(lookup.look(urls, details))
        names = Names(lookup) if details else None
        for record in records:
            if "error" not in record:
                record |= {"campaign": {"name": lookup.campaign.name, "status": lookup.campaign.status}}
                record |= as_json(next(found), names)
    return records


# --- as JSON -----------------------------------------------------------------------------------------------


class Names:
    """Run numbers and WARC files of a campaign by their ids."""

    def __init__(self, lookup: CampaignLookup) -> None:
        self.runs = dict(Run.objects.filter(campaign=lookup.campaign).values_list("id", "number"))
        self._warcs: dict[int, str] = {}

    def warc(self, key: int | None) -> str | None:
        """The path of a WARC file."""
        if key is not None and key not in self._warcs:
            file = WarcFile.objects.filter(id=key).first()
            self._warcs[key] = str(Path(file.directory) / file.name) if file else f"WARC file {key}, which is gone"
        return None if key is None else self._warcs[key]


def as_json(found: Found, names: Names | None) -> dict[str, Any]:
    """What a campaign knows, as plain values."""
    return {
        "key": found.hash.hex(),
        "scope": {"allowed": found.scope.allowed, "rule": found.scope.rule, "depth": found.depth},
        "robots": _robots_json(found),
        "state": found.state,
        "note": found.note,
        "asked_for_as": found.fetch,
        "inbox": found.inbox and {**found.inbox._asdict(), "received_at": iso(found.inbox.received_at)},
        "waiting": found.waiting and {**found.waiting._asdict(), "of": found.queue and in_queue(found.queue).urls},
        "page": found.page and _page_json(found.page, names),
        "history": [_fetch_json(row, names) for row in found.history] if names else [],
        "blocked": found.blocked,
        "host_state": found.host
        and _host_json(found.host, found.slot or Slot(found.host.due_at, None, found.host.gap_ms), found.queue),
    }


def iso(ms: int | None) -> str | None:
    """Milliseconds since 1970 as ISO 8601 in UTC."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _robots_json(found: Found) -> dict[str, Any] | None:
    if found.robots is None:
        return None
    row, robots, verdict = found.robots
    return {
        **verdict._asdict(),
        "crawl_delay": robots.crawl_delay,
        "status": row.status,
        "fetched_at": iso(row.fetched_at),
        "expired": row.expires_at <= now_ms(),
    }


def _page_json(page: Page, names: Names | None) -> dict[str, Any]:
    plain = ("depth", "status", "error", "detail", "failures", "length", "digest", "content_type", "location")
    times = ("fetched_at", "changed_at", "due_at")
    told = {**_fields(page, (*plain, "title", "noindex")), **{name: iso(getattr(page, name)) for name in times}}
    return {**told, "kept": _kept_json(page, names)} if names else told


def _kept_json(page: Page, names: Names) -> dict[str, Any] | None:
    """The WARC record with the body: an older one where it was not sent or not stored again."""
    if page.payload_at is None:
        return None
    row = Fetch.objects.filter(page=page, at=page.payload_at, warc_id=page.payload_warc_id).first()
    return {"warc": names.warc(row.warc_id), "offset": row.warc_offset, "at": iso(row.at)} if row else None


def _fetch_json(row: Fetch, names: Names) -> dict[str, Any]:
    return {
        "run": names.runs.get(row.run_id),
        "at": iso(row.at),
        **_fields(row, ("status", "error", "ms", "length", "address")),
        "warc": names.warc(row.warc_id),
        "offset": row.warc_offset,
    }


def _host_json(host: Host, slot: Slot, queue: int | None) -> dict[str, Any]:
    waiting = in_queue(queue) if queue else Count()
    return {
        "due_at": iso(slot.due_at),
        "leased_until": iso(slot.lease_ends_at),
        "lease_ended": slot.lease_ends_at is not None and slot.lease_ends_at <= now_ms(),
        "parked_until": iso(host.parked_until),
        "gap_ms": slot.gap_ms,
        **_fields(host, ("active", "blocked", "reason", "failures", "delay_ms")),
        "pending": waiting.urls,
        "held": waiting.held,
    }


def _fields(row: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


# --- for people ------------------------------------------------------------------------------------------


def columns(record: dict[str, Any]) -> list[str]:
    """The line for a pipe."""
    if "error" in record:
        return ["invalid", record["error"], record["url"]]
    told = [record[name] for name in COLUMNS]
    if "state" in record:
        told += [record["key"], record["state"], "in" if record["scope"]["allowed"] else "out"]
        robots = record["robots"]
        told.append("not-fetched" if robots is None else "allowed" if robots["allowed"] else "disallowed")
    return told


def facts(record: dict[str, Any]) -> list[tuple[str, str]]:
    """The names and values that are printed below each other."""
    if "error" in record:
        return [("url", record["url"]), ("invalid", record["error"])]
    told = [("url", record["url"]), *((name, record[name]) for name in COLUMNS)]
    if "state" not in record:
        return told
    told += [("key", record["key"]), ("campaign", "{name} ({status})".format(**record["campaign"]))]
    told += [("scope", _scope(record["scope"])), ("robots", _robots(record["robots"]))]
    told += [("state", line) for line in _state(record)]
    if record["page"]:
        told += _page(record["page"])
    told += [("history", _fetch(row)) for row in record["history"]]
    return [*told, *(("host state", line) for line in _host(record))]


def _scope(scope: dict[str, Any]) -> str:
    depth = "" if scope["depth"] is None else f", at depth {scope['depth']}"
    return f"{'in' if scope['allowed'] else 'out'} ({scope['rule']}{depth})"


def _robots(robots: dict[str, Any] | None) -> str:
    if robots is None:
        return "robots.txt is not fetched yet"
    group = "no group speaks to trawl" if robots["group"] is None else f"group {robots['group']}"
    rule = f"line {robots['line']}: {robots['rule']}, {group}" if robots["rule"] else f"no rule, {group}"
    if not 200 <= robots["status"] < 300:
        rule = f"robots.txt answered {robots['status']}"
    age = f"fetched {robots['fetched_at']}{', to be fetched again' if robots['expired'] else ''}"
    return f"{'allowed' if robots['allowed'] else 'disallowed'} ({rule}; {age})"


def _state(record: dict[str, Any]) -> list[str]:
    state, waiting, page, inbox = (record[name] for name in ("state", "waiting", "page", "inbox"))
    lines = []
    if state == "unknown":
        lines = ["unknown: no link to it has been admitted"]
    elif state == "inbox":
        lines = [f"on its way: in the inbox since {inbox['received_at']}, {_level(inbox['level'])}"]
    elif waiting:
        place = f", number {waiting['position']:,} of {waiting['of']:,} on its host" if waiting["position"] else ""
        lines = [f"waiting: {_level(waiting['level'])}{place}, depth {waiting['depth']}"]
    elif state == "waiting":
        lines = ["waiting to be fetched again"]
    elif state == "known":
        lines = ["known to the frontier"]
    if page:
        what = " ".join(filter(None, [str(page["status"] or ""), page["error"]]))
        lines.append(f"{'fetched' if page['status'] else 'not fetched'}: {what}, {page['fetched_at']}")
    if record["asked_for_as"] != record["fetch"]:
        lines.append(f"first seen, and asked for, as {record['asked_for_as']}")
    return [*lines, record["note"]] if record["note"] else lines


def _level(level: int) -> str:
    return f"priority {level} ({LEVEL_NAMES.get(level, 'link')})"


def _page(page: dict[str, Any]) -> list[tuple[str, str]]:
    has_content = page["status"] or page["digest"]
    told = {
        "failed": _failed(page),
        "note": "" if page["error"] else page["detail"],
        "title": page["title"],
        "content": f"{page['length']:,} bytes {page['content_type']}".rstrip() if has_content else "",
        "digest": page["digest"],
        "kept": "{warc} at {offset}, from {at}".format(**page["kept"]) if page["kept"] else "",
        "location": page["location"],
        "changed": page["changed_at"] if has_content else "",
        "due again": page["due_at"],
        "asks for": "noindex" if page["noindex"] else "",
    }
    return [(name, value) for name, value in told.items() if value]


def _failed(page: dict[str, Any]) -> str:
    """The reason of the last failure, and how many there were in a row."""
    times = f"{page['failures']} times in a row" if page["failures"] > 1 else ""
    return "; ".join(filter(None, [page["detail"] or page["error"], times])) if page["error"] else ""


def _fetch(row: dict[str, Any]) -> str:
    what = " ".join(filter(None, [str(row["status"] or ""), row["error"]]))
    place = f", {row['warc']} at {row['offset']}" if row["warc"] else ""
    return f"{row['at']}  run {row['run']}: {what} in {row['ms']} ms, {row['length']:,} bytes{place}"


def _host(record: dict[str, Any]) -> list[str]:
    host = record["host_state"]
    if host is None:
        return ["blocked" if record["blocked"] else "no URL of it has been admitted"]
    if host["blocked"] or record["blocked"]:
        now = "blocked"
    elif host["leased_until"]:
        ends = "ended" if host["lease_ended"] else "ends"
        now = f"leased to a worker, the lease {ends} {host['leased_until']}"
    elif host["active"]:
        now = "due now" if host["due_at"] <= (iso(now_ms()) or "") else f"due {host['due_at']}"
    elif host["parked_until"]:
        now = f"parked until {host['parked_until']}, or the next start of a campaign"
    else:
        now = f"parked, was due {host['due_at']}" if host["pending"] else "idle: nothing of this campaign waits"
    lines = [f"{now}; {host['pending']:,} waiting, {host['held']:,} held, {host['gap_ms']} ms between requests"]
    if host["reason"]:
        failed = f" ({host['failures']} visits failed in a row)" if host["failures"] else ""
        lines.append(host["reason"] + failed)
    return lines


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
