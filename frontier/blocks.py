"""Domain blocks: what is never visited. A block covers a domain and every name below it.

A process keeps a cuckoo filter of all blocked domains (frontier/blockfilter.py) and follows the journal of changes.
What the filter takes for blocked is looked up in the database, so its false positives cost a query and never
a URL. What it does not know is surely not blocked: it holds every domain of the table, expired ones too, and
nothing is ever taken out of it. While it is being loaded, everything is looked up.

`covering` asks the database alone: exact, 4 to 12 us a host, and nothing to load. Marks on hosts are made with it
(frontier/blocking.py).
"""

import fcntl
import logging
import math
import os
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.models import Sum

from frontier.blockfilter import DamagedFilter, DomainFilter, Stamp
from frontier.models import BlockChange, DomainBlock
from frontier.sql import dialect

log = logging.getLogger(__name__)

# Rows read at a time: about 20 ms, in which the fetch loop of the process stands still.
CHUNK = 20_000
# Names in one query.
NAMES = 10_000
# Verdicts kept, about 120 bytes each.
MAX_VERDICTS = 100_000


def above(host: str) -> list[str]:
    """The domains whose block covers a host ('name' or 'name:port'): its own and each one above it."""
    name = _without_port(host)
    names = []
    while name:
        names.append(name)
        name = name.partition(".")[2]
    return names


def _all_above(hosts: Iterable[str]) -> set[str]:
    """The domains above some hosts; in half the time, since a name that was met has brought those above it."""
    names: set[str] = set()
    for host in hosts:
        name = _without_port(host) if ":" in host else host
        while name and name not in names:
            names.add(name)
            name = name.partition(".")[2]
    return names


def _without_port(host: str) -> str:
    # An IPv6 address has colons of its own, and brackets around it.
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def covering(hosts: Iterable[str], using: str = "default") -> dict[str, float]:
    """The blocked ones among some hosts, and when their last block ends (seconds since 1970, inf for never)."""
    return _confirmed({host: above(host) for host in hosts}, using)


def _confirmed(names: dict[str, list[str]], using: str) -> dict[str, float]:
    """What `covering` tells, for hosts with those domains above them that may be blocked."""
    ends: dict[str, float] = {}
    distinct = list({name for some in names.values() for name in some})
    for start in range(0, len(distinct), NAMES):
        ends |= _ends(distinct[start : start + NAMES], using)
    found = {host: max((ends.get(name, 0.0) for name in some), default=0.0) for host, some in names.items()}
    return {host: end for host, end in found.items() if end}


def _ends(names: list[str], using: str) -> dict[str, float]:
    sql = dialect(using)
    with connections[using].cursor() as cursor:
        rest = f"FROM frontier_domainblock WHERE domain IN (SELECT domain FROM {sql.rows('domain text')} wanted)"
        rows = sql.select(cursor, "domain, expires_at", rest, [sql.pack(names)])
    now = time.time()
    return {name: end for name, stored in rows if (end := _end(stored)) > now}


def _end(stored: datetime | str | None) -> float:
    """When a block ends, in seconds since 1970; SQLite keeps times as text, in UTC."""
    if stored is None:
        return math.inf
    if isinstance(stored, str):
        stored = datetime.fromisoformat(stored).replace(tzinfo=UTC)
    return stored.timestamp()


