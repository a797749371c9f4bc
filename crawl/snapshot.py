"""Snapshots: all that a crawl needs to go on from one moment, in a directory, taken while it runs.

    DIR/manifest.json    written last: without it the snapshot is not whole
    DIR/database/        SQLite: main.sqlite3, inbox.sqlite3; PostgreSQL: a TABLE.copy for each table
    DIR/seen/            run files of the seen index
    DIR/warc/CAMPAIGN/   WARC files

How the databases are held still: frontier/snapshot.py. A WARC file only grows, and the database says how much of it
is committed: so one that will not grow any more is linked to (or copied, where there can be no link),
and of the others that much is copied. `secret_key` stays behind: sessions of the admin hang on it, and no
crawl. So does everything in the environment.

Every file's checksum is XXH3 (128 bits), which is against damage and not against forgers: 0.1 s of CPU per GB
against 0.7 for SHA-256, so reading takes as long as the disk does.
"""

import contextlib
import json
import os
import shutil
from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import xxhash
from django.db import connections
from django.db.models import Model

from crawl.models import Campaign, Page, WarcFile
from crawl.progress import size as said
from crawl.steps import Steps
from crawl.store.warc import MAX_FILE_BYTES
from frontier.models import Host, Inbox, QueuedUrl
from frontier.snapshot import BLOCK, Moment, Progress, Table, database_files, moment, put, sync_file, sync_tree
from trawl_project.databases import plain_connection
from trawl_project.version import VERSION

FORMAT = 1
MANIFEST = "manifest.json"
# The first file of a snapshot and, under its final name, the last: it keeps a second one from writing into
# the same directory.
UNFINISHED = "manifest.json.part"
COUNTED: tuple[type[Model], ...] = (Campaign, Host, QueuedUrl, Inbox, Page)
# Left free on the disk for the WAL, which cannot start anew while a copy is made.
SPARE_BYTES = 64 << 20


class SnapshotError(Exception):
    """It cannot be taken or put back; the message says why and what can be done instead."""


@dataclass(slots=True)
class Manifest:
    """What is in a snapshot."""

    database: str
    migrations: list[str]
    """Those that were applied, as app.name."""
    counts: dict[str, int]
    """Rows by table, of those tables that people ask about."""
    tables: list[Table]
    """PostgreSQL: what the files under database/ hold."""
    has_seen_index: bool
    warc: dict[str, str]
    """Path in the snapshot by name of the WARC file."""
    warc_left_out: list[str]
    """Names of WARC files that the database knows and that are not here."""
    held_ms: float
    taken_at: str = ""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """{"bytes": n, "xxh3_128": hex} by path in the snapshot."""
    trawl: str = VERSION
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        return sum(entry["bytes"] for entry in self.files.values())


class Warc(NamedTuple):
    """A WARC file on this machine and how much of it belongs to the snapshot."""

    name: str
    path: Path
    bytes: int
    final: bool

    @property
    def place(self) -> str:
        """Its path in the snapshot."""
        return f"warc/{self.path.parent.name}/{self.name}"


def take(directory: Path, *, warc: bool = True, using: str = "default", steps: Steps | None = None) -> Manifest:
    """Takes a snapshot into a new or empty directory. Raises SnapshotError, OSError and database errors;
    then, as when it is interrupted, nothing is left in the directory."""
    steps = steps or Steps()
    check_empty(directory)
    check_database(using)
    with moment(using) as held:
        taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        there, missing = _warc_files(held)
        if not warc:
            there, missing = [], [*(file.name for file in there), *missing]
        _check_space(directory, held, there)
        with _written(directory):
            manifest = Manifest(
                database=held.kind,
                migrations=[
                    f"{app}.{name}" for app, name in held.select("SELECT app, name FROM django_migrations ORDER BY id")
                ],
                counts={},
                tables=[],
                has_seen_index=held.runs is not None,
                warc={file.name: file.place for file in there},
                warc_left_out=missing,
                held_ms=round(held.held_ms, 3),
                taken_at=taken_at,
            )
            _write(directory, held, there, manifest, steps)
            manifest.counts = {model._meta.db_table: held.count(model._meta.db_table) for model in COUNTED}
            _finish(directory, manifest, steps)
    return manifest


# --- before ---------------------------------------------------------------------------------------------


def named_directory(text: str) -> Path:
    """A directory from the command line, absolute. Raises ArgumentTypeError for an empty name."""
    if not text:
        raise ArgumentTypeError("the name of the directory is empty")
    return Path(text).absolute()


def check_empty(directory: Path) -> None:
    """Refuses a directory with something in it."""
    if directory.exists() and not directory.is_dir():
        raise SnapshotError(f"{directory} is not a directory")
    if (directory / UNFINISHED).exists():
        raise SnapshotError(
            f"{directory} holds a snapshot that was not finished, or that is being taken now; "
            "delete it, or name another directory"
        )
    if directory.exists() and any(directory.iterdir()):
        raise SnapshotError(f"{directory} is not empty; a snapshot needs a new directory")


def check_database(using: str) -> None:
    """Refuses to take nothing."""
    if connections[using].vendor == "sqlite":
        for path in database_files(using).values():
            if not path.exists():
                raise SnapshotError(f"there is no crawl here: there is no {path}; name another folder with --data DIR")
    with plain_connection(using) as own, own.cursor() as cursor:
        if WarcFile._meta.db_table not in own.introspection.table_names(cursor):
            raise SnapshotError("there is no crawl here: the database has no tables of trawl")


