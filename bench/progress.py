"""Lines on standard error that tell how far a benchmark is."""

import sys
import time

SECONDS = 0.5 if sys.stderr.isatty() else 20.0
WIDTH = 78


class Progress:
    """A line now and then; on a terminal each takes the place of the one before."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._next = 0.0

    def say(self, text: str) -> None:
        """Tells the text, unless something was told just before."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS
            tty = sys.stderr.isatty()
            line = f"{self._label}: {text}"
            print(f"\r{line:<{WIDTH}}" if tty else line, end="" if tty else "\n", file=sys.stderr, flush=True)


def clear() -> None:
    """Makes room on a terminal for what comes next."""
    if sys.stderr.isatty():
        print(f"\r{'':<{WIDTH}}\r", end="", file=sys.stderr)
