"""Rows on their way into both databases: all of them, each exactly, whatever their number."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction

from frontier.models import Change, Host, Queue, QueuedUrl
from frontier.sql import dialect
from frontier.sql.sqlite import _checkpoint
from tests.frontier.world import World
from trawl_project.sqlite import AUTOCHECKPOINT_PAGES

COUNTS = [0, 1, 9, 10, 11, 10_000, 10_001, 21_117]
TEXTS = [
    "/a\tb\t",
    "/a\rb\r\n",
    "/",
    "",
    "/\\",
    "\\N",
    "\\.",
    "/\\t\\n\\\\",
    "/'\"''\"\"",
    "/%s?a=%(b)s&%%",
    "/b\u00fccher/\u4e2d\u6587/\U0001f600",
    '{"json": [1, null]}',
    "/\u2028\u0085\x7f\x01",
    "/one\n/two\\n\n",
]


def ref(number: int) -> str:
    return f"{TEXTS[number % len(TEXTS)]}{number if number >= len(TEXTS) else ''}"


def put(frontier: World, ids: list[int], depths: list[int], refs: list[str]) -> None:
    with transaction.atomic(using=frontier.using), connections[frontier.using].cursor() as cursor:
        names = "id bigint, depth bigint, ref text"
        dialect(frontier.using).insert(cursor, "frontier_queuedurl", names, [ids, depths, refs])


@pytest.mark.parametrize("rows", COUNTS)
def test_all_rows_come_out_as_they_went_in(frontier: World, rows: int) -> None:
    ids = [(1 << 62) - 7 * number for number in range(rows)]
    depths = [number % 32_768 for number in range(rows)]
    refs = [ref(number) for number in range(rows)]
    put(frontier, ids, depths, refs)
    found = QueuedUrl.objects.using(frontier.using).order_by("-id").values_list("id", "depth", "ref")
    assert list(found) == list(zip(ids, depths, refs, strict=True))


@pytest.mark.parametrize("rows", COUNTS)
def test_every_row_gets_its_amount_and_no_other_row_any(frontier: World, rows: int) -> None:
    sql = dialect(frontier.using)
    ids = list(range(1, rows + 4))
    with transaction.atomic(using=frontier.using), connections[frontier.using].cursor() as cursor:
        sql.insert(cursor, "frontier_queue", "id bigint, host_id bigint, campaign bigint", [ids, ids, [1] * len(ids)])
        for _ in range(2):
            sql.add(cursor, "frontier_queue", "next_seq", ids[2:-1], [3 * key for key in ids[2:-1]])
    found = Queue.objects.using(frontier.using).order_by("id").values_list("id", "next_seq")
    assert list(found) == [(key, 6 * key if 2 < key < rows + 3 else 0) for key in ids]


@pytest.mark.parametrize("rows", [0, 1, 11, 1_111])
def test_rows_of_two_columns_take_the_defaults_for_the_others(frontier: World, rows: int) -> None:
    ids, names = list(range(1, rows + 1)), [f"h{number}\\'\u00fc" for number in range(rows)]
    with transaction.atomic(using=frontier.using), connections[frontier.using].cursor() as cursor:
        dialect(frontier.using).insert(cursor, "frontier_host", "id bigint, name text", [ids, names])
    found = Host.objects.using(frontier.using).order_by("id").values_list("id", "name", "active", "due_at", "reason")
    assert list(found) == [(key, name, False, 0, "") for key, name in zip(ids, names, strict=True)]


def test_a_row_that_is_there_already_fails_as_in_django(frontier: World) -> None:
    QueuedUrl.objects.using(frontier.using).create(id=5, depth=1, ref="/")
    with pytest.raises(IntegrityError):
        put(frontier, [4, 5], [1, 1], ["/4", "/5"])
    assert QueuedUrl.objects.using(frontier.using).get().pk == 5


# --- light transactions -------------------------------------------------------------------------------------------


class Failure(Exception):
    """What goes wrong in these tests."""


def durability(frontier: World) -> str:
    with connections[frontier.using].cursor() as cursor:
        cursor.execute("PRAGMA synchronous" if frontier.using == "default" else "SHOW synchronous_commit")
        return str(cursor.fetchone()[0])


def append(frontier: World, campaign: int) -> None:
    Change.objects.using(frontier.using).create(campaign=campaign, urls=1, held=0, hosts=0)


def append_and_fail(frontier: World, campaign: int) -> None:
    with dialect(frontier.using).light_transaction(frontier.using):
        append(frontier, campaign)
        raise Failure


def append_in_a_durable_transaction_that_fails(frontier: World, campaign: int) -> None:
    with transaction.atomic(using=frontier.using):
        with dialect(frontier.using).light_transaction(frontier.using):
            append(frontier, campaign)
        raise Failure


def campaigns(frontier: World) -> list[int]:
    return sorted(Change.objects.using(frontier.using).values_list("campaign", flat=True))


@pytest.fixture
def durable(frontier: World) -> World:
    """A database that waits for the disk at every commit, as in production."""
    statement = "PRAGMA synchronous=FULL" if frontier.using == "default" else "SET synchronous_commit = on"
    with connections[frontier.using].cursor() as cursor:
        cursor.execute(statement)
    return frontier


@pytest.fixture
def full(durable: World) -> str:
    return durability(durable)


def test_only_a_light_transaction_is_light(durable: World, full: str) -> None:
    assert full == ("2" if durable.using == "default" else "on")
    with dialect(durable.using).light_transaction(durable.using):
        assert durability(durable) == ("1" if durable.using == "default" else "off")
        append(durable, 1)
    assert durability(durable) == full
    assert campaigns(durable) == [1]


def test_a_light_transaction_that_fails_leaves_nothing_behind(durable: World, full: str) -> None:
    with pytest.raises(Failure):
        append_and_fail(durable, 1)
    assert durability(durable) == full
    assert campaigns(durable) == []


def test_a_light_transaction_inside_a_durable_one_is_a_part_of_it(durable: World, full: str) -> None:
    with transaction.atomic(using=durable.using):
        append(durable, 1)
        with dialect(durable.using).light_transaction(durable.using):
            assert durability(durable) == full
            append(durable, 2)
        with pytest.raises(Failure):
            append_and_fail(durable, 3)
        append(durable, 4)
        assert durability(durable) == full
    assert campaigns(durable) == [1, 2, 4]
    with pytest.raises(Failure):
        append_in_a_durable_transaction_that_fails(durable, 5)
    assert campaigns(durable) == [1, 2, 4]
    assert durability(durable) == full


def test_claims_opens_and_renewals_leave_the_database_durable(durable: World, full: str) -> None:
    durable.add("https://a.test/")
    [visit] = durable.visit()
    assert durability(durable) == full
    durable.leave(visit)
    assert durability(durable) == full


# --- heavy transactions ------------------------------------------------------------------------------------------


def wait_for_checkpoints() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("checkpoint of"):
            thread.join()


@pytest.fixture
def on_sqlite(durable: World) -> World:
    if connections[durable.using].vendor != "sqlite":
        pytest.skip("PostgreSQL writes its checkpoints itself")
    with connections[durable.using].cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return durable


def autocheckpoint(world: World) -> int:
    with connections[world.using].cursor() as cursor:
        cursor.execute("PRAGMA wal_autocheckpoint")
        return int(cursor.fetchone()[0])


def test_a_heavy_transaction_is_brought_to_its_place_by_another_thread(on_sqlite: World) -> None:
    path = Path(connections[on_sqlite.using].settings_dict["NAME"])
    with dialect(on_sqlite.using).heavy_transaction(on_sqlite.using):
        assert autocheckpoint(on_sqlite) == 0
        put(on_sqlite, [*range(20_000)], [1] * 20_000, ["/" * 100] * 20_000)
    wait_for_checkpoints()
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as without_log:
        assert without_log.execute("SELECT count(*) FROM frontier_queuedurl").fetchone() == (20_000,)
    assert autocheckpoint(on_sqlite) == AUTOCHECKPOINT_PAGES


def put_and_fail(frontier: World) -> None:
    with dialect(frontier.using).heavy_transaction(frontier.using):
        put(frontier, [7], [1], ["/"])
        raise Failure


def test_a_heavy_transaction_that_fails_leaves_nothing_behind(on_sqlite: World) -> None:
    with pytest.raises(Failure):
        put_and_fail(on_sqlite)
    wait_for_checkpoints()
    assert not QueuedUrl.objects.using(on_sqlite.using).exists()
    assert autocheckpoint(on_sqlite) == AUTOCHECKPOINT_PAGES


def test_a_checkpoint_of_a_database_that_is_gone_is_told_and_makes_no_file(tmp_path: Path, caplog: Any) -> None:
    _checkpoint(str(tmp_path / "gone.sqlite3"))
    assert "gone.sqlite3" in caplog.text
    assert not list(tmp_path.iterdir())
