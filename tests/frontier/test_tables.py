"""How the tables lie on disk: claims use their indexes, and no big table stores its key twice."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from crawl.models import Page
from frontier import claim as claims
from frontier.models import Host, QueuedUrl
from tests.frontier.world import World

CLUSTERED = [QueuedUrl, Page, Host]


@pytest.fixture
def statements(frontier: World) -> Iterator[list[tuple[str, Any]]]:
    """Every statement of this test with its parameters."""
    seen: list[tuple[str, Any]] = []

    def note(execute, sql, params, many, context):
        seen.append((sql, params))
        return execute(sql, params, many, context)

    with connections[frontier.using].execute_wrapper(note):
        yield seen


def plan(frontier: World, statement: tuple[str, Any]) -> str:
    """How the database means to run it."""
    sql, params = statement
    explain = "EXPLAIN QUERY PLAN " if frontier.using == "default" else "EXPLAIN "
    with connections[frontier.using].cursor() as cursor:
        if frontier.using != "default":
            cursor.execute("SET enable_seqscan = off")  # with so few rows it would be right to scan
        cursor.execute(explain + sql, params)
        lines = "\n".join(str(row) for row in cursor.fetchall())
        if frontier.using != "default":
            cursor.execute("RESET enable_seqscan")
        return lines


def test_a_claim_reads_the_index_of_due_hosts(frontier: World, statements) -> None:
    frontier.claim(limit=5)
    reads = [one for one in statements if re.search(r"SELECT.*FROM frontier_host WHERE active", one[0])]
    assert len(reads) == 1
    assert "frontier_host_due" in plan(frontier, reads[0])
    assert "TEMP B-TREE" not in plan(frontier, reads[0])  # it is in the order of the index


def test_counting_leases_reads_the_index_of_leases(frontier: World, statements) -> None:
    claims.leased(frontier.using)
    assert "frontier_host_leased" in plan(frontier, statements[-1])


def test_reading_the_urls_of_visits_is_a_range_scan_of_their_key(frontier: World, statements) -> None:
    frontier.add(*[f"https://h{i}.test/{i}" for i in range(20)])
    statements.clear()
    frontier.visit()
    read = next(one for one in statements if "frontier_queuedurl" in one[0])
    if frontier.using == "default":
        assert "SCAN frontier_queuedurl" not in plan(frontier, read)
    else:
        assert "frontier_queuedurl_pkey" in plan(frontier, read)


@pytest.mark.parametrize("model", CLUSTERED, ids=lambda model: model.__name__)
def test_the_id_is_the_only_key_of_a_big_table(frontier: World, model) -> None:
    table = model._meta.db_table
    with connections[frontier.using].cursor() as cursor:
        if frontier.using == "default":
            cursor.execute("SELECT sql FROM sqlite_master WHERE name = %s", [table])
            assert re.search(r'"id" integer NOT NULL PRIMARY KEY', cursor.fetchone()[0])
            cursor.execute("SELECT name FROM pragma_index_list(%s) WHERE origin = 'pk'", [table])
            assert cursor.fetchall() == []  # an index of its own would mean that the id is not the rowid
        else:
            cursor.execute(
                "SELECT data_type, is_identity FROM information_schema.columns"
                " WHERE table_name = %s AND column_name = 'id'",
                [table],
            )
            assert cursor.fetchall() == [("bigint", "YES")]
            cursor.execute(
                "SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
                " AND a.attnum = i.indkey[0] WHERE i.indrelid = %s::regclass AND a.attname = 'id'",
                [table],
            )
            assert cursor.fetchone()[0] == 1


def test_queued_urls_have_no_index_but_their_key(frontier: World) -> None:
    with connections[frontier.using].cursor() as cursor:
        found = connections[frontier.using].introspection.get_constraints(cursor, "frontier_queuedurl")
    assert [one["columns"] for one in found.values() if one["index"] or one["unique"] or one["primary_key"]] == [["id"]]
