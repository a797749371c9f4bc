"""Judging how hosts were treated: the gaps that were kept against the gaps that were due.

What was due is reckoned here from the delays that were known when a request was sent, and from what earlier answers
asked for. What the fetch loop took for due is not looked at, since that is what is to be judged.
"""

from typing import NamedTuple

from crawl.store.arrivals import PAUSE, UNSENT, Arrival

OWN, CRAWL_DELAY, ADAPTIVE, RETRY_AFTER, BACK_OFF, BURST = (
    "own delay",
    "Crawl-delay",
    "adaptive",
    "Retry-After",
    "back-off",
    "burst",
)


class Gap(NamedTuple):
    """Between the latest that a request may have arrived and the soonest that the next one may have: seconds that
    were kept and that were due, and what made them so many. `due` is 0 where a burst still allowed the request."""

    kept: float
    due: float
    cause: str
    after: str
    """The URL before; empty after a pause without one."""
    one: Arrival

    @property
    def ratio(self) -> float | None:
        """Kept against due; None where nothing was due."""
        return self.kept / self.due if self.due > 0 else None

    def is_kept(self, tolerance: float) -> bool:
        """Whether it was long enough."""
        return self.due <= 0 or self.kept >= self.due - tolerance


class HostJudge:
    """Measures the gaps of one host. `take` its lines in the order in which its requests were begun."""

    def __init__(self) -> None:
        self._since: float | None = None  # the last arrival, or a pause before any
        self._arrived = False
        self._url = ""
        self._until, self._why = 0.0, ""
        # A bucket of as many tokens as a burst has requests, and one more every delay.
        self._tokens = 0.0
        self._delay = 0.0

    def take(self, one: Arrival) -> Gap | None:
        """The gap before a request; None for the first, and for what is no request."""
        if one.kind == UNSENT:
            return None
        if one.kind == PAUSE:
            self._since = one.begun if self._since is None else self._since
            self._wait_until(one.until, BACK_OFF)
            return None
        gap = self._gap(one, self._since) if self._since is not None else None
        self._arrive(one)
        return gap

    def _gap(self, one: Arrival, since: float) -> Gap:
        due, cause = 0.0, BURST
        if self._arrived:
            delay, burst, cause = _pace(one)
            left = min(self._tokens, burst - 1)
            if burst > 1:
                # A delay that was made longer holds for credit that is earned from now on.
                delay = min(delay, self._delay)
            due = (1 - left) * delay
            if left >= 1:
                cause = BURST
        if self._until - since > due:
            due, cause = self._until - since, self._why
        return Gap(one.begun - since, max(due, 0.0), cause, self._url, one)

    def _arrive(self, one: Arrival) -> None:
        delay, burst, _ = _pace(one)
        arrived = max(one.arrived, one.begun)
        if self._until:
            tokens = 1.0  # a pause leaves one request and no burst
        elif self._since is None or not delay:
            tokens = float(burst)
        else:
            tokens = min(burst, min(self._tokens, burst - 1) + (arrived - self._since) / delay)
        self._tokens, self._delay = max(tokens - 1, 0.0), delay
        self._since = arrived if self._since is None else max(arrived, self._since)
        self._arrived, self._url = True, one.url
        if one.begun >= self._until:
            self._until = 0.0
        self._wait_until(one.until, RETRY_AFTER)

    def _wait_until(self, until: float | None, why: str) -> None:
        if until is not None and until > self._until:
            self._until, self._why = until, why


def _pace(one: Arrival) -> tuple[float, int, str]:
    """The delay (seconds) and the burst that held when a request was sent, and what set the delay."""
    delays = ((one.delay, OWN), (one.crawl_delay, CRAWL_DELAY), (one.adaptive, ADAPTIVE))
    delay, cause = max(((delay or 0.0, cause) for delay, cause in delays), key=lambda known: known[0])
    return delay, 1 if one.crawl_delay or one.adaptive else one.burst, cause


class HostConduct(NamedTuple):
    """How one host was treated."""

    host: str
    requests: int
    tightest: Gap | None
    """The smallest against what was due, else the smallest; None with a single request."""
    too_small: int


def tighter(one: Gap | None, other: Gap | None) -> Gap | None:
    """The gap with the smaller ratio; one without goes behind those with, and then the smaller one goes first."""
    if one is None or other is None:
        return one or other
    return one if tightness(one) <= tightness(other) else other


def tightness(gap: Gap) -> tuple[bool, float]:
    """What gaps are ordered by, the tightest first."""
    return (gap.ratio is None, gap.kept if gap.ratio is None else gap.ratio)
