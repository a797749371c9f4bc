"""Puts a snapshot back: files into the data directory, and on PostgreSQL tables into the database.

All files are first made ready in a folder `restoring` beside their final place; a SQLite database is migrated
and mended there. Then they are renamed into place, and what was there before into a folder `replaced-TIME`.
On PostgreSQL the rest is one transaction, see crawl/restore_postgresql.py. So whatever fails on the way, the
old data is where it was; what a kill between the renames left is undone by the next restore, see crawl/renames.py.

The snapshot is only read: databases are copied, and the files that are linked to are never changed.
"""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connections, transaction
from django.db.migrations.loader import MigrationLoader

from crawl import restore_postgresql
from crawl.local import ALIVE_MS, is_alive
from crawl.models import Campaign, WarcFile, Worker
from crawl.progress import size as said
from crawl.renames import Renames, all_or_none, carry_out, relative, settle, unfinished
from crawl.snapshot import SPARE_BYTES, Manifest, SnapshotError, read_manifest, verify
from crawl.steps import Steps
from frontier.claim import free_all_leases
from frontier.models import SeenRun
from frontier.politeness import now_ms
from frontier.router import inbox_alias
from frontier.seen.index import SeenIndex
from frontier.snapshot import Progress, database_files, put, sync_file, sync_tree
from trawl_project.databases import migrate, plain_connection

STAGING = "restoring"
# What SQLite keeps beside a database; a WAL of the old file would be played into the new one.
BESIDE = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back."""

    manifest: Manifest
    campaigns: list[tuple[str, str]]
    """Name and status of those that are not finished, or of all when all are."""
    warc_missing: int
    """WARC files that pages point to and that are neither in the snapshot nor where they were."""
    aside: list[str]
    """The folders and the schema with the old data."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder to be renamed into `base/name`."""

    base: Path
    name: str
    source: str
    """What it is in the snapshot."""
    alias: str = ""
    """The database whose file it is."""

    @property
    def final(self) -> Path:
        return self.base / self.name

    @property
    def staged(self) -> Path:
        return self.base / STAGING / self.name

    def old(self) -> list[Path]:
        """What is there now."""
        if not self.alias:
            return [self.final] if self.final.is_dir() and any(self.final.iterdir()) else []
        paths = [self.final.with_name(self.final.name + ending) for ending in BESIDE]
        return [path for path in paths if path.exists()]


def readable(directory: Path, using: str = "default") -> Manifest:
    """What is in a snapshot. Raises SnapshotError when this installation cannot read it."""
    manifest = read_manifest(directory)
    _check_kind(directory, manifest, using)
    return manifest


def settle_unfinished(using: str = "default") -> tuple[Renames, bool] | None:
    """Undoes a restore that was cut short, if there is one, or finds it whole; the caller holds the DataLock.

    Returns it, and whether it was whole.
    """
    data = Path(settings.DATA_DIR)
    renames = unfinished(data)
    return None if renames is None else (renames, settle(data, renames, _is_committed(using)))


def restore(
    directory: Path, manifest: Manifest, *, replace: bool = False, using: str = "default", steps: Steps | None = None
) -> Restored:
    """Puts a snapshot back, with what `readable` said of it; the caller holds the DataLock.

    Raises SnapshotError, OSError and database errors; then all is as it was.
    """
    steps = steps or Steps()
    places = _places(using)
    _check_target(places, replace, using)
    _check_space(directory, places, manifest)
    verify(directory, manifest, steps.begin("checking", manifest.bytes))
    with _staged(places):
        _stage(directory, places, manifest, steps)
        data = Path(settings.DATA_DIR)
        renames = Renames(
            snapshot=str(directory),
            replace=replace,
            aside=f"replaced-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}",
            folders=sorted({relative(place.base, data) for place in places}),
            staging=STAGING,
        )
        if manifest.database == "sqlite":
            return _restore_sqlite(directory, manifest, places, renames, using)
        return _restore_postgresql(directory, manifest, places, renames, using, steps)


# --- before ---------------------------------------------------------------------------------------------


def _places(using: str) -> list[Place]:
    """The main database file comes last: until it is there, nothing takes the rest for a crawl."""
    data = Path(settings.DATA_DIR)
    places = [Place(data, f"seen/{using}", "seen"), Place(data, "warc", "warc")]
    if connections[using].vendor == "sqlite":
        aliases = dict.fromkeys((using, inbox_alias(using)))
        files = [
            Place(file.parent, file.name, f"database/{name}", alias)
            for alias, (name, file) in zip(aliases, database_files(using).items(), strict=True)
        ]
        places += reversed(files)
    return places


