from django.apps import AppConfig


class CrawlConfig(AppConfig):
    name = "crawl"
    verbose_name = "Crawls"

    def ready(self) -> None:
        from crawl.pages import no_longer_queued
        from frontier.purge import purged

        purged.connect(no_longer_queued)
