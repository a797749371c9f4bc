"""The C allocator, for processes with many threads."""

import ctypes

_M_ARENA_MAX = -8  # mallopt(3), glibc
ARENAS = 2


def share_arenas() -> None:
    """Lets all threads allocate from few arenas. Called before the threads are started.

    glibc gives nearly each thread an arena of its own, 8 a core, and each keeps what its busiest moment took, since
    tasks run now on one thread and now on another. The interpreter lets one thread run at a time, so they gain
    nothing by it. Other C libraries have no such arenas.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS)
