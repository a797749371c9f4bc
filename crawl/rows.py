"""How results become rows: one statement per table and batch, the same for both databases."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from crawl.fetch.errors import KEPT_KINDS, Kind
from crawl.fetch.validators import etag, last_modified
from crawl.pages import Key, Place, places
from crawl.store.kept import Payload
from crawl.store.records import digest_of
from frontier.politeness import now_ms
from frontier.sql import dialect
from frontier.urls import to_reference

if TYPE_CHECKING:
    from crawl.record import Record

CONTENT_TYPE_CHARS, EXAMPLE_CHARS, DETAIL_CHARS = 80, 500, 200


class Stored(NamedTuple):
    """Where a response lies: the WARC file's row id, the offset in it, the payload digest, and the record that holds
    the payload, which is another one for a revisit."""

    warc: int
    offset: int
    digest: str
    payload: Payload


class RobotsRow(NamedTuple):
    """A robots.txt to store; times in ms since 1970."""

    origin: str
    status: int
    body: bytes
    fetched_at: int
    expires_at: int


_PAGE = (
    "id bigint, hash bigint, probe smallint, ref text, depth smallint, status smallint, error text, detail text,"
    " failures smallint, fetched_at bigint, due_at bigint, length integer, digest text, content_type text,"
    " payload_warc_id integer, payload_at bigint, etag text, last_modified text, location text, title text,"
    " noindex boolean"
)
_NAMES = ", ".join(column.split()[0] for column in _PAGE.split(","))
_STATE = (
    "status = excluded.status, error = excluded.error, failures = excluded.failures, fetched_at = excluded.fetched_at,"
    " due_at = excluded.due_at, queued = false"
)
# A failed fetch and a 304 leave what is known of the content as it is, and what was odd about it still is. A 304 may
# bring a validator that was missing, or a new date. One with another entity tag speaks of another body than the one
# that is kept (RFC 9111 section 4.3.4), and to ask by that tag would hide the change for ever.
_LEFT = (
    ", detail = CASE WHEN crawl_page.error = '' AND excluded.error = '' THEN crawl_page.detail"
    " ELSE excluded.detail END,"
    " etag = CASE WHEN crawl_page.etag = '' THEN excluded.etag ELSE crawl_page.etag END,"
    " last_modified = CASE WHEN excluded.last_modified = '' OR excluded.etag NOT IN ('', crawl_page.etag)"
    " THEN crawl_page.last_modified ELSE excluded.last_modified END"
)
_CONTENT = (
    ", detail = excluded.detail, changed_at = CASE WHEN crawl_page.digest = excluded.digest THEN crawl_page.changed_at"
    " ELSE excluded.changed_at END, length = excluded.length, digest = excluded.digest,"
    " content_type = excluded.content_type, payload_warc_id = excluded.payload_warc_id,"
    " payload_at = excluded.payload_at, etag = excluded.etag, last_modified = excluded.last_modified,"
    " location = excluded.location, title = excluded.title, noindex = excluded.noindex"
)
_FETCH = (
    "page_id bigint, run_id integer, at bigint, status smallint, error text, ms integer, length integer,"
    " address text, warc_id integer, warc_offset bigint"
)


def store(cursor: Any, records: Sequence["Record"], stored: dict[int, Stored]) -> None:
    """Writes the pages and fetches of a batch in the caller's transaction."""
    # A URL that was only skipped (fetched before, or twice in one visit) has nothing to tell.
    told = [(at, r) for at, r in enumerate(records) if r.outcome.response or r.outcome.error]
    if not told:
        return
    where = places(record.outcome.target.key for _, record in told)
    kept: dict[Key, list[Any]] = {}
    states: dict[Key, list[Any]] = {}
    fetches = []
    for at, record in told:
        target, response = record.outcome.target, record.outcome.response
        place, archived = where[target.key], stored.get(at)
        row = _page_row(record, place, archived)
        error = record.outcome.error
        whole = response is not None and (not error or error in KEPT_KINDS) and response.status != 304
        (kept if whole else states)[target.key] = row
        if response is not None:
            fetches.append(_fetch_row(record, place, archived))
    # Both were fetched in this batch: the content of the one, the later state of the other.
    _upsert(cursor, kept.values(), _STATE + _CONTENT)
    _upsert(cursor, states.values(), _STATE + _LEFT)
    if fetches:
        sql = dialect("default")
        names = ", ".join(column.split()[0] for column in _FETCH.split(","))
        cursor.execute(
            f"INSERT INTO crawl_fetch({names}) SELECT {names} FROM {sql.rows(_FETCH)} fresh",
            [sql.pack(fetches)],
        )


def _upsert(cursor: Any, rows: Iterable[list[Any]], changes: str) -> None:
    ordered = sorted(rows)
    if not ordered:
        return
    sql = dialect("default")
    cursor.execute(
        f"INSERT INTO crawl_page({_NAMES}, changed_at, queued) SELECT {_NAMES}, fetched_at, false"
        f" FROM {sql.rows(_PAGE)} fresh WHERE true ON CONFLICT (id) DO UPDATE SET {changes}",
        [sql.pack(ordered)],
    )


