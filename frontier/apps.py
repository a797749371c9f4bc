"""The frontier as a Django app."""

from django.apps import AppConfig
from django.db.models.signals import post_delete, post_save, pre_delete, pre_save


class FrontierConfig(AppConfig):
    name = "frontier"
    verbose_name = "Frontier"

    def ready(self) -> None:
        from frontier.blocking import after_delete, after_save, before_change
        from frontier.models import DomainBlock
        from frontier.seen import prechecks

        prechecks.check()  # a wrong setting is said now, not with the first link
        pre_save.connect(before_change, sender=DomainBlock)
        post_save.connect(after_save, sender=DomainBlock)
        pre_delete.connect(before_change, sender=DomainBlock)
        post_delete.connect(after_delete, sender=DomainBlock)
