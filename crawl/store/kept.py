"""Which bodies are still kept: the WARC files that the database names and that are on this machine's disk."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from crawl.models import WarcFile

CHECK_SECONDS = 10.0


class Payload(NamedTuple):
    """The WARC record that holds a body: the row id of its file, and its WARC-Date in ms since 1970."""

    warc: int
    at: int


class KeptFiles:
    """Looks at the disk, for each file every CHECK_SECONDS at most. Any thread may ask."""

    def __init__(self) -> None:
        self._looked: dict[int, tuple[float, bool]] = {}  # when (time.monotonic()), and whether it was there

    def there(self, warcs: Iterable[int]) -> set[int]:
        """Those of the files (row ids) that are on the disk, with all that is committed of them."""
        asked, now = set(warcs), time.monotonic()
        due = [warc for warc in asked if warc not in self._looked or self._looked[warc][0] + CHECK_SECONDS < now]
        if due:
            rows = WarcFile.objects.filter(id__in=due).values_list("id", "directory", "name", "bytes")
            found = {warc for warc, directory, name, size in rows if _holds(Path(directory, name), size)}
            for warc in due:
                self._looked[warc] = now, warc in found
        return {warc for warc in asked if self._looked[warc][1]}


def _holds(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size >= size
    except OSError:
        return False


kept_files = KeptFiles()