class Blocks:
    """The blocks as one process knows them; any thread may ask. `refresh` brings it up to date."""

    def __init__(self, using: str, directory: Path) -> None:
        self._using = using
        self._path = directory / f"{using}.filter"
        self._lock = threading.Lock()
        self._filter: DomainFilter | None = None  # None: everything is looked up
        self._stamp = Stamp()
        self._at: tuple[int, int] | None = None  # the change that the verdicts are of
        # When the block of a host ends, 0.0 for a host that is not blocked; of one version of the blocks.
        self._verdicts: dict[str, float] = {}
        self._loader: threading.Thread | None = None

    # --- verdicts ------------------------------------------------------------------------------------------

    def covers(self, host: str) -> bool:
        """Whether a host ('name' or 'name:port') is blocked, by itself or by a domain above it."""
        if self._verdicts.get(host) == 0.0:
            return False
        return bool(self.blocked((host,)))

    def blocked(self, hosts: Collection[str]) -> set[str]:
        """Those hosts that are blocked."""
        return set(self.ends(hosts))

    def ends(self, hosts: Collection[str]) -> dict[str, float]:
        """Those hosts that are blocked, and when their last block ends (seconds since 1970, inf for never)."""
        if self._filter is not None and not self._filter.domains:
            return {}
        # The one of this moment: verdicts by an older filter must not get among those of a newer one.
        verdicts = self._verdicts
        now = time.time()
        found: dict[str, float] = {}
        unsure = []
        for host in hosts:
            end = verdicts.get(host)
            if end is None or 0.0 < end <= now:
                unsure.append(host)
            elif end:
                found[host] = end
        if unsure:
            ends = _confirmed(self._suspected(unsure), self._using)
            if len(verdicts) + len(unsure) > MAX_VERDICTS:
                verdicts.clear()
            verdicts.update(dict.fromkeys(unsure, 0.0) | ends)
            found.update(ends)
        return found

    def _suspected(self, hosts: list[str]) -> dict[str, list[str]]:
        """Hosts with those domains above them that may be blocked."""
        known = self._filter
        if known is None:
            return {host: above(host) for host in hosts}
        suspects = set(known.suspects(_all_above(hosts)))
        if not suspects:
            return {}
        return {host: left for host in hosts if (left := [name for name in above(host) if name in suspects])}

    # --- following the changes -----------------------------------------------------------------------------

    def refresh(self) -> None:
        """Brings the verdicts up to date: one small query when nothing has changed.

        What is much to read is read by a thread of its own.
        """
        if _latest(self._using) == self._at:
            return
        with self._lock:
            latest = _latest(self._using)
            if self._loader is None:
                self._catch_up(latest)
            # Only now: whoever takes the new verdicts must find the new filter.
            self._verdicts = {}
            self._at = latest

    def wait(self) -> None:
        """Waits until nothing is being loaded."""
        if loader := self._loader:
            loader.join()

    def _catch_up(self, latest: tuple[int, int]) -> None:
        """Reads the blocks that were added since; leaves it to the loader where they are many."""
        if self._filter is None:
            self._from_file()
        if self._filter is not None and not self._follow(latest):
            self._filter = None
        if self._filter is not None:
            return
        rows = _rows(0, self._using)
        if len(rows) < CHUNK:
            self._filter, self._stamp = DomainFilter(len(rows)), Stamp()
            self._add(rows, latest)
            return
        self._loader = threading.Thread(target=self._load, name="domain-blocks", daemon=True)
        self._loader.start()

    def _follow(self, latest: tuple[int, int]) -> bool:
        """Adds what the filter lacks; False where it must be made anew."""
        at, known = self._stamp, self._filter
        journal = BlockChange.objects.using(self._using)
        if at.version and not journal.filter(version=at.version, token=at.token).exists():
            return False  # another database, or one that was put back: what was removed may be there again
        removed = at.removed + (journal.filter(version__gt=at.version).aggregate(n=Sum("removed"))["n"] or 0)
        if known is None or _is_stale(known, removed):
            return False
        rows = _rows(at.last_id, self._using)
        return len(rows) < CHUNK and self._add(rows, latest, removed)

    def _add(self, rows: list[list[Any]], latest: tuple[int, int], removed: int = 0) -> bool:
        """Adds rows to the filter; False where it is too small for them."""
        known = self._filter
        if known is None or known.domains + len(rows) > known.capacity:
            return False
        if rows:
            known.add([domain for _, domain in rows])
        self._stamp = Stamp(*latest, rows[-1][0] if rows else self._stamp.last_id, removed)
        return True

    def _from_file(self) -> None:
        if not self._path.exists():
            return
        try:
            self._filter, self._stamp = DomainFilter.load(self._path)
        except DamagedFilter as damage:
            log.warning("domain blocks: %s; reading them from the database", damage)

    # --- loading -------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Makes the filter of many blocks, or takes it from the file that another process has just written."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path.with_suffix(".lock"), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                made, stamp = self._made()
            with self._lock:
                self._filter, self._stamp = made, stamp
                # What came meanwhile, for verdicts have been given by it already.
                if not self._follow(_latest(self._using)):
                    self._filter = None
        except Exception:
            log.exception("domain blocks: the filter could not be loaded; every host is looked up")
        finally:
            with self._lock:
                self._loader = None
                self._at = None  # the next refresh looks again
            connections.close_all()

    def _made(self) -> tuple[DomainFilter, Stamp]:
        """The filter of the file, with what it lacks, or one of the whole table; the file is then as new."""
        latest = _latest(self._using)
        made, stamp = self._usable_file() or (None, Stamp())
        if made is None:
            made = DomainFilter(DomainBlock.objects.using(self._using).count())
        read, last = 0, stamp.last_id
        while rows := _rows(last, self._using):
            made.add([domain for _, domain in rows])
            read, last = read + len(rows), rows[-1][0]
        stamp = Stamp(*latest, last, stamp.removed)
        if read >= CHUNK:
            try:
                made.save(self._path, stamp)
            except OSError as error:
                log.warning(
                    "domain blocks: %s cannot be written, so the next start reads them all: %s", self._path, error
                )
        return made, stamp

    def _usable_file(self) -> tuple[DomainFilter, Stamp] | None:
        with suppress(DamagedFilter):
            found, stamp = DomainFilter.load(self._path)
            journal = BlockChange.objects.using(self._using)
            since = journal.filter(version__gt=stamp.version).aggregate(added=Sum("added"), removed=Sum("removed"))
            removed = stamp.removed + (since["removed"] or 0)
            known = journal.filter(version=stamp.version, token=stamp.token).exists()
            if known and not _is_stale(found, removed) and found.domains + (since["added"] or 0) <= found.capacity:
                return found, replace(stamp, removed=removed)
        return None


def _is_stale(known: DomainFilter, removed: int) -> bool:
    """Whether so much of a filter was removed from the table that the look-ups for it are worth making it anew."""
    return removed > max(CHUNK, known.domains // 4)


def _latest(using: str) -> tuple[int, int]:
    """The last change: version and token."""
    rows = BlockChange.objects.using(using).order_by("-version").values_list("version", "token")
    return rows.first() or (0, 0)


def _rows(after: int, using: str) -> list[list[Any]]:
    """[id, domain] of the next CHUNK blocks by id."""
    with connections[using].cursor() as cursor:
        found: list[list[Any]] = dialect(using).select(
            cursor, "id, domain", "FROM frontier_domainblock WHERE id > %s ORDER BY id LIMIT %s", [after, CHUNK]
        )
    return found


@lru_cache(maxsize=8)
def _blocks(using: str, directory: str, process: int) -> Blocks:
    return Blocks(using, Path(directory))


def in_force(using: str = "default") -> Blocks:
    """The blocks of this process, up to date."""
    # By process: the threads that a Blocks owns do not survive a fork.
    blocks = _blocks(using, str(Path(settings.DATA_DIR) / "blocks"), os.getpid())
    blocks.refresh()
    return blocks
