"""The renames that bring a restore into place: all of them or none, whenever the process is killed.

They are written down in DATA/unfinished-restore.json, synced, before the first; the file goes after the last. While it
is there no command but restore opens the data directory, and the next restore undoes those that were made. Each
rename is found made or not made by looking, so undoing can itself be killed and begun again.
"""

import errno
import fcntl
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from frontier.seen.runs import sync_directory
from frontier.snapshot import sync_file

JOURNAL = "unfinished-restore.json"


@dataclass(frozen=True, slots=True)
class Renames:
    """What a restore renames, in order. Paths below the data directory are relative to it, so it may be moved."""

    snapshot: str
    replace: bool
    aside: str
    """The name of the folders, and on PostgreSQL the schema, for the old data."""
    folders: list[str]
    """Where those folders are, and the ones in which things were made ready."""
    staging: str
    """The name of the latter."""
    away: list[tuple[str, str]] = field(default_factory=list)
    """What is there, into the folders for old data."""
    into: list[tuple[str, str]] = field(default_factory=list)
    """What was made ready, to where that was."""

    def command(self, data: Path) -> str:
        """What makes the restore whole."""
        trawl = os.environ.get("TRAWL_COMMAND", "trawl")
        options = ["--replace"] if self.replace else []
        return shlex.join([trawl, "--data", str(data), "restore", self.snapshot, *options])

    def kept(self, data: Path) -> list[Path]:
        """The folders with old data that are there."""
        return [path for folder in self.folders if (path := data / folder / self.aside).exists()]


def relative(path: Path, data: Path) -> str:
    """A path as Renames has it."""
    return str(path.relative_to(data) if path.is_relative_to(data) else path)


def unfinished(data: Path) -> Renames | None:
    """The restore that was cut short in a data directory, or that is under way."""
    try:
        return Renames(**json.loads((data / JOURNAL).read_bytes()))
    except FileNotFoundError:
        return None


def why_closed(data: Path) -> str:
    """What keeps all commands but restore from opening a data directory; '' when nothing does."""
    renames = unfinished(data)
    if renames is None:
        return ""
    if pid := _holder(data / "crawl.lock"):
        return f"a snapshot is being put back into {data} (pid {pid}); wait for it"
    places = " and ".join(map(str, [*renames.kept(data), data]))
    return (
        f"{data}: a restore was cut short; what was there before is safe, in {places}; "
        f"finish it with: {renames.command(data)}"
    )


def _holder(lock: Path) -> str:
    """The process that holds a DataLock; '' when none does."""
    if not lock.exists():
        return ""
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().strip() or "unknown"
    return ""


@contextmanager
def all_or_none(data: Path, renames: Renames, is_committed: Callable[[Renames], bool]) -> Iterator[None]:
    """For `carry_out`, and the commit that belongs to it. After an error all is undone, unless that was committed."""
    part = data / f"{JOURNAL}.part"
    part.write_text(json.dumps(asdict(renames), indent=1))
    sync_file(part)
    part.rename(data / JOURNAL)
    sync_directory(data)
    try:
        yield
    except BaseException:
        settle(data, renames, is_committed)
        raise
    _forget(data)


def carry_out(data: Path, renames: Renames) -> None:
    """Makes all renames, durably."""
    for source, target in [*renames.away, *renames.into]:
        (data / target).parent.mkdir(parents=True, exist_ok=True)
        (data / source).rename(data / target)
    _sync(data, renames)


def settle(data: Path, renames: Renames, is_committed: Callable[[Renames], bool]) -> bool:
    """Undoes what was made of the renames, or finds that nothing is missing; tells whether that was so.

    Raises OSError and what `is_committed` raises; then it can be called again.
    """
    is_whole = _are_made(data, renames) and is_committed(renames)
    if not is_whole:
        _undo(data, renames)
        for folder in renames.folders:
            _remove_empty(data / folder / renames.aside)
        _sync(data, renames)
    for folder in renames.folders:
        shutil.rmtree(data / folder / renames.staging, ignore_errors=True)
    _forget(data)
    return is_whole


def _are_made(data: Path, renames: Renames) -> bool:
    return all((data / target).exists() for _, target in renames.away + renames.into) and not any(
        (data / source).exists() for source, _ in renames.into
    )


def _undo(data: Path, renames: Renames) -> None:
    """Somebody may have deleted or made files meanwhile: nothing that is there is overwritten."""
    aside = {source: data / target for source, target in renames.away}
    for source, target in reversed(renames.into):
        is_old = target in aside and not aside[target].exists()
        if (data / target).exists() and not (data / source).exists() and not is_old:
            (data / source).parent.mkdir(parents=True, exist_ok=True)
            (data / target).rename(data / source)
    for source, target in reversed(renames.away):
        old, kept = data / source, data / target
        if not kept.exists():
            continue
        if old.is_file() or (old.is_dir() and any(old.iterdir())):
            raise FileExistsError(errno.EEXIST, f"the old one, {kept}, belongs here; move this one away", str(old))
        kept.rename(old)


def _sync(data: Path, renames: Renames) -> None:
    """Makes the names durable, in every folder that lost or got one."""
    paths = [path for pair in renames.away + renames.into for path in pair]
    for folder in {(data / path).parent for path in paths} | {data / folder for folder in renames.folders}:
        if folder.exists():
            sync_directory(folder)


def _forget(data: Path) -> None:
    (data / JOURNAL).unlink()
    sync_directory(data)


def _remove_empty(folder: Path) -> None:
    """Removes a folder with the folders in it, as far as they hold no file."""
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(path)
