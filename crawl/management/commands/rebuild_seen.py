"""trawl rebuild_seen: makes the seen index anew."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from crawl.models import Page
from frontier.counts import queued
from frontier.merge import merge_lock
from frontier.rebuild import rebuild
from frontier.seen.index import SeenIndex
from frontier.state import seen_directory

USING = "default"


class Command(BaseCommand):
    """Makes the files by which the frontier tells new URLs from known ones, from the database."""

    help = "make the seen index anew from the database\n\nFor when its files are lost or damaged; a crawl also does it."

    def handle(self, *args: Any, **options: Any) -> None:
        with merge_lock(USING) as mine:
            if not mine:
                raise CommandError(
                    "links are being merged in this data directory at this moment, by a crawl or another rebuild;"
                    " try again, or stop it first"
                )
            urls = self._rebuild()
        self.stdout.write(f"{urls:,} URLs are known; the index is in {seen_directory(USING)}")

    def _rebuild(self) -> int:
        total = Page.objects.using(USING).count() + queued(USING)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), disable=not self.stderr.isatty()) as bar:
            task = bar.add_task("rows read", total=total)
            return rebuild(
                SeenIndex(seen_directory(USING), USING), USING, lambda done: bar.update(task, completed=done)
            )
