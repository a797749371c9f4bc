"""How the tables lie on disk: claims use their indexes, and no big table stores its key twice."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from crawl.models import Page
from frontier import claim as claims
from frontier.models import DueHost, Host, LeasedHost, QueuedUrl
from tests.frontier.world import LEASE_MS, World

CLUSTERED = [QueuedUrl, Page, Host, DueHost, LeasedHost]


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


def test_a_claim_reads_due_hosts_in_the_order_of_their_key(frontier: World, statements) -> None:
    frontier.claim(limit=5)
    [read] = [one for one in statements if re.search(r"SELECT.*FROM frontier_duehost", one[0])]
    said = plan(frontier, read)
    if frontier.using == "default":
        assert "SEARCH frontier_duehost USING INTEGER PRIMARY KEY (rowid<?)" in said
        assert "TEMP B-TREE" not in said
    else:
        assert "Index Scan using frontier_duehost_pkey" in said
        assert "Sort" not in said


def test_a_claim_and_its_return_touch_no_row_of_a_host(frontier: World, statements) -> None:
    frontier.add("https://a.test/1", "https://a.test/2")
    statements.clear()
    frontier.claim()
    assert statements
    assert not [sql for sql, _ in statements if "frontier_host" in sql]
    frontier.now += LEASE_MS
    frontier.claim(limit=0)
    [visit] = frontier.visit(quota=1)
    statements.clear()
    frontier.leave(visit, changed=False)
    assert statements
    assert not [sql for sql, _ in statements if "frontier_host" in sql]


def test_hosts_leave_the_schedule_by_their_key(frontier: World, statements) -> None:
    frontier.add(*[f"https://h{i}.test/{i}" for i in range(20)])
    for visit in frontier.visit():
        frontier.leave(visit)
    gone = {sql: params for sql, params in statements if sql.startswith("DELETE FROM frontier_")}
    for table in ("frontier_duehost", "frontier_leasedhost"):
        [statement] = [one for one in gone.items() if table in one[0] and "id IN" in one[0]]
        said = plan(frontier, statement)
        assert f"SEARCH {table} USING INTEGER PRIMARY KEY" in said or f"{table}_pkey" in said


def test_counting_leases_reads_only_what_is_leased(frontier: World, statements) -> None:
    claims.leased(frontier.using)
    assert set(re.findall(r"frontier_\w+", statements[-1][0])) == {"frontier_leasedhost", "frontier_lease"}


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
                " WHERE table_schema = current_schema() AND table_name = %s AND column_name = 'id'",
                [table],
            )
            assert cursor.fetchall() == [("bigint", "YES")]
            cursor.execute(
                "SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
                " AND a.attnum = i.indkey[0] WHERE i.indrelid = %s::regclass AND a.attname = 'id'"
                " AND i.indpred IS NULL",  # one of a few rows is small
                [table],
            )
            assert cursor.fetchone()[0] == 1


def test_queued_urls_have_no_index_but_their_key(frontier: World) -> None:
    with connections[frontier.using].cursor() as cursor:
        found = connections[frontier.using].introspection.get_constraints(cursor, "frontier_queuedurl")
    assert [one["columns"] for one in found.values() if one["index"] or one["unique"] or one["primary_key"]] == [["id"]]
