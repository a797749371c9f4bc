from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class CrawlConfig(AppConfig):
    name = "crawl"
    verbose_name = "Crawls"

    def ready(self) -> None:
        from crawl.campaigns import blocks_lifted
        from crawl.pages import no_longer_queued
        from frontier.blocking import lifted
        from frontier.purge import purged

        lifted.connect(blocks_lifted)
        purged.connect(no_longer_queued)
        post_migrate.connect(_make_roles, sender=self)


def _make_roles(using: str, **kwargs: Any) -> None:
    """The inbox's database has no accounts."""
    from crawl.roles import make_roles

    if using == "default":
        make_roles(using)
