"""How far a long piece of work is, in bytes: told by the work, shown by the command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn


class Steps:
    """Is told of the steps. This one shows nothing."""

    def begin(self, what: str, total: int) -> Callable[[int], None]:
        """Begins a step of `total` bytes; the function returned is to be told how many more are done."""
        return lambda done: None


class _Bars(Steps):
    """A bar for each step."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def begin(self, what: str, total: int) -> Callable[[int], None]:
        task = self._progress.add_task(what, total=total)
        return lambda done: self._progress.advance(task, done)


@contextmanager
def bars(is_terminal: bool) -> Iterator[Steps]:
    """Steps as bars on standard error, if that is a terminal."""
    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not is_terminal) as progress:
        yield _Bars(progress)
