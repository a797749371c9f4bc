"""The tables of a PostgreSQL snapshot: loaded in the caller's transaction, the old ones moved to a schema aside.

The tables are made by the migrations that the snapshot had, filled by COPY, and migrated from there, so a
snapshot of an older trawl can be put back.
"""

from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.db import OperationalError, connections
from django.db.migrations.executor import MigrationExecutor

from crawl.roles import ROLES
from crawl.snapshot import Manifest, SnapshotError
from frontier.snapshot import BLOCK, Progress, Table, listed, quoted
from trawl_project.databases import plain_connection

# Filled by migrating. Whatever is in any other table, somebody would miss.
MADE_BY_MIGRATING = {"auth_permission", "django_content_type", "django_migrations"}
# Of these tables, migrating fills what is for the roles (crawl/roles.py).
NOT_OF_A_ROLE = {
    "auth_group": "name <> ALL(%s)",
    "auth_group_permissions": "group_id NOT IN (SELECT id FROM {}auth_group WHERE name = ANY(%s))",
}
# How long to wait for those who use the tables; a worker that was not seen may be one of them.
LOCK_SECONDS = 10


def held(using: str) -> list[str]:
    """The database, if something is in it that would be missed."""
    connection = connections[using]
    with connection.cursor() as cursor:
        table = _first_held(cursor, _our_tables(connection, cursor))
    return [f"database {connection.settings_dict['NAME']} has rows in {table}"] if table else []


def _our_tables(connection: Any, cursor: Any) -> list[str]:
    there = set(connection.introspection.table_names(cursor))
    return sorted({*connection.introspection.django_table_names(), "django_migrations"} & there)


def load(directory: Path, manifest: Manifest, aside: str, using: str, progress: Progress) -> str:
    """Replaces all tables by the snapshot's; returns the schema that has the old ones, '' when they were empty."""
    connection, schema = connections[using], aside.replace("-", "_")
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        moved = _move_tables(connection, cursor, schema)
        # Asked only now that nobody can add a row any more.
        is_held = _first_held(cursor, moved, f"{quoted(schema)}.") is not None
        _make_tables(connection, manifest)
        cursor.execute("TRUNCATE " + listed([table.name for table in manifest.tables]))
        for table in manifest.tables:
            _fill(cursor, table, directory / f"{table.name}.copy", progress)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # no table can be altered while one is to be checked
        call_command("migrate", database=using, interactive=False, verbosity=0)
        if moved and not is_held:
            cursor.execute(f"DROP SCHEMA {quoted(schema)} CASCADE")
        cursor.execute("COMMENT ON TABLE django_migrations IS %s", [_mark(aside)])
    return schema if is_held else ""


def _mark(aside: str) -> str:
    return f"trawl restore {aside}"


def is_loaded(aside: str, using: str) -> bool:
    """Whether the transaction of that `load` was committed."""
    with plain_connection(using) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT obj_description(to_regclass('django_migrations'), 'pg_class')")
        return bool(cursor.fetchone()[0] == _mark(aside))


def _first_held(cursor: Any, tables: list[str], prefix: str = "") -> str | None:
    """The first table with rows that somebody would miss."""
    for table in tables:
        if table not in MADE_BY_MIGRATING:
            where = NOT_OF_A_ROLE.get(table, "%s IS NOT NULL").format(prefix)
            cursor.execute(f"SELECT 1 FROM {prefix}{quoted(table)} WHERE {where} LIMIT 1", [list(ROLES)])
            if cursor.fetchone():
                return table
    return None


def _move_tables(connection: Any, cursor: Any, schema: str) -> list[str]:
    """Moves what is there, if anything, to a schema of its own, with indexes and sequences."""
    tables = _our_tables(connection, cursor)
    if not tables:
        return []
    cursor.execute(f"CREATE SCHEMA {quoted(schema)}")
    try:
        for table in tables:
            cursor.execute(f"ALTER TABLE {quoted(table)} SET SCHEMA {quoted(schema)}")
    except OperationalError as error:
        raise SnapshotError(
            f"other processes use the database ({str(error).strip()}); stop the workers, beat and the web server first"
        ) from None
    return tables


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
