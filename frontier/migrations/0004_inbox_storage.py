from typing import Any

from django.db import migrations

COLUMNS = ("names", "name_keys", "name_index", "hashes", "levels", "depths", "refs")


def without_compression(apps: Any, editor: Any) -> None:
    """An inbox row lives for seconds; PostgreSQL's own compression of it took as long as the rest of admission."""
    if editor.connection.vendor == "postgresql":
        for column in COLUMNS:
            editor.execute(f"ALTER TABLE frontier_inbox ALTER COLUMN {column} SET STORAGE EXTERNAL")


def with_compression(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        for column in COLUMNS:
            editor.execute(f"ALTER TABLE frontier_inbox ALTER COLUMN {column} SET STORAGE EXTENDED")


class Migration(migrations.Migration):
    """How the inbox lies on PostgreSQL; nothing on SQLite."""

    dependencies = [("frontier", "0003_counts_and_schedule")]

    operations = [migrations.RunPython(without_compression, with_compression)]