def _check_kind(directory: Path, manifest: Manifest, using: str) -> None:
    """Refuses what this installation cannot read."""
    names = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
    here = connections[using].vendor
    if manifest.database != here:
        raise SnapshotError(
            f"{directory} was taken from {names.get(manifest.database, manifest.database)} and goes back into no"
            f" other database, but this trawl uses {names[here]}; DATABASE_URL says which"
        )
    known = MigrationLoader(None).disk_migrations
    unknown = [name for name in manifest.migrations if tuple(name.split(".", 1)) not in known]
    if unknown:
        raise SnapshotError(
            f"{directory} was taken by trawl {manifest.trawl}, whose tables this one does not know"
            f" ({', '.join(unknown[:3])}); update trawl first"
        )


def _check_target(places: list[Place], replace: bool, using: str) -> None:
    """Refuses while somebody crawls here, and to put something aside that was not said to be replaced."""
    workers = _live_workers(places, using)
    if workers:
        raise SnapshotError(f"a worker crawls here ({workers[0]}); stop it first")
    there = [str(path) for place in places for path in place.old()[:1]]
    if connections[using].vendor == "postgresql":
        there += restore_postgresql.held(using)
    if there and not replace:
        raise SnapshotError(f"there is data already ({there[-1]}); --replace puts it aside")


def _live_workers(places: list[Place], using: str) -> list[str]:
    """Workers on the database that is there now; none where it cannot be read, for that is a reason to restore."""
    if any(place.alias == using and not place.final.exists() for place in places):
        return []
    machine = socket.gethostname()
    try:
        with plain_connection(using) as connection, connection.cursor() as cursor:
            if Worker._meta.db_table not in connection.introspection.table_names(cursor):
                return []
            cursor.execute(
                f"SELECT name FROM {Worker._meta.db_table} WHERE seen_at > %s ORDER BY seen_at DESC",
                [now_ms() - ALIVE_MS],
            )
            names = [name for (name,) in cursor.fetchall()]
    except DatabaseError:
        if connections[using].vendor == "postgresql":
            raise
        return []
    return [name for name in names if name.rpartition("-")[0] != machine or is_alive(int(name.rpartition("-")[2]))]


def _check_space(directory: Path, places: list[Place], manifest: Manifest) -> None:
    """Raises SnapshotError when what must be copied will not fit: the database; where there can be no links, all."""
    base = places[-1].base
    has_links = os.stat(directory).st_dev == os.stat(base).st_dev
    needed = sum(
        entry["bytes"] for name, entry in manifest.files.items() if not has_links or name.startswith("database/")
    )
    free = shutil.disk_usage(base).free
    if free < needed + SPARE_BYTES:
        raise SnapshotError(f"it takes {said(needed)} and {said(free)} are free at {base}; free some space")


# --- files ------------------------------------------------------------------------------------------------


@contextmanager
def _staged(places: list[Place]) -> Iterator[None]:
    """Folders to make things ready in, gone afterwards; also those that a kill left."""
    folders = sorted({place.base / STAGING for place in places})
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    try:
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def _stage(directory: Path, places: list[Place], manifest: Manifest, steps: Steps) -> None:
    """Brings the files of the snapshot beside their places, apart from the WARC files."""
    wanted: list[tuple[str, Path, bool]] = []
    for place in places:
        if place.alias:
            wanted.append((place.source, place.staged, False))
        elif place.source == "seen":
            place.staged.mkdir(parents=True)
            names = [name for name in manifest.files if name.startswith("seen/")]
            wanted += [(name, place.staged / Path(name).name, True) for name in names]
    progress = steps.begin("files", sum(manifest.files[name]["bytes"] for name, _, _ in wanted))
    for name, target, link in wanted:
        _put(directory / name, target, manifest.files[name]["bytes"], link, progress)


def _put(source: Path, target: Path, size: int, link: bool, progress: Progress) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(source, "rb") as file:
        put(file, target, size, progress, link=link)


@contextmanager
def _brought_in(places: list[Place], renames: Renames, using: str) -> Iterator[list[str]]:
    """All renames, undone after an error; gives the folders with the old. The main database is the first to go and
    the last to come."""
    data = Path(settings.DATA_DIR)
    for place in reversed(places):
        for old in place.old():
            target = place.base / renames.aside / old.relative_to(place.base)
            renames.away.append((relative(old, data), relative(target, data)))
    renames.into.extend((relative(p.staged, data), relative(p.final, data)) for p in places if p.staged.exists())
    with all_or_none(data, renames, _is_committed(using)):
        carry_out(data, renames)
        yield [str(folder) for folder in renames.kept(data)]


