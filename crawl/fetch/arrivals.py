"""What an arrival log is told of a visit: each request with the delays that were known when it was sent."""

from typing import TYPE_CHECKING, NamedTuple

from crawl.fetch.dial import NOT_SENT
from crawl.fetch.errors import Kind
from crawl.fetch.response import Response, retry_after_seconds
from crawl.fetch.waits import MAX_RETRY_AFTER_SECONDS, adapts, crawl_delay_ms, own_ms
from crawl.store.arrivals import PAGE, PAUSE, ROBOTS, UNSENT, Arrival

if TYPE_CHECKING:
    from crawl.fetch.visit import HostVisit

_NEVER_SENT = NOT_SENT | {Kind.DNS, Kind.BLOCKED_ADDRESS}


class Asking(NamedTuple):
    """What a visit is asking for, and of which host where it is not its own: the robots.txt of one may lie on
    another. Then `gap_ms` is the gap that the request keeps there."""

    kind: str = PAGE
    host: str = ""
    gap_ms: int = 0


A_PAGE = Asking()


def log_request(visit: "HostVisit", response: Response) -> None:
    """Logs a request that was made, before its answer changes the visit's pace."""
    assert visit.manners
    plan, crawl_delay = visit.manners
    kind, host, gap_ms = visit.asking_for
    own, told, adaptive = own_ms(visit.lease.delay_ms, plan), crawl_delay_ms(crawl_delay), 0
    if host:
        own, told = plan.delay_ms, gap_ms if gap_ms > plan.delay_ms else 0
    elif visit.adaptive_ms > own and adapts(visit.lease.delay_ms, plan):
        adaptive = int(visit.adaptive_ms)
    unsent = response.error in _NEVER_SENT or not (response.address or visit.around.proxies)
    visit.around.log_arrival(
        plan.arrival_log,
        Arrival(
            response.started_at,
            response.arrived_at,
            response.ended_at,
            host or visit.lease.name,
            "" if visit.around.proxies else response.address,
            UNSENT if unsent else kind,
            str(response.error or response.status),
            response.started_at - visit.last_arrival if visit.last_arrival and not host else None,
            own / 1000,
            told / 1000 if told else None,
            adaptive / 1000 if adaptive else None,
            1 if host else visit.pace.burst,
            None if unsent else _asked_until(response, kind),
            response.url,
        ),
    )


def log_pause(visit: "HostVisit", now: float, until: float) -> None:
    """Logs that a host is left alone for a while though it did not say for how long."""
    if visit.manners and visit.manners[0].arrival_log:
        pause = Arrival(now, now, now, visit.lease.name, "", PAUSE, visit.reason, None, None, None, None, 1, until, "")
        visit.around.log_arrival(visit.manners[0].arrival_log, pause)


def _asked_until(response: Response, kind: str) -> float | None:
    """The end of a Retry-After, read from the answer itself."""
    if response.status not in (429, 503) and not (kind == ROBOTS and response.status >= 500):
        return None
    seconds = retry_after_seconds(response.headers.get("retry-after", ""), response.ended_at)
    return response.ended_at + min(seconds, MAX_RETRY_AFTER_SECONDS) if seconds else None
