"""trawl restore DIR: goes back to a snapshot, here or on another machine."""

import os
import shlex
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawl.local import Busy, DataLock
from crawl.management.commands.snapshot import summary
from crawl.models import Campaign
from crawl.renames import unfinished
from crawl.restore import Restored, readable, restore, settle_unfinished
from crawl.snapshot import SnapshotError, named_directory
from crawl.steps import bars


class Command(BaseCommand):
    """Puts a snapshot back."""

    help = "put a snapshot back into an empty data directory, or in place of what is there"
    # The database is made by what is put back, or is the one that gives way.
    needs_database = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("directory", metavar="DIR", type=named_directory, help="the snapshot; it stays as it is")
        parser.add_argument("--replace", action="store_true", help="put the crawl that is there aside")

    def handle(self, *args: Any, **options: Any) -> None:
        directory, data = options["directory"], settings.DATA_DIR
        try:
            # What is half done is undone even when its snapshot is gone; else a wrong DIR leaves no folder behind.
            manifest = None if unfinished(data) else readable(directory)
            data.mkdir(parents=True, exist_ok=True)
            lock = DataLock(data)
            lock.take()
            if self._settle(directory):
                return
            with bars(self.stderr.isatty()) as steps:
                restored = restore(directory, manifest or readable(directory), replace=options["replace"], steps=steps)
        except SnapshotError as error:
            raise CommandError(str(error)) from None
        except Busy as error:
            raise CommandError(f"{error}; wait for it, stop it, or use --data DIR") from None
        for line in lines(restored):
            self.stdout.write(line)

    def _settle(self, directory: Path) -> bool:
        """Sees to a restore that was cut short; tells whether it was this one, and lacks nothing."""
        settled = settle_unfinished()
        if settled is None:
            return False
        renames, is_whole = settled
        end = "it is whole" if is_whole else "what it had done is undone"
        self.stdout.write(f"the restore of {renames.snapshot} was cut short; {end}")
        return is_whole and str(directory) == renames.snapshot


def lines(restored: Restored) -> list[str]:
    """What was put back and how to go on, as sentences."""
    manifest = restored.manifest
    told = [f"restored into {_where(manifest.database)}: {summary(manifest)}, as of {manifest.taken_at}"]
    if restored.aside:
        told.append(f"what was there before is in {' and '.join(restored.aside)}")
    if restored.warc_missing:
        told.append(f"WARC files that pages point to and that were not found: {restored.warc_missing:,}")
    if not manifest.has_seen_index:
        told.append("the seen index was not in the snapshot; the first merge makes it anew")
    return told + _going_on(restored)


def _where(database: str) -> str:
    if database == "sqlite":
        return str(settings.DATA_DIR)
    return f"database {settings.DATABASES['default']['NAME']} and {settings.DATA_DIR}"


def _going_on(restored: Restored) -> list[str]:
    if restored.manifest.database != "sqlite":
        running = [name for name, status in restored.campaigns if status == Campaign.Status.RUNNING]
        goes = f"; {', '.join(running)} then goes on at once" if running else ""
        return [f"to go on, start the workers and the beat (docs/commands.md){goes}"]
    trawl = [os.environ.get("TRAWL_COMMAND", "trawl"), "--data", str(settings.DATA_DIR)]
    commands = [shlex.join([*trawl, "crawl", "--name", name]) for name, _ in restored.campaigns]
    if not commands:
        return []
    return ["to go on, with the --allow-network, --resolve and --proxy that it had:", *(f"  {c}" for c in commands)]