def _is_committed(using: str) -> Callable[[Renames], bool]:
    """Whether the database belongs to the files, once all are renamed."""
    if connections[using].vendor == "postgresql":
        return lambda renames: restore_postgresql.is_loaded(renames.aside, using)
    return lambda renames: True


# --- databases --------------------------------------------------------------------------------------------


def _restore_sqlite(directory: Path, manifest: Manifest, places: list[Place], renames: Renames, using: str) -> Restored:
    with _pointed_at_staged(places):
        for place in places:
            if place.alias:
                migrate(place.alias)
        missing = _mend(directory, manifest, places, using)
        campaigns = _unfinished(using)
    with _brought_in(places, renames, using) as kept:
        return Restored(manifest, campaigns, missing, kept)


@contextmanager
def _pointed_at_staged(places: list[Place]) -> Iterator[None]:
    """Django's connections use the staged files; afterwards these are whole without a WAL, and synced."""
    files = {place.alias: place for place in places if place.alias}
    for alias, place in files.items():
        connections[alias].close()
        connections[alias].settings_dict["NAME"] = str(place.staged)
    try:
        yield
        for alias, place in files.items():
            with connections[alias].cursor() as cursor:
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connections[alias].close()
            sync_file(place.staged)
    finally:
        for alias, place in files.items():
            connections[alias].close()
            connections[alias].settings_dict["NAME"] = str(place.final)


def _restore_postgresql(
    directory: Path, manifest: Manifest, places: list[Place], renames: Renames, using: str, steps: Steps
) -> Restored:
    progress = steps.begin(
        "database", sum((directory / f"database/{t.name}.copy").stat().st_size for t in manifest.tables)
    )
    with ExitStack() as until_committed, transaction.atomic(using=using):
        schema = restore_postgresql.load(directory / "database", manifest, renames.aside, using, progress)
        missing = _mend(directory, manifest, places, using)
        campaigns = _unfinished(using)
        kept = until_committed.enter_context(_brought_in(places, renames, using))
    restore_postgresql.analyze(manifest, using)
    return Restored(manifest, campaigns, missing, [*kept, *([f"the schema {schema}"] if schema else [])])


def _mend(directory: Path, manifest: Manifest, places: list[Place], using: str) -> int:
    """What a start does after a kill, and what is different in another data directory; returns how many WARC
    files are missing. The workers of the snapshot's crawl, alive or not, are none of this one."""
    Worker.objects.using(using).all().delete()
    free_all_leases(using)
    seen = next(place for place in places if place.source == "seen")
    if manifest.has_seen_index:  # else the rows go on naming files that are not here, so the merge rebuilds them
        SeenRun.objects.using(using).update(store=SeenIndex(seen.staged, using).store)
    warc = next(place for place in places if place.source == "warc")
    WarcFile.objects.using(using).filter(bytes=0).delete()  # opened, and nothing of it committed
    missing = 0
    for row in WarcFile.objects.using(using).iterator():
        missing += not _bring(row, directory, manifest, warc)
        # Nobody writes to it any more; and a file that stayed with the other crawl must not be cut by this one.
        row.closed = True
        row.save(update_fields=["directory", "closed"])
    sync_tree(warc.base / STAGING)
    return missing


def _bring(row: WarcFile, directory: Path, manifest: Manifest, warc: Place) -> bool:
    """Puts a WARC file into place; one that is not in the snapshot is taken from the old data, or stays where it is."""
    old = Path(row.directory) / row.name
    if row.name in manifest.warc:
        source, link = directory / manifest.warc[row.name], True
    else:
        is_there = old.exists() and old.stat().st_size >= row.bytes
        if not is_there or warc.final not in old.parents:
            return is_there
        source, link = old, old.stat().st_size == row.bytes
    folder = Path(row.directory).name
    _put(source, warc.staged / folder / row.name, row.bytes, link, lambda done: None)
    row.directory = str(warc.final / folder)
    return True


def _unfinished(using: str) -> list[tuple[str, str]]:
    rows = list(Campaign.objects.using(using).order_by("name").values_list("name", "status"))
    return [row for row in rows if row[1] != Campaign.Status.FINISHED] or rows
