"""What is to be said of a URL: for programs, and as the names and values that people read."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crawl.lookup import CampaignLookup, Found
from crawl.models import Fetch, Page, Run, WarcFile
from frontier.counts import Count, in_queue
from frontier.models import Host
from frontier.politeness import now_ms
from frontier.priority import HELD, POPULAR, REDIRECT, SEED, SITEMAP, SITEMAP_FIRST
from frontier.schedule import Slot
from frontier.urls import URL, InvalidURL, Rules, canonicalise

COLUMNS = ("canonical", "fetch", "host")
LEVEL_NAMES = {
    SEED: "seed",
    REDIRECT: "redirect",
    SITEMAP_FIRST: "sitemap, important",
    SITEMAP: "sitemap",
    POPULAR: "many links to it",
    HELD: "held",
}


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
