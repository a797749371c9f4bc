"""What a visit does when its host fails or asks for a pause: who waits, for how long, and when the host is parked.

A host that failed again and again is parked: nothing of it is asked for an hour, then six, then a day, each time with
a single request. What waits on it stays, and does not keep a run from ending (campaigns.nothing_left).
"""

import time
from collections import deque
from typing import TYPE_CHECKING

from crawl.fetch.arrivals import log_pause
from crawl.fetch.errors import FINAL_HOST_KINDS, Kind, tries_of
from crawl.fetch.response import Response
from crawl.fetch.target import Outcome, Target, origin_of, twin_of
from crawl.fetch.waits import REASON_CHARS, asked
from frontier.politeness import PARK_MS, backoff_ms, park_ms

if TYPE_CHECKING:
    from crawl.fetch.visit import HostVisit

# Visits in a row without an answer, then the host is parked: 6 s for one that never answered, a minute
# for one that did.
MAX_FAILED_FIRST_VISITS = 3
MAX_FAILED_VISITS = 6
MAX_BUSY_VISITS = 10  # the same for 429 and 503, which are answers
BUSY_PER_URL = 3  # 429 and 503 in a row before other URLs of the host are tried, one after another
# URLs in a row that were asked for in vain, each for seconds or a minute, before the host is left alone for a while.
MAX_SILENT = 2
RETRY_FIRST_MS = 5_000
HOST_RETRY_FIRST_MS = 2_000


def host_failed(visit: "HostVisit", target: Target, response: Response) -> None:
    """The host cannot be reached: gives it back for a while, and parks it when that goes on."""
    kind = response.error or Kind.CONNECT
    origin = origin_of(target.url.fetch)
    final = kind in FINAL_HOST_KINDS
    wish = asked(response)
    if not final and not wish.ms and _goes_on_elsewhere(visit, target, response, kind, origin):
        return
    visit.failures += 1
    patience = MAX_FAILED_VISITS if visit.around.robots(origin) else MAX_FAILED_FIRST_VISITS
    parked = final or visit.failures >= patience
    outcome = Outcome(target, response, kind, response.detail) if parked else None
    reason = f"{kind}: {response.detail}" + (f", {wish.text}" if wish.ms else "")
    park = (park_ms(visit.failures - patience) if not final else PARK_MS[-1]) if parked else 0
    _pause(visit, target, outcome, reason, wish.ms or backoff_ms(visit.failures, HOST_RETRY_FIRST_MS), park, wish.ms)


def _goes_on_elsewhere(visit: "HostVisit", target: Target, response: Response, kind: Kind, origin: str) -> bool:
    """http and https of a name are one host, and one of them may be dead while the other answers.

    Then the URLs of the dead one are set aside: failed, with another try later, when the other is
    known to answer; else they keep their places behind this visit.
    """
    dead = [target, *(other for other in visit.targets if origin_of(other.url.fetch) == origin)]
    rest = [other for other in visit.targets if origin_of(other.url.fetch) != origin]
    alive = visit.around.robots(twin_of(origin)) is not None
    if not (rest or alive):
        return False
    visit.targets = deque(rest)
    for one in dead if alive else ():
        outcome = Outcome(one, response if one is target else None, kind, response.detail)
        retry_later(outcome)
        visit.around.record(visit, outcome)
    visit.around.loop.submit(visit.proceed)
    return True


def busy(visit: "HostVisit", target: Target, response: Response) -> None:
    """The host asks for a pause (429, 503), and gets it as a whole.

    A URL that meets this BUSY_PER_URL times in a row is set aside, since it may be the only one: the next visit
    begins with another, and so on while they meet the same.
    """
    visit.failures += 1
    parked = visit.failures >= MAX_BUSY_VISITS
    wish = asked(response)
    reason = f"HTTP {response.status}" + (f", {wish.text}" if wish.ms else "")
    outcome = None
    if parked or visit.failures >= BUSY_PER_URL:
        outcome = Outcome(target, response, Kind.OVERLOADED, reason)
        retry_later(outcome)
    park = park_ms(visit.failures - MAX_BUSY_VISITS) if parked else 0
    _pause(visit, target, outcome, reason, wish.ms or backoff_ms(visit.failures), park, wish.ms)


def silent(visit: "HostVisit", outcome: Outcome) -> bool:
    """Several URLs in a row were asked for in vain, or all that the visit had time for: each held a place for long,
    so the host is given back for a while, and parked when that goes on. False: the visit goes on."""
    if visit.silent_in_row < MAX_SILENT and (visit.answered or not visit.is_over()):
        return False
    visit.failures += 1
    park = park_ms(visit.failures - MAX_FAILED_VISITS) if visit.failures >= MAX_FAILED_VISITS else 0
    reason = f"{outcome.error}: URLs one after another got no answer"
    _pause(visit, outcome.target, outcome, reason, backoff_ms(visit.failures), park)
    return True


def retry_later(outcome: Outcome) -> None:
    """Plans another try of a URL, if it has not had them all."""
    failures = outcome.target.known.failures if outcome.target.known else 0
    if failures < tries_of(outcome.error):
        outcome.retry_at = int(time.time() * 1000) + backoff_ms(failures + 1, RETRY_FIRST_MS)


def _pause(
    visit: "HostVisit",
    target: Target,
    outcome: Outcome | None,
    reason: str,
    wait_ms: int,
    parked_ms: int,
    asked_ms: int = 0,
) -> None:
    """Ends the visit with a wait. Without an outcome the URL keeps its place.

    A parked host has its clock set by what it asked for and by nothing else: a new start of a campaign does not wait
    for the end of its parking, but for that.
    """
    now = time.time()
    visit.reason = reason[:REASON_CHARS]
    if parked_ms:
        visit.parked = True
        visit.due_at = max(visit.due_at, now + asked_ms / 1000)
        visit.parked_until = max(visit.due_at, now + parked_ms / 1000)
    else:
        visit.due_at = max(visit.due_at, now + wait_ms / 1000)
        if not asked_ms:
            log_pause(visit, now, now + wait_ms / 1000)
    if outcome:
        visit.around.record(visit, outcome)
    else:
        visit.targets.appendleft(target)
    visit.end()
