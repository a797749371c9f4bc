"""Sends the inbox to its own SQLite file where there is one."""

from typing import Any

from django.conf import settings


def inbox_alias(using: str) -> str:
    """The database that holds the inbox of the shard whose database is `using`."""
    return "inbox" if using == "default" and "inbox" in settings.DATABASES else using


class InboxRouter:
    """Keeps `frontier.Inbox` in the inbox file and everything else out of it."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return inbox_alias("default") if model._meta.label_lower == "frontier.inbox" else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, model_name: str | None = None, **hints: Any) -> bool | None:
        if "inbox" not in settings.DATABASES:
            return None
        is_inbox = app_label == "frontier" and model_name == "inbox"
        if db == "inbox":
            return is_inbox
        return not is_inbox if db == "default" else None
