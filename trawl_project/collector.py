"""The garbage collector, for processes that make millions of short-lived objects."""

import atexit
import gc


def relax() -> None:
    """Lets the collector look less often, and never at what a started process consists of.

    A page's links are hundreds of tuples that live for a second. As Python sets it, the collector looks at all of them
    and at everything else so often that it takes a third of the time of canonicalisation and admission (2.4 of
    9.8 s for 1.8M links; 0.3 s with these numbers). Cycles are still found, a little later.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # else what is left at the end counts as leaked, and nanobind prints a page about it
    look_less_often()


def look_less_often() -> None:
    """For a process that is starting: what it loads is there to stay."""
    gc.set_threshold(50_000, 20, 50)
