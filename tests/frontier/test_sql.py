"""Rows on their way into both databases: all of them, each exactly, whatever their number."""

import pytest
from django.db import IntegrityError, connections, transaction

from frontier.models import Change, Host, Queue, QueuedUrl
from frontier.sql import dialect
from tests.frontier.world import World

COUNTS = [0, 1, 9, 10, 11, 10_000, 10_001, 21_117]
# No tab, which no URL has; line breaks are in the columns of the inbox, which hold many texts each.
TEXTS = [
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
