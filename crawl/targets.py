"""From claimed queue rows to visits that the fetch engine can run: full URLs, keys, what is known of them."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from django.db.models import F

from crawl.fetch.engine import Engine
from crawl.fetch.robots import Robots
from crawl.fetch.target import Known, Target, origin_of
from crawl.fetch.validators import etag, last_modified
from crawl.fetch.visit import HostVisit
from crawl.models import Page, RobotsFile, Run
from crawl.pages import Key, key_of, places
from crawl.plan import Plan
from crawl.store.kept import Payload, kept_files
from frontier.claim import QueuedVisit, Visit
from frontier.models import PRIORITY_BITS, SEQUENCE_BITS
from frontier.state import hash_seed
from frontier.urls import URL, InvalidURL, canonicalise, from_reference, url_hash
from trawl_project.version import AGENT


class _Row(NamedTuple):
    """What is read of a page's row."""

    id: int
    queued: bool
    failures: int
    etag: str
    last_modified: str
    digest: str
    payload_warc_id: int | None
    payload_at: int | None


def build_visits(opened: Iterable[Visit], plans: Mapping[int, Plan], engine: Engine) -> list[HostVisit]:
    """The visits of opened hosts, within the page limits of their campaigns."""
    seed = hash_seed()
    visits = []
    for lease in opened:
        targets = deque(_target(lease, queued, plans[queued.campaign], seed) for queued in lease.urls)
        visits.append(HostVisit(lease, targets, engine))
    _tell_known([target for visit in visits for target in visit.targets])
    _tell_robots(visits, engine)
    for plan in plans.values():
        if plan.max_pages is not None:
            _limit(visits, plan)
    return visits


def _target(lease: Visit, queued: QueuedVisit, plan: Plan, seed: int) -> Target:
    fetch = from_reference(queued.ref, lease.name)
    try:
        url = canonicalise(fetch, rules=plan.rules)
    except InvalidURL:  # accepted by an older version; the fetch will tell what is wrong with it
        url = URL(fetch, fetch, lease.name)
    key = key_of(queued.row >> (PRIORITY_BITS + SEQUENCE_BITS), url_hash(url.canonical, seed))
    return Target(url, key, plan, queued.depth, queued.row)


def _tell_known(targets: list[Target]) -> None:
    """Notes on each target what earlier fetches of it left behind."""
    there: dict[int, Key] = {place.id: key for key, place in places(t.key for t in targets).items() if place.exists}
    if not there:
        return
    rows = Page.objects.filter(id__in=list(there)).values_list(*_Row._fields)
    pages = {there[row[0]]: _Row(*row) for row in rows}
    kept = kept_files.there(page.payload_warc_id for page in pages.values() if page.payload_warc_id is not None)
    for target in targets:
        if target.key in pages:
            target.known = _known(pages[target.key], target.plan, kept)


def _known(page: _Row, plan: Plan, kept: set[int]) -> Known:
    """A body that is not kept, though the campaign keeps bodies, is not asked for by conditions: it would never come
    again."""
    known = Known(page.id, page.queued, page.failures, digest=page.digest)
    if page.payload_warc_id in kept and page.payload_warc_id is not None and page.payload_at is not None:
        known.payload = Payload(page.payload_warc_id, page.payload_at)
    if known.payload if plan.warc else page.digest:
        known.etag, known.last_modified = etag(page.etag), last_modified(page.last_modified)
    return known


def known_of(page: int, plan: Plan) -> Known:
    """What is known of a page that was fetched, by its id, as the next request for it would have it."""
    row = _Row(*Page.objects.values_list(*_Row._fields).get(id=page))
    kept = kept_files.there([row.payload_warc_id]) if row.payload_warc_id is not None else set()
    return replace(_known(row, plan, kept), queued=True)


def _tell_robots(visits: list[HostVisit], engine: Engine) -> None:
    """Gives the engine the stored robots.txt of origins that it does not have in memory."""
    origins = {origin_of(target.url.fetch) for visit in visits for target in visit.targets}
    missing = [origin for origin in origins if not engine.robots_cache.knows(origin)]
    if not missing:
        return
    # Those that have expired as well: they hold on where the file cannot be fetched.
    for row in RobotsFile.objects.filter(origin__in=missing):
        robots = Robots.from_status(row.status, bytes(row.body), AGENT)
        engine.robots_cache.keep(row.origin, robots, row.expires_at / 1000, row.fetched_at / 1000)


def _limit(visits: list[HostVisit], plan: Plan) -> None:
    """Takes what the page limit still allows; the rest of the URLs stay in their queues.

    The run's count is raised by one conditional UPDATE, so that workers cannot overdraw it together.
    """
    assert plan.max_pages is not None
    mine = [(visit, target) for visit in visits for target in visit.targets if target.plan.run == plan.run]
    granted = len(mine)
    while granted and not Run.objects.filter(id=plan.run, taken__lte=plan.max_pages - granted).update(
        taken=F("taken") + granted
    ):
        left = plan.max_pages - Run.objects.values_list("taken", flat=True).get(id=plan.run)
        granted = max(0, min(granted - 1, left))
    for visit, target in mine[granted:]:
        visit.targets.remove(target)
