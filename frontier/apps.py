"""The frontier as a Django app."""

from django.apps import AppConfig
from django.db.models.signals import post_delete, post_save


class FrontierConfig(AppConfig):
    name = "frontier"
    verbose_name = "Frontier"

    def ready(self) -> None:
        from frontier.blocks import mark_hosts
        from frontier.models import DomainBlock

        post_save.connect(mark_hosts, sender=DomainBlock)
        post_delete.connect(mark_hosts, sender=DomainBlock)
