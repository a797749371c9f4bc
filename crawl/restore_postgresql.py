"""The tables of a PostgreSQL snapshot: loaded in the caller's transaction, the old ones moved to a schema aside.

The tables are made by the migrations that the snapshot had, filled by COPY, and migrated from there, so a
snapshot of an older trawl can be put back.
"""

from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.db import OperationalError, connections
from django.db.migrations.executor import MigrationExecutor

from crawl.models import Campaign
from crawl.snapshot import Manifest, SnapshotError
from frontier.models import Host
from frontier.snapshot import BLOCK, Progress, Table, listed, quoted

# What somebody would miss: tables that a migration has just made have no rows here.
MISSED = (Campaign._meta.db_table, Host._meta.db_table, "auth_user")
# How long to wait for those who use the tables; a worker that was not seen may be one of them.
LOCK_SECONDS = 10


def held(using: str) -> list[str]:
    """The database, if something is in it that would be missed."""
    connection = connections[using]
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        for table in MISSED:
            if table in tables:
                cursor.execute(f"SELECT 1 FROM {quoted(table)} LIMIT 1")
                if cursor.fetchone():
                    return [f"database {connection.settings_dict['NAME']}"]
    return []


def load(directory: Path, manifest: Manifest, aside: str, using: str, progress: Progress) -> str:
    """Replaces all tables by the snapshot's; returns the schema that has the old ones, '' when they were empty."""
    connection = connections[using]
    missed = bool(held(using))
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        moved = _move_tables(connection, cursor, aside)
        _make_tables(connection, manifest)
        cursor.execute("TRUNCATE " + listed([table.name for table in manifest.tables]))
        for table in manifest.tables:
            _fill(cursor, table, directory / f"{table.name}.copy", progress)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # no table can be altered while one is to be checked
        call_command("migrate", database=using, interactive=False, verbosity=0)
        if moved and not missed:
            cursor.execute(f"DROP SCHEMA {quoted(aside)} CASCADE")
    return aside if missed else ""


def _move_tables(connection: Any, cursor: Any, aside: str) -> bool:
    """Moves what is there, if anything, to a schema of its own, with indexes and sequences."""
    there = set(connection.introspection.table_names(cursor))
    tables = sorted({*connection.introspection.django_table_names(), "django_migrations"} & there)
    if not tables:
        return False
    cursor.execute(f"CREATE SCHEMA {quoted(aside)}")
    try:
        for table in tables:
            cursor.execute(f"ALTER TABLE {quoted(table)} SET SCHEMA {quoted(aside)}")
    except OperationalError as error:
        raise SnapshotError(
            f"other processes use the database ({str(error).strip()}); stop the workers, beat and the web server first"
        ) from None
    return True


def _make_tables(connection: Any, manifest: Manifest) -> None:
    """Applies the migrations that the snapshot had, and no later ones."""
    executor = MigrationExecutor(connection)
    wanted = {(app, name) for app, _, name in (told.partition(".") for told in manifest.migrations)}
    nodes = executor.loader.graph.node_map
    wanted &= nodes.keys()
    last = [
        key
        for key in wanted
        if not any(child.key in wanted and child.key[0] == key[0] for child in nodes[key].children)
    ]
    executor.migrate(sorted(last))


def _fill(cursor: Any, table: Table, path: Path, progress: Progress) -> None:
    with (
        open(path, "rb") as file,
        cursor.copy(f"COPY {quoted(table.name)} ({listed(table.columns)}) FROM STDIN") as copy,
    ):
        while block := file.read(BLOCK):
            copy.write(block)
            progress(len(block))
    if cursor.rowcount != table.rows:
        raise SnapshotError(f"{path} has {cursor.rowcount:,} rows instead of {table.rows:,}; take another snapshot")
    for column, last in table.sequences.items():
        cursor.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", [quoted(table.name), column, last])


def analyze(manifest: Manifest, using: str) -> None:
    """Lets the planner know how large the tables are."""
    with connections[using].cursor() as cursor:
        cursor.execute("ANALYZE " + listed([table.name for table in manifest.tables]))