def _page_row(record: "Record", place: Place, archived: Stored | None) -> list[Any]:
    outcome, found = record.outcome, record.discovery
    target, response, error = outcome.target, outcome.response, outcome.error
    headers = response.headers if response else {}
    status = response.status if response else 0
    failed = bool(error) or status >= 500
    # Only answers that may be renewed leave validators; what a 304 renews is such a one.
    valid = not error and status in (200, 304)
    digest, payload = _body_of(record, archived)
    return [
        place.id,
        target.key.rest,
        place.probe,
        to_reference(target.url.fetch, target.url.host),
        target.depth,
        200 if status == 304 and not error else status,
        error or "",
        _text(outcome.detail if error else found.note, DETAIL_CHARS),
        (target.known.failures if target.known else 0) + 1 if failed else 0,
        (response.sent_ms if response else 0) or now_ms(),
        outcome.retry_at,
        len(response.body) if response else 0,
        digest,
        _text(headers.get("content-type", ""), CONTENT_TYPE_CHARS),
        payload.warc if payload else None,
        payload.at if payload else None,
        etag(headers.get("etag", "")) if valid else "",
        last_modified(headers.get("last-modified", "")) if valid else "",
        _text(headers.get("location", ""), 8192),
        _text(found.title, 300),
        found.noindex,
    ]


def _body_of(record: "Record", archived: Stored | None) -> tuple[str, Payload | None]:
    """Digest of the body, and the record that holds it."""
    if archived:
        return archived.digest, archived.payload
    known, response = record.outcome.target.known, record.outcome.response
    if known and response and known.digest.startswith("sha1:") and digest_of(response.body) == known.digest:
        return known.digest, known.payload  # kept by an earlier run, and still the same
    return record.discovery.digest, None


def _fetch_row(record: "Record", place: Place, archived: Stored | None) -> list[Any]:
    outcome, response = record.outcome, record.outcome.response
    assert response is not None
    return [
        place.id,
        outcome.target.plan.run,
        response.sent_ms,
        response.status,
        outcome.error or "",
        max(0, int((response.ended_at - response.sent_at) * 1000)),
        len(response.body),
        response.address,
        archived.warc if archived else None,
        archived.offset if archived else None,
    ]


def _text(value: str, limit: int) -> str:
    """What PostgreSQL takes: no NUL, and not longer than its column."""
    return value.replace("\0", "")[:limit]


def store_robots(cursor: Any, robots: Sequence[RobotsRow]) -> None:
    """Writes robots.txt files; the later of two for one origin counts."""
    for row in {row.origin: row for row in robots}.values():
        cursor.execute(
            "INSERT INTO crawl_robotsfile(origin, status, body, fetched_at, expires_at) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT (origin) DO UPDATE SET status = excluded.status, body = excluded.body,"
            " fetched_at = excluded.fetched_at, expires_at = excluded.expires_at",
            list(row),
        )


def count(cursor: Any, records: Sequence["Record"], given_back: Sequence[dict[int, int]]) -> None:
    """Adds a batch to the counts of its runs."""
    runs: dict[int, Counter[str]] = {}
    tallies: dict[tuple[int, str], tuple[int, str]] = {}
    for record in records:
        outcome = record.outcome
        response, run = outcome.response, outcome.target.plan.run
        counts = runs.setdefault(run, Counter())
        counts["links"] += len(record.links)
        if response is not None:
            counts["requests"] += 1
            counts["bytes"] += len(response.body)
            counts["pages"] += 200 <= response.status < 300 and not outcome.error
        kind = outcome.error or (f"http-{response.status}" if response is not None else "")
        if kind:
            url, detail = outcome.target.url.fetch, outcome.detail
            example = f"{url} ({detail})" if detail else url
            tallies[run, kind] = (tallies.get((run, kind), (0, ""))[0] + 1, _text(example, EXAMPLE_CHARS))
        to_blocked = [link.url for link in record.refused]
        for kind, refused in ((Kind.BLOCKED_DOMAIN, to_blocked), (Kind.BLOCKED_PORT, record.discovery.refused)):
            if refused:
                example = f"{refused[0].fetch} (a link that was not followed)"
                key = run, kind.value
                tallies[key] = (tallies.get(key, (0, ""))[0] + len(refused), _text(example, EXAMPLE_CHARS))
    for part in given_back:
        for run, urls in part.items():
            runs.setdefault(run, Counter())["back"] += urls
    for run, counts in sorted(runs.items()):
        cursor.execute(
            "UPDATE crawl_run SET requests = requests + %s, pages = pages + %s, bytes = bytes + %s,"
            " links = links + %s, taken = taken - %s WHERE id = %s",
            [*(counts[name] for name in ("requests", "pages", "bytes", "links", "back")), run],
        )
    for (run, kind), (number, example) in sorted(tallies.items()):
        cursor.execute(
            "INSERT INTO crawl_tally(run_id, kind, count, example) VALUES (%s, %s, %s, %s) ON CONFLICT (run_id, kind)"
            " DO UPDATE SET count = crawl_tally.count + excluded.count, example = excluded.example",
            [run, kind, number, example],
        )
