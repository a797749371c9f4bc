"""The seen index: which URL keys and which host names are known, exactly.

Two sets of sorted runs under one directory: `url` holds (queue id, hash) of every known URL,
`name` maps (campaign, host name) to a queue id and (0, host name) to a host id. Both are derived
from the database and are rebuilt from it when a file is missing. Order of publishing, so that a
crash at any point loses nothing and admits nothing twice:

1. `prepare` writes and syncs new run files; nothing refers to them yet;
2. the caller's transaction stores the queue rows *and* the manifest rows (`record`);
3. after its commit, `publish` puts the new runs in use and deletes the files they replaced.
"""

import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from frontier.models import SeenRun
from frontier.seen import runs
from frontier.seen.filters import Sieve
from frontier.seen.runs import U64, Mask, Run

log = logging.getLogger(__name__)

URL, NAME = "url", "name"


@dataclass(slots=True)
class Growth:
    """A new run that is on disk but not yet in use, and the files it will replace."""

    kind: str
    file: str
    size: int
    replaces: list[str]
    fresh: Run
    """Its keys that are in none of the files it replaces."""


class SeenIndex:
    """The runs of one data directory. One process at a time may grow it: the holder of the merge lock.

    `sieve`: asked first which URL keys are surely new; it spares look-ups and decides nothing else.
    """

    def __init__(self, directory: Path, using: str = "default", sieve: Sieve | None = None) -> None:
        self.directory = directory
        self.using = using
        self._sieve = sieve
        self._runs: dict[str, dict[str, Run]] = {URL: {}, NAME: {}}
        directory.mkdir(parents=True, exist_ok=True)
        self.store = self._store_name()

    def _store_name(self) -> str:
        """The name of this directory, by which the manifest tells whose files it lists."""
        path = self.directory / "store"
        if not path.exists():
            path.write_text(secrets.token_hex(16))
        return path.read_text().strip()

    def refresh(self, verify: bool = True) -> None:
        """Brings the mapped runs in line with the manifest. Raises DamagedRun when a file is not whole, or, to
        `verify`, does not hold what was written."""
        listed = SeenRun.objects.using(self.using).order_by("-entries", "id")
        rows = list(listed.values_list("kind", "file", "entries", "store"))
        if any(store != self.store for *_, store in rows):
            raise runs.DamagedRun("the seen index was written in another data directory")
        for kind in (URL, NAME):
            known = self._runs[kind]
            self._runs[kind] = {
                file: known.get(file) or self._load(file, entries, verify) for k, file, entries, _ in rows if k == kind
            }

    def _load(self, file: str, entries: int, verify: bool = True) -> Run:
        run = runs.load(self.directory / file, verify)
        if len(run) != entries:
            raise runs.DamagedRun(f"{file}: {len(run)} keys, the manifest says {entries}")
        return run

    def sweep(self) -> None:
        """Deletes files, whole and half-written, of merges that a crash kept from being committed.

        Only for the holder of the merge lock.
        """
        listed = {file for held in self._runs.values() for file in held}
        for pattern in ("*.run", "*.tmp"):
            for path in self.directory.glob(pattern):
                if path.name not in listed:
                    path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return sum(map(len, self._runs[URL].values()))

    def known(self, high: U64, low: U64) -> Mask:
        """Which URL keys are known; the keys are sorted by their high half."""
        if self._sieve is None:
            return self._look_up(high, low)
        self._sieve.follow(self._runs[URL])
        found = np.zeros(len(high), bool)
        asked = self._sieve.suspects(high, low)
        found[asked] = self._look_up(high[asked], low[asked])
        return found

    def _look_up(self, high: U64, low: U64) -> Mask:
        found = np.zeros(len(high), bool)
        for run in self._runs[URL].values():
            for start in range(0, len(high), runs.CHUNK):
                part = slice(start, start + runs.CHUNK)
                found[part] |= runs.member(run, high[part], low[part])[0]
                run.let_go()
        return found

    def ids(self, high: U64, low: U64) -> U64:
        """The ids of host-name keys (sorted by their high half); 0 for an unknown one."""
        values = np.zeros(len(high), np.uint64)
        for run in self._runs[NAME].values():
            found, where = runs.member(run, high, low)
            values[found] = run.value[where[found]]
            run.let_go()
        return values

    def prepare(self, kind: str, run: Run) -> Growth | None:
        """Writes keys that are not in the index yet to a durable file, merged with as many smaller runs as fit."""
        if not len(run):
            return None
        by_size = sorted(self._runs[kind].items(), key=lambda item: len(item[1]))
        replaced: list[str] = []
        size = len(run)
        for file, other in by_size:
            if len(other) >= runs.FAN * size:
                break
            replaced.append(file)
            size += len(other)
        chunks = self._chunks(run, [self._runs[kind][file] for file in replaced])
        file = f"{kind}-{secrets.token_hex(8)}.run"
        runs.write(self.directory / file, size, chunks, with_values=kind == NAME)
        return Growth(kind, file, size, replaced, run)

    @staticmethod
    def _chunks(run: Run, others: list[Run]) -> Iterator[Run]:
        """The union of a run and some larger ones; only the last step may be too large for memory."""
        *small, last = [run, *others]
        if not small:
            return iter([run])
        total = small[0]
        for other in small[1:]:
            total = runs.joined(runs.merged(other, total))
        return runs.merged(last, total)

    def record(self, growths: list[Growth]) -> None:
        """The manifest rows, to be written in the transaction that stores what the keys stand for."""
        manifest = SeenRun.objects.using(self.using)
        for growth in growths:
            manifest.filter(file__in=growth.replaces).delete()
            manifest.create(kind=growth.kind, file=growth.file, entries=growth.size, store=self.store)

    def publish(self, growths: list[Growth]) -> None:
        """Puts committed runs in use and deletes what they replaced."""
        for growth in growths:
            held = self._runs[growth.kind]
            for file in growth.replaces:
                del held[file]
            held[growth.file] = self._load(growth.file, growth.size, verify=False)
            if self._sieve is not None and growth.kind == URL:
                self._sieve.extend(growth.fresh, growth.file, growth.replaces)
            for file in growth.replaces:
                (self.directory / file).unlink(missing_ok=True)

    def discard(self, growths: list[Growth]) -> None:
        """Deletes prepared files whose transaction failed."""
        for growth in growths:
            (self.directory / growth.file).unlink(missing_ok=True)

    def clear(self) -> None:
        """Forgets everything, before a rebuild."""
        self._runs = {URL: {}, NAME: {}}

    def grow(self, kind: str, run: Run) -> None:
        """Adds keys without telling the manifest; `record_all` does that for a whole rebuild."""
        growth = self.prepare(kind, run)
        if growth:
            self.publish([growth])

    def record_all(self) -> None:
        """Makes the manifest list exactly the runs in use, in the caller's transaction."""
        manifest = SeenRun.objects.using(self.using)
        manifest.all().delete()
        for kind, held in self._runs.items():
            for file, run in held.items():
                manifest.create(kind=kind, file=file, entries=len(run), store=self.store)
