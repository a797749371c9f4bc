"""trawl snapshot DIR: all that a crawl needs to go on from this moment, taken while it runs."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawl.progress import counted, size
from crawl.snapshot import Manifest, SnapshotError, named_directory, take
from crawl.steps import bars


class Command(BaseCommand):
    """Takes a snapshot."""

    help = "copy a crawl as it is at this moment into a new folder, also while it runs; restore puts it back"
    # The tables of an older trawl are copied as they are: people want a copy before they update.
    needs_database = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("directory", metavar="DIR", type=named_directory, help="a new folder for it")
        parser.add_argument("--no-warc", action="store_true", help="leave the WARC files where they are")

    def handle(self, *args: Any, **options: Any) -> None:
        directory, warc = options["directory"], not options["no_warc"]
        try:
            with bars(self.stderr.isatty()) as steps:
                manifest = take(directory, warc=warc, steps=steps)
        except SnapshotError as error:
            raise CommandError(str(error)) from None
        for line in lines(directory, manifest, warc):
            self.stdout.write(line)


def lines(directory: Path, manifest: Manifest, warc: bool) -> list[str]:
    """What was taken, as sentences."""
    waits = f"; writers were kept waiting for {manifest.held_ms:.1f} ms" if manifest.held_ms else ""
    told = [
        f"{summary(manifest)}, as of {manifest.taken_at}{waits}",
        f"{counted(len(manifest.files), 'file')}, {size(manifest.bytes)}, in {directory}",
    ]
    if manifest.warc_left_out:
        why = ": not on this machine, or not whole" if warc else ""
        told.append(f"WARC files left out: {len(manifest.warc_left_out):,}{why}")
    if not manifest.has_seen_index:
        told.append("the seen index is not on this machine; the first merge after a restore makes it anew")
    return told


def summary(manifest: Manifest) -> str:
    """The numbers that people ask for."""
    counts = manifest.counts
    parts = (
        counted(counts["crawl_campaign"], "campaign"),
        counted(counts["crawl_page"], "page"),
        f"{counted(counts['frontier_queuedurl'], 'URL')} waiting on {counted(counts['frontier_host'], 'host')}",
    )
    return ", ".join(parts)
