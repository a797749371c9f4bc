"""The databases before a command runs: may they be opened, and are they up to date.

Django is imported by the functions, once a command needs it.
"""

import contextlib
import fcntl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

# pg_advisory_lock takes a number; this one is "trawl" in ASCII.
MIGRATE_LOCK = int.from_bytes(b"trawl", "big")


def check_data_directory() -> None:
    """Refuses to begin anew among the files of a crawl: after half a restore, or when its database was lost."""
    from django.conf import settings
    from django.core.management import CommandError

    from crawl.renames import why_closed

    data = Path(settings.DATA_DIR)
    if reason := why_closed(data):
        raise CommandError(reason)
    database = settings.DATABASES["default"]
    main = Path(database["NAME"])
    if "sqlite" not in database["ENGINE"] or (main.exists() and main.stat().st_size):
        return
    inbox = Path(settings.DATABASES["inbox"]["NAME"])
    left = [inbox] if inbox.exists() else []
    left += [data / name for name, files in (("seen", "*/*.run"), ("warc", "*/*")) if any((data / name).glob(files))]
    if left:
        raise CommandError(
            f"{main} is {'empty' if main.exists() else 'missing'}, but {left[0]} is there: put it back, restore a"
            " snapshot (trawl restore DIR --replace), or use another folder with --data DIR"
        )


def prepare_databases() -> None:
    """Applies what is missing of the migrations, one process at a time on all machines."""
    from django.conf import settings

    said = False
    with data_directory_lock(settings.DATA_DIR):
        for alias in settings.DATABASES:
            with plain_connection(alias) as connection:
                if connection.vendor == "postgresql":  # other machines see it, and not our file lock
                    with connection.cursor() as cursor:
                        cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATE_LOCK])
                    # The lock goes with the connection.
                if not is_behind(connection, alias):
                    continue
                if not said:
                    said = True
                    print("trawl: preparing the database ...", file=sys.stderr, flush=True)
                migrate(alias)


def migrate(alias: str) -> None:
    """Applies what is missing of the migrations of one database."""
    from django.core.management import call_command

    call_command("migrate", *filter(None, [_app_of(alias)]), database=alias, interactive=False, verbosity=0)


def is_behind(connection: "BaseDatabaseWrapper", alias: str) -> bool:
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes(_app_of(alias))))


def _app_of(alias: str) -> str | None:
    """The only app with a table in a database; None: all. To go through the others' migrations takes half a second."""
    return "frontier" if alias == "inbox" else None


@contextlib.contextmanager
def plain_connection(alias: str) -> "Iterator[BaseDatabaseWrapper]":
    """A connection of its own, outside the pool, which would wait 30 s for a server that is not there."""
    from django.db import connections

    connection = connections.create_connection(alias)
    options = {key: value for key, value in connection.settings_dict["OPTIONS"].items() if key != "pool"}
    if connection.vendor == "postgresql":
        options.setdefault("connect_timeout", 10)  # seconds
    connection.settings_dict = {**connection.settings_dict, "OPTIONS": options}
    try:
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def data_directory_lock(data: Path) -> Iterator[None]:
    """Holds DATA/migrate.lock; the kernel lets go of it when the process dies."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "migrate.lock").open("a") as file:
        patience = time.monotonic() + 2  # seconds without a word; most waits are a few milliseconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if patience and time.monotonic() > patience:
                    patience = 0
                    print("trawl: waiting for another trawl that prepares the database ...", file=sys.stderr)
                time.sleep(0.02)
        yield
