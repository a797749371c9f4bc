"""What a single fetch showed, for people: names and values made of the record that crawl/fetch_report.py makes."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from crawl.fetch.response import REDIRECTS
from crawl.fetch.waits import spoken

MAX_LINES = 60  # of a head
MAX_CHARS = 2_000  # of a value
_TIMES = {"connect": "connect", "tls": "TLS", "first_byte": "first byte", "total": "total"}
_DECODING = {
    "not-encoded": "which it is not: read as it came",
    "truncated": "which breaks off or is damaged: what could be unpacked is read",
    "bomb": "a bomb: the beginning is read",
    "unknown-encoding": "which trawl does not know: read as it came",
}
_CRAWL = {"asks next": "same host: the crawl asks for it next", "queues": "another host: the crawl would queue this"}
GOOD, BAD, ODD = "green", "red", "yellow"


class Row(NamedTuple):
    """A name and a value; no name: another value of the one before."""

    name: str
    value: str
    style: str = ""


def rows(hop: dict[str, Any], all_links: bool, asked: str = "") -> list[Row]:
    """What is to be said of a hop, each value cut to MAX_CHARS; `asked`: how the URL was written, for the first."""
    told = [
        *([Row("written", asked)] if asked not in ("", hop["url"]) else []),
        *_identity(hop),
        *_look_ups(hop),
        *_robots(hop),
        *(row for step in hop["requests"] if step["for"] == "page" for row in _page_step(step)),
        *_page(hop["page"] or {}, all_links),
        *_end(hop),
    ]
    return [row if len(row.value) <= MAX_CHARS else row._replace(value=_cut(row.value)) for row in told]


def _cut(value: str) -> str:
    return f"{value[:MAX_CHARS]}… ({len(value):,} characters)"


def _identity(hop: dict[str, Any]) -> Iterator[Row]:
    if hop["canonical"] != hop["url"]:
        yield Row("canonical", hop["canonical"])
    scope = hop["scope"]
    if scope:
        word = "in" if scope["allowed"] else "out: the crawl would not ask for it"
        yield Row("scope", f"{word} ({scope['rule']}, at depth {scope['depth']})", GOOD if scope["allowed"] else BAD)
    if hop["blocked"]:
        yield Row("blocked", "a domain block covers the host; nothing is asked for", BAD)


def _look_ups(hop: dict[str, Any]) -> Iterator[Row]:
    """Each name once: a look-up is kept for the next request."""
    told: set[str] = set()
    for found in (step["look_up"] for step in hop["requests"] if step["look_up"]):
        if found["name"] in told:
            continue
        told.add(found["name"])
        allowed = [one["address"] for one in found["addresses"] if not one["refused"]]
        if allowed:
            took = f" (looked up in {found['ms']:g} ms)" if found["ms"] else ""
            yield Row("address", f"{', '.join(allowed)}{took}")
        for one in found["addresses"]:
            if one["refused"]:
                yield Row("refused", f"{one['address']}: {one['refused']}{_how_to_allow(one)}", BAD)
        if not found["addresses"]:
            yield Row("address", f"none for {found['name']} ({found['ms']:g} ms)", BAD)


def _how_to_allow(one: dict[str, Any]) -> str:
    if "contact" in one["refused"]:
        return " (--contact MAIL-or-URL)"
    return f"; --allow-network {one['address']} allows it"


# --- robots.txt ------------------------------------------------------------------------------------------


def _robots(hop: dict[str, Any]) -> Iterator[Row]:
    for step in hop["requests"]:
        if step["for"] == "robots":
            for attempt in step["attempts"]:
                yield from _waited(attempt)
                yield Row("robots.txt", f"{_came(attempt)}: {step['url']}", BAD if attempt["error"] else "")
    robots = hop["robots"]
    if robots is None:
        return
    name = "" if any(step["for"] == "robots" for step in hop["requests"]) else "robots.txt"
    if robots["rule"]:
        by = f"line {robots['line']}: {robots['rule']} (group {robots['group']})"
    elif robots["group"]:
        by = f"no rule of the group {robots['group']} speaks of it"
    else:
        by = "no group speaks to trawl"
    delay = f"; Crawl-delay {robots['crawl_delay']:g} s" if robots["crawl_delay"] is not None else ""
    if robots["allowed"]:
        yield Row(name, f"allowed: {by}{delay}", GOOD)
    else:
        yield Row(name, f"forbidden by {by}{delay}", BAD)


def _came(attempt: dict[str, Any]) -> str:
    """What an attempt brought, in a few words."""
    if attempt["error"]:
        status = f"{attempt['status']}, " if attempt["status"] else ""
        return f"{status}{attempt['error']}: {attempt['detail']}"
    return f"{attempt['status']}, {attempt['bytes']:,} bytes, {attempt['ms']['total']:g} ms"


def _waited(attempt: dict[str, Any]) -> Iterator[Row]:
    if attempt["waited_ms"] >= 1:
        yield Row("waited", f"{attempt['waited_ms'] / 1000:.3g} s ({attempt['waited_for']})", "dim")


# --- the page ----------------------------------------------------------------------------------------------


def _page_step(step: dict[str, Any]) -> Iterator[Row]:
    for attempt in step["attempts"]:
        yield from _waited(attempt)
        yield from _connection(attempt)
        yield from _lines("request", attempt["request"])
        yield from _lines("answer", attempt["response"])
        if attempt["error"] and attempt is not step["attempts"][-1]:
            yield Row("not read" if attempt["response"] else "failed", f"{attempt['error']}: {attempt['detail']}", ODD)
        if attempt["forgiven"]:
            yield Row("forgiven", attempt["forgiven"], ODD)
        times = [f"{word} {attempt['ms'][name]:g}" for name, word in _TIMES.items() if name in attempt["ms"]]
        yield Row("times", f"{', '.join(times)} ms")


def _connection(attempt: dict[str, Any]) -> Iterator[Row]:
    where = f"to {attempt['address']}" if not attempt["proxy"] else f"through {attempt['proxy']}"
    told = [where if attempt["new_connection"] else f"{where}, used again"]
    if attempt["http_version"]:
        told.append(f"HTTP/{attempt['http_version']}")
    if attempt["reader"] == "lenient":
        told.append("read leniently, since libcurl could not read the answer")
    yield Row("connection", ", ".join(told))
    tls = attempt["tls"]
    if tls:
        yield Row("TLS", f"{tls['version']}, {tls['cipher']}")
        if tls["subject"] or tls["names"]:
            yield Row("", f"certificate for {', '.join(tls['names']) or tls['subject']}")
            yield Row("", f"by {tls['issuer']}, until {tls['valid_until']}")


def _lines(name: str, lines: list[str]) -> Iterator[Row]:
    for number, line in enumerate(lines[:MAX_LINES]):
        yield Row(name if not number else "", line)
    if len(lines) > MAX_LINES:
        yield Row("", f"… {len(lines) - MAX_LINES:,} more lines (--json has them)", "dim")


def _page(page: dict[str, Any], all_links: bool) -> Iterator[Row]:
    if not page:
        return
    size = f"{page['bytes']:,} bytes"
    if page["content_encoding"]:
        size += f" of {page['content_encoding']}, {page['decoded_bytes']:,} decoded"
    if page["decoding"]:
        size += f"; {_DECODING[page['decoding']]}"
    yield Row("body", size, ODD if page["decoding"] else "")
    if page["is_read"] and not page["is_html"]:
        yield Row("content", "no HTML: the crawl looks for no links in it")
    if "encoding" in page:
        yield Row("encoding", f"{page['encoding']} (by {page['encoding_by']})")
        yield Row("title", page["title"] or "none")
        for name in ("noindex", "nofollow"):
            if page[name]:
                yield Row(name, f"said by {' and '.join(page[name])}", ODD)
        yield from _links(page, all_links)
    if page["digest"]:
        yield Row("digest", page["digest"])


def _links(page: dict[str, Any], all_links: bool) -> Iterator[Row]:
    taken = page["link_count"] - sum(page["left_out"].values())
    left_out = [f"{number:,} {why}" for why, number in page["left_out"].items()]
    yield Row("links", ", ".join([f"{page['link_count']:,}: {taken:,} for the crawl", *left_out]))
    for link in page["links"]:
        where = link["url"] or link["href"]
        if link["left_out"]:
            why = f": {link['why']}" if link["why"] else ""
            yield Row("", f"{where} ({link['left_out']}{why})", "dim")
        else:
            yield Row("", where)
    if len(page["links"]) < page["link_count"] and not all_links:
        yield Row("", f"… {page['link_count'] - len(page['links']):,} more (--links shows all)", "dim")


# --- the end -------------------------------------------------------------------------------------------------


def _end(hop: dict[str, Any]) -> Iterator[Row]:
    error, redirect, stored, again = hop["error"], hop["redirect"], hop["stored"], hop["again"]
    if error:
        yield Row("error", f"{error['kind']}: {error['detail']}" if error["detail"] else error["kind"], BAD)
        yield Row("", f"{error['meaning']}; {_retry(error)}")
    if redirect:
        yield Row("redirect", redirect["url"])
        if redirect["loop"]:
            yield Row("", "a redirect loop: it was asked for before", BAD)
        else:
            yield Row("", f"{_CRAWL[redirect['crawl']]}{'' if redirect['followed'] else '; not followed here'}")
    elif hop["status"] in REDIRECTS and not error:
        yield Row("redirect", "nowhere: the answer has no Location", ODD)
    yield Row("stored", _stored(stored))
    if again:
        who = "the URL" if again["what"] == "url" else "the host"
        at = f"is asked again at {again['at']}" if again["at"] else "is left alone until somebody wakes it"
        is_said = error and again["why"] == f"{error['kind']}: {error['detail']}"
        yield Row("again", f"{who} {at}" + ("" if is_said else f": {again['why']}"))


def _retry(error: dict[str, Any]) -> str:
    match error["retry"]:
        case "url":
            return f"the URL gets {error['tries']} more {'try' if error['tries'] == 1 else 'tries'}"
        case "host":
            return "the host is tried again later"
        case "parked":
            return "the host is parked"
    return "no further try"


def _stored(stored: dict[str, Any]) -> str:
    parts = []
    if stored["warc"]:
        parts.append(f"WARC {stored['warc']} record ({stored['warc_bytes']:,} bytes with request and metadata)")
    if stored["page"]:
        parts.append("the page's row")
    if stored["links"]:
        parts.append(f"{stored['links']:,} {'link' if stored['links'] == 1 else 'links'}")
    told = ", ".join(parts) or "nothing"
    return f"{told}: {stored['why']}" if stored["why"] else told


def summary(record: dict[str, Any]) -> str:
    """The line at the end."""
    last = record["hops"][-1]
    what = last["error"]["kind"] if last["error"] else last["status"] or "not asked for"
    requests = sum(len(step["attempts"]) for hop in record["hops"] for step in hop["requests"])
    waited = sum(a["waited_ms"] for hop in record["hops"] for step in hop["requests"] for a in step["attempts"]) / 1000
    told = f"{what} after {requests} {'request' if requests == 1 else 'requests'}"
    return f"{told}, {spoken(waited)} of waiting" if waited >= 1 else told
