"""How long and how large a request may become."""

from dataclasses import dataclass

MAX_HEADER_BYTES = 256 * 1024  # as Chromium
# A request may wait in the server's queue for a while after we sent it; its arrival is reckoned this
# much later unless the answer proves that it came sooner. With 0.02 a server on a loaded machine saw
# gaps that were 50 ms too short.
ARRIVAL_SLACK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Limits:
    """The time of a request, in seconds. Fewer than `slowest_bytes_per_second` over `slow_seconds` is a server that
    holds us on purpose."""

    connect_seconds: int = 15
    total_seconds: int = 60
    slow_seconds: int = 20
    slowest_bytes_per_second: int = 64
