"""Why a host waits and for how long. The reasons are stored on the host's row and shown as they stand here.

docs/manners.md lists them for people.
"""

import time
from typing import NamedTuple

from crawl.fetch.response import Response, retry_after_seconds
from crawl.plan import Plan
from frontier.politeness import Pace

REASON_CHARS = 120
# A Retry-After beyond a day is shortened to a day: by then the campaign looks again.
MAX_RETRY_AFTER_SECONDS = 86_400
# A server counts from when it is done with its answer, which may be after we had it: by 1 ms on a busy machine.
RETRY_AFTER_SLACK_SECONDS = 0.25
MAX_CRAWL_DELAY_SECONDS = 10_000_000  # what fits the column, four months

ANSWERS_SLOWLY = "answers slowly"
SERVER_ERRORS = "server errors one after another"
BLOCKED = "blocked"

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


class Asked(NamedTuple):
    """The wait (ms) that a host has asked for, 0 when it asked for none, and how people are told ('' for none)."""

    ms: int
    text: str


NOTHING = Asked(0, "")


def asked(response: Response) -> Asked:
    """What a Retry-After asks for, shortened to a day; then the text says so."""
    seconds = retry_after_seconds(response.headers.get("retry-after", ""), time.time())
    if not seconds:
        return NOTHING
    text = f"asked to wait {spoken(seconds)}"
    if seconds > MAX_RETRY_AFTER_SECONDS:
        text += f", shortened to {spoken(MAX_RETRY_AFTER_SECONDS)}"
    return Asked(int((min(seconds, MAX_RETRY_AFTER_SECONDS) + RETRY_AFTER_SLACK_SECONDS) * 1000), text)


def spoken(seconds: float) -> str:
    """Seconds in the largest unit of which there are two, or exactly one: 90 s, 2.5 hours, 1 day."""
    for size, unit in _UNITS:
        if seconds == size:
            return f"1 {unit}"
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):,g} {unit}s"
    return f"{seconds:.0f} s"


def own_ms(host_ms: int | None, plan: Plan) -> int:
    """The delay (ms) that the operator set for a host, or else for the campaign."""
    return plan.delay_ms if host_ms is None else host_ms


def crawl_delay_ms(seconds: float | None) -> int:
    """A Crawl-delay (seconds) in milliseconds, as far as they fit the column."""
    return int(min(seconds or 0, MAX_CRAWL_DELAY_SECONDS) * 1000)


def adapts(host_ms: int | None, plan: Plan) -> bool:
    """Whether a host's pace follows how it answers. A delay of 0 is for one's own servers, and means what it says."""
    return plan.adaptive and own_ms(host_ms, plan) > 0


def pace_of(host_ms: int | None, plan: Plan, crawl_delay: float | None, adaptive_ms: float = 0) -> Pace:
    """The pace of a host: what the operator set for it or else for the campaign, but never faster than the host's
    own Crawl-delay (seconds) and than the delay that follows from its answers.

    Only a host of which nothing but the campaign says a delay gets bursts.
    """
    own, told = own_ms(host_ms, plan), crawl_delay_ms(crawl_delay)
    slow = int(adaptive_ms) if adaptive_ms > own and adapts(host_ms, plan) else 0
    return Pace(max(own, told, slow), 1 if told or slow or host_ms is not None else plan.burst)


def why_so_slow(host_ms: int | None, plan: Plan, crawl_delay: float | None, pace: Pace, failing: bool) -> str:
    """The reason for a pace that is slower than what the operator set; '' when it is not.

    The adaptive delay is told without its value, which changes with every answer: the gap beside it is shown.
    """
    if pace.delay <= own_ms(host_ms, plan):
        return ""
    if pace.delay == crawl_delay_ms(crawl_delay):
        return f"Crawl-delay of {pace.delay / 1000:g} s"
    return SERVER_ERRORS if failing else ANSWERS_SLOWLY
