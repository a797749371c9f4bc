"""What a single fetch showed, as plain values: the JSON of `trawl fetch`, and what its text is made of."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from crawl.discover import Reading, read
from crawl.fetch.errors import RULES, Kind, Retry
from crawl.fetch.robots import Robots
from crawl.fetch.single import SingleFetch
from crawl.fetch.target import origin_of
from crawl.fetch.waits import BLOCKED
from crawl.fetch.watched import Attempt, Hop, LookUp, Step
from crawl.parse.charset import named
from crawl.parse.html import Link
from crawl.store.archive import exchange_of, is_kept, kept_payload, moment
from crawl.store.records import Members, exchange_members, revisit_members
from frontier.urls import InvalidURL, canonicalise

SAMPLE = 5  # links that are shown unless all are asked for

Blocked = Callable[[str], bool]


def report(engine: SingleFetch, url: str, campaign: str | None, *, links: bool = False) -> dict[str, Any]:
    """All that is to be said; `links`: with every link of the last page."""
    hops = engine.notes.hops
    told = [_hop(engine, hop, links and hop is hops[-1], campaign is not None) for hop in hops]
    asked: set[str] = set()
    for this, after in zip(told, [*told[1:], None], strict=True):
        asked.add(this["canonical"])
        if this["redirect"]:
            this["redirect"]["followed"] = after is not None and after["canonical"] == this["redirect"]["canonical"]
            this["redirect"]["loop"] = this["redirect"]["canonical"] in asked
    last = told[-1]
    done = not last["error"] and (200 <= (last["status"] or 0) < 300 or last["status"] == 304)
    return {"url": url, "campaign": campaign, "ok": done, "hops": told}


def body_of(engine: SingleFetch) -> bytes:
    """The last body, with its content encoding undone."""
    response = engine.notes.hops[-1].response
    return read(response, engine.notes.hops[-1].target.url).decoded.body if response else b""


def _hop(engine: SingleFetch, hop: Hop, links: bool, has_campaign: bool) -> dict[str, Any]:
    target, response = hop.target, hop.response
    scope = target.plan.scope.verdict(target.url, target.depth)
    return {
        "url": target.url.fetch,
        "canonical": target.url.canonical,
        "host": target.url.host,
        "scope": {"allowed": scope.allowed, "rule": scope.rule, "depth": target.depth} if has_campaign else None,
        "blocked": hop.visit.reason == BLOCKED,
        "robots": _robots(hop, engine.robots_cache.get(origin_of(target.url.fetch))),
        "requests": [_step(step) for step in hop.steps],
        "status": response.status or None if response else None,
        "error": _error(hop),
        "page": _page(hop, engine.is_blocked, links),
        "redirect": _redirect(hop),
        "stored": _stored(hop, engine.is_blocked),
        "again": _again(hop),
    }


# --- requests ---------------------------------------------------------------------------------------------


def _robots(hop: Hop, robots: Robots | None) -> dict[str, Any] | None:
    """The verdict on the URL; None: there are no rules to go by."""
    if robots is None:
        return None
    asked = [attempt.response for step in hop.steps if step.is_robots for attempt in step.attempts]
    last = asked[-1] if asked else None
    return {
        **robots.verdict(hop.target.url.fetch)._asdict(),
        "crawl_delay": robots.crawl_delay,
        "url": last.url if last else f"{origin_of(hop.target.url.fetch)}/robots.txt",
        "status": last.status if last else None,
        "bytes": len(last.body) if last else None,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "for": "robots" if step.is_robots else "page",
        "url": step.url,
        "look_up": step.look_up and _look_up(step.look_up),
        "attempts": [_attempt(attempt) for attempt in step.attempts],
        "error": step.error,
        "detail": step.detail,
    }


def _look_up(found: LookUp) -> dict[str, Any]:
    addresses = [{"address": address, "refused": reason or None} for address, reason in found.addresses.items()]
    return {"name": found.name, "ms": _ms(found.ms), "addresses": addresses}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    response = attempt.response
    return {
        "address": attempt.request.address or None,
        "proxy": attempt.proxy or None,
        "waited_ms": _ms(attempt.waited_ms),
        "waited_for": attempt.waited_for if attempt.waited_ms >= 1 else None,
        "reader": "lenient" if attempt.request.lenient else "libcurl",
        "forgiven": (response.odd if response else "") or None,
        "new_connection": attempt.is_new,
        "tls": attempt.tls and _tls(attempt.tls.version, attempt.tls.cipher, attempt.tls.certificate),
        "request": attempt.request_lines,
        "status": response.status or None if response else None,
        "http_version": (response.http_version if response else "") or None,
        "response": [_text(line) for line in response.lines if line.strip()] if response else [],
        "bytes": len(response.body) if response else 0,
        "truncated": response.truncated if response else None,
        "ms": {name: _ms(ms) for name, ms in attempt.ms.items()},
        "error": attempt.error,
        "detail": attempt.detail,
    }


def _tls(version: str, cipher: str, certificate: dict[str, str]) -> dict[str, Any]:
    names = certificate.get("X509v3 Subject Alternative Name", "")
    return {
        "version": version,
        "cipher": cipher,
        "subject": certificate.get("Subject"),
        "names": [name.strip() for name in names.split(",") if name.strip()],
        "issuer": certificate.get("Issuer"),
        "valid_from": certificate.get("Start date"),
        "valid_until": certificate.get("Expire date"),
    }


# --- what came of it ----------------------------------------------------------------------------------------


def _error(hop: Hop) -> dict[str, Any] | None:
    kind, detail = _kind(hop)
    if kind is None:
        return None
    rule = RULES[kind]
    return {
        "kind": kind,
        "detail": detail,
        "meaning": rule.meaning,
        "retry": {Retry.NEVER: None, Retry.URL: "url", Retry.HOST: "host", Retry.PARK: "parked"}[rule.retry],
        "tries": rule.tries,
    }


def _kind(hop: Hop) -> tuple[Kind | None, str]:
    if hop.record:
        return hop.record.outcome.error, hop.record.outcome.detail
    if hop.visit.reason == BLOCKED:
        return Kind.BLOCKED_DOMAIN, "a domain block covers the host"
    if hop.steps and hop.steps[-1].error:
        return hop.steps[-1].error, hop.steps[-1].detail
    return (Kind.OVERLOADED, hop.visit.reason) if hop.response and hop.visit.reason else (None, "")


def _page(hop: Hop, blocked: Blocked, links: bool) -> dict[str, Any] | None:
    """The body of an answer; what is in it only where a crawl would look into it."""
    response = hop.response
    if response is None or not response.lines:
        return None
    reading = read(response, hop.target.url)
    told: dict[str, Any] = {
        "content_type": response.headers.get("content-type"),
        "bytes": len(response.body),
        "content_encoding": response.headers.get("content-encoding"),
        "decoded_bytes": len(reading.decoded.body),
        "decoding": reading.decoded.flag,
        "digest": _digest(hop),
        "is_read": bool(hop.record and hop.record.discovery.digest),
        "is_html": reading.page is not None,
    }
    if reading.page is None or not told["is_read"]:
        return told
    page, (noindex, nofollow) = reading.page, reading.header
    seen: set[str] = set()
    found = [_link(hop, reading, link, blocked, seen) for link in page.links]
    return told | {
        "encoding": reading.encoding,
        "encoding_by": named(reading.decoded.body, response.headers.get("content-type")).by,
        "title": page.title,
        "base": page.base,
        "noindex": _said(page.noindex, noindex),
        "nofollow": _said(page.nofollow, nofollow),
        "link_count": len(found),
        "left_out": _counted(link["left_out"] for link in found),
        "links": found if links else found[:SAMPLE],
    }


def _said(by_meta: bool, by_header: bool) -> list[str]:
    return [name for name, is_said in (("meta", by_meta), ("X-Robots-Tag", by_header)) if is_said]


def _link(hop: Hop, reading: Reading, link: Link, blocked: Blocked, seen: set[str]) -> dict[str, Any]:
    """A link, and why a crawl would leave it out; `seen`: canonical URLs of those before it that it would take."""
    assert reading.page
    told: dict[str, Any] = {"href": link.href, "kind": link.kind, "url": None, "left_out": None, "why": None}
    plan = hop.target.plan
    try:
        url = canonicalise(link.href, reading.page.base, plan.rules)
    except InvalidURL as error:
        return told | {"left_out": "no URL", "why": str(error)}
    told["url"] = url.fetch
    verdict = plan.scope.verdict(url, hop.target.depth + 1)
    if reading.page.nofollow or reading.header[1]:
        return told | {"left_out": "nofollow", "why": "the page says nofollow"}
    if link.nofollow:
        return told | {"left_out": "nofollow", "why": "the link says nofollow"}
    if not verdict.allowed:
        return told | {"left_out": "out of scope", "why": verdict.rule}
    if blocked(url.host):
        return told | {"left_out": "blocked", "why": "a domain block covers its host"}
    if url.canonical in seen:
        return told | {"left_out": "repeated"}
    seen.add(url.canonical)
    return told


def _counted(words: Iterable[str | None]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        if word:
            counts[word] = counts.get(word, 0) + 1
    return counts


def _redirect(hop: Hop) -> dict[str, Any] | None:
    follow = hop.record.outcome.redirect if hop.record else None
    if follow is None:
        return None
    same = follow.host == hop.target.url.host
    return {"url": follow.fetch, "canonical": follow.canonical, "crawl": "asks next" if same else "queues"}


def _members(hop: Hop) -> Members:
    """The WARC records of a hop that has an answer."""
    assert hop.record
    outcome = hop.record.outcome
    exchange, known, payload = exchange_of(hop.record), outcome.target.known, kept_payload(outcome)
    if known and payload:
        return revisit_members(exchange, known.digest, exchange.url, moment(payload.at))
    return exchange_members(exchange)


def _digest(hop: Hop) -> str | None:
    """What the row of the page has as its digest."""
    if hop.record is None:
        return None
    return _members(hop).digest if is_kept(hop.record) else hop.record.discovery.digest or None


def _stored(hop: Hop, blocked: Blocked) -> dict[str, Any]:
    """What a crawl would store of a hop."""
    record = hop.record
    told: dict[str, Any] = {"page": record is not None, "warc": None, "warc_bytes": 0, "links": 0, "why": ""}
    if record is None:
        return told | {"why": "the URL keeps its place in its queue"}
    told["links"] = len([link for link in record.links if not blocked(link.url.host)])
    if is_kept(record):
        told |= {
            "warc": "revisit" if kept_payload(record.outcome) else "response",
            "warc_bytes": sum(map(len, _members(hop).records)),
        }
    elif record.outcome.response is None:
        told["why"] = "it was not asked for"
    elif not record.outcome.target.plan.warc:
        told["why"] = "the campaign keeps no responses"
    else:
        told["why"] = "no answer came that could be kept"
    return told


def _again(hop: Hop) -> dict[str, Any] | None:
    """When a crawl would ask again by itself, and why it waits."""
    if hop.record and hop.record.outcome.retry_at:
        return {"what": "url", "at": iso(hop.record.outcome.retry_at / 1000), "why": "another try"}
    visit = hop.visit
    if visit.parked:
        return {"what": "host", "at": iso(visit.parked_until) if visit.parked_until else None, "why": visit.reason}
    if hop.record is None:
        return {"what": "host", "at": iso(visit.due_at), "why": visit.reason or SingleFetch.pace_of(visit)}
    return None


def iso(seconds: float) -> str:
    """A time of time.time() in ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ms(value: float) -> float:
    return round(value, 1)


def _text(line: bytes) -> str:
    line = line.rstrip(b"\r\n")
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")
