"""Sorting more lines than memory should hold: sorted pieces in temporary files, merged as they are read."""

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path

PIECE_LINES = 100_000


class Sorter:
    """Takes lines (without an end of line in them), and gives them back sorted. Its files lie in a folder that the
    caller makes and removes; without so many lines it needs none."""

    def __init__(self, folder: Path, name: str, piece_lines: int = PIECE_LINES) -> None:
        self._folder, self._name, self._most = folder, name, piece_lines
        self._lines: list[str] = []
        self._pieces: list[Path] = []

    def add(self, line: str) -> None:
        """Takes a line. Raises OSError when there is no room for a piece."""
        self._lines.append(line)
        if len(self._lines) >= self._most:
            self._put_down()

    def _put_down(self) -> None:
        self._lines.sort()
        path = self._folder / f"{self._name}-{len(self._pieces)}"
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in self._lines)
        self._pieces.append(path)
        self._lines = []

    def sorted(self) -> Iterator[str]:
        """The lines in their order. Raises OSError."""
        self._lines.sort()
        if not self._pieces:
            return iter(self._lines)
        pieces: list[Iterable[str]] = [_read(path) for path in self._pieces]
        return heapq.merge(*pieces, self._lines)


def _read(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line[:-1]
