"""Which fetch queue a host belongs to, by rendezvous hashing: few hosts move when the number changes."""

from functools import lru_cache

from xxhash import xxh3_64_intdigest


@lru_cache(maxsize=65536)
def queue_of(host: int, queues: int) -> int:
    """The number (0 ... queues - 1) of the fetch queue that a host id always goes to."""
    if queues == 1:
        return 0
    return max(range(queues), key=lambda number: xxh3_64_intdigest(b"%d:%d" % (host, number)))