def _check_space(directory: Path, held: Moment, there: list[Warc]) -> None:
    """Raises SnapshotError when the copies will not fit; links take nothing."""
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    device = os.stat(existing).st_dev
    runs = [os.fstat(run.fileno()) for run in held.runs or ()]
    needed = held.size + sum(run.st_size for run in runs if run.st_dev != device)
    needed += sum(file.bytes for file in there if not (file.final and os.stat(file.path).st_dev == device))
    free = shutil.disk_usage(existing).free
    if free < needed + SPARE_BYTES:
        raise SnapshotError(
            f"the snapshot takes {said(needed)} and {said(free)} are free at {existing}; free some space, name a"
            " directory on another disk, or leave the WARC files out (--no-warc)"
        )


# --- WARC files -----------------------------------------------------------------------------------------


def _warc_files(held: Moment) -> tuple[list[Warc], list[str]]:
    """Those that are on this machine, and the names of those that are not or lack committed records."""
    there, missing = [], []
    table = WarcFile._meta.db_table
    # A file of which nothing is committed has no records yet.
    rows = held.select(f"SELECT name, directory, bytes, closed FROM {table} WHERE bytes > 0 ORDER BY id")
    for name, folder, size, closed in rows:
        path = Path(folder) / name
        try:
            found = path.stat().st_size
        except OSError:
            found = -1
        if found < size:
            missing.append(name)
        else:
            # A writer goes over to a new file when one has reached MAX_FILE_BYTES; `closed` is only set when
            # its process has ended.
            final = found == size and (bool(closed) or size >= MAX_FILE_BYTES)
            there.append(Warc(name, path, size, final))
    return there, missing


# --- writing --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _written(directory: Path) -> Iterator[None]:
    """Makes the directory; on any end but a good one takes out what is in it by then."""
    made = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / UNFINISHED).touch(exist_ok=False)
    try:
        yield
    except BaseException:
        for path in directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        if made:
            directory.rmdir()
        raise


def _write(directory: Path, held: Moment, there: list[Warc], manifest: Manifest, steps: Steps) -> None:
    """Links first: what may be deleted meanwhile would have to be copied."""
    linked = sum(os.fstat(run.fileno()).st_size for run in held.runs or ()) + sum(file.bytes for file in there)
    progress = steps.begin("files", linked)
    if held.runs is not None:
        (directory / "seen").mkdir()
    for run in held.runs or ():
        put(run, directory / "seen" / Path(run.name).name, os.fstat(run.fileno()).st_size, progress, link=True)
    for file in there:
        target = directory / file.place
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(file.path, "rb") as source:
            put(source, target, file.bytes, progress, link=file.final)
    (directory / "database").mkdir()
    manifest.tables = held.write(directory / "database", steps.begin("database", held.size))


def _finish(directory: Path, manifest: Manifest, steps: Steps) -> None:
    """Checksums, and the manifest as the last act."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != UNFINISHED)
    progress = steps.begin("checksums", sum(path.stat().st_size for path in files))
    for path in files:
        entry = {"bytes": path.stat().st_size, "xxh3_128": checksum(path, progress)}
        manifest.files[path.relative_to(directory).as_posix()] = entry
    part = directory / UNFINISHED
    part.write_text(sealed(asdict(manifest)))
    sync_file(part)
    sync_tree(directory)
    part.rename(directory / MANIFEST)
    sync_tree(directory)


# --- reading --------------------------------------------------------------------------------------------


def checksum(path: Path, progress: Progress) -> str:
    """XXH3 of a file's bytes, 128 bits in hexadecimal."""
    total = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            total.update(block)
            progress(len(block))
    return total.hexdigest()


def sealed(told: dict[str, Any]) -> str:
    """A manifest as text, with a checksum of its own."""
    return json.dumps({"xxh3_128": _seal(told), **told}, indent=1)


def _seal(told: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(told, sort_keys=True).encode())


def read_manifest(directory: Path) -> Manifest:
    """What a snapshot says of itself. Raises SnapshotError when it is not whole or of a later kind."""
    if (directory / UNFINISHED).exists():
        raise SnapshotError(f"{directory} holds a snapshot that was not finished; take another one")
    try:
        told = json.loads((directory / MANIFEST).read_bytes())
        is_whole = told.pop("xxh3_128") == _seal(told)
    except (FileNotFoundError, NotADirectoryError):
        raise SnapshotError(f"{directory} holds no snapshot: there is no {MANIFEST} in it") from None
    except (ValueError, AttributeError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise SnapshotError(f"the snapshot is damaged: {directory / MANIFEST} is not what was written")
    if told["format"] > FORMAT:
        raise SnapshotError(f"{directory} was taken by trawl {told['trawl']}, which is newer than this one; update it")
    return Manifest(**{**told, "tables": [Table(**table) for table in told["tables"]]})


def verify(directory: Path, manifest: Manifest, progress: Progress) -> None:
    """Reads every file. Raises SnapshotError for one that is missing or is not as it was written."""
    for name, entry in manifest.files.items():
        path = directory / name
        try:
            found = path.stat().st_size
        except OSError as error:
            raise SnapshotError(f"the snapshot is damaged: {path}: {error.strerror}") from None
        if found != entry["bytes"]:
            raise SnapshotError(f"the snapshot is damaged: {path} has {found:,} bytes instead of {entry['bytes']:,}")
    for name, entry in manifest.files.items():
        if checksum(directory / name, progress) != entry["xxh3_128"]:
            raise SnapshotError(f"the snapshot is damaged: {directory / name} is not what was written")
