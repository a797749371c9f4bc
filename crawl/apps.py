from django.apps import AppConfig


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
