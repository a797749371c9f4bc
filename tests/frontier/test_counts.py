"""The counts of campaigns: sums of what transactions appended, whether it was folded or not."""

from itertools import count

import pytest
from django.db import connections, transaction

from frontier import counts
from frontier.counts import MOST_CHANGES, Count, change, fold, queued, waiting
from frontier.models import Change
from tests.frontier.world import Killed, World, die, interleave


def append(frontier: World, *changes: tuple[int, Count]) -> None:
    with transaction.atomic(using=frontier.using), connections[frontier.using].cursor() as cursor:
        for campaign, one in changes:
            change(cursor, {campaign: one})


def many(frontier: World, rows: int = MOST_CHANGES) -> dict[int, Count]:
    """Changes of three campaigns, and the sums of each."""
    append(frontier, *((number % 3, Count(number, 2 - number, 1)) for number in range(rows)))
    return {campaign: waiting(campaign, frontier.using) for campaign in range(3)}


def sums(frontier: World) -> dict[int, Count]:
    return {campaign: waiting(campaign, frontier.using) for campaign in range(3)}


def test_many_changes_become_one_row_of_each_campaign(frontier: World) -> None:
    before, total = many(frontier), queued(frontier.using)
    assert before[1].urls == sum(range(1, MOST_CHANGES, 3))
    assert total == 2 * MOST_CHANGES
    fold(frontier.using)
    assert sorted(Change.objects.using(frontier.using).values_list("campaign", flat=True)) == [0, 1, 2]
    assert sums(frontier) == before
    assert queued(frontier.using) == total
    append(frontier, (1, Count(-5, 5)))
    assert waiting(1, frontier.using) == (before[1].urls - 5, before[1].held + 5, before[1].hosts)


def test_a_few_changes_are_left_lying(frontier: World) -> None:
    before = many(frontier, MOST_CHANGES - 1)
    fold(frontier.using)
    assert Change.objects.using(frontier.using).count() == MOST_CHANGES - 1
    assert sums(frontier) == before


def test_a_campaign_of_which_nothing_is_left_has_no_row(frontier: World) -> None:
    append(frontier, *((1, Count(urls, 0, 0)) for urls in [1, -1] * MOST_CHANGES), (2, Count()))
    fold(frontier.using)
    assert not Change.objects.using(frontier.using).exists()
    assert waiting(1, frontier.using) == (0, 0, 0)


def test_more_changes_than_a_statement_has_room_for_are_folded_in_turns(frontier: World, monkeypatch) -> None:
    monkeypatch.setattr(counts, "MOST_FOLDED", 300)
    before = many(frontier, 1_000)
    left = []
    for _ in range(4):
        fold(frontier.using)
        assert sums(frontier) == before
        left.append(Change.objects.using(frontier.using).count())
    assert left == [703, 406, 109, 109]


@pytest.mark.parametrize("after", [True, False])
def test_a_fold_that_dies_changes_no_sum(frontier: World, after: bool) -> None:
    before = many(frontier)
    with pytest.MonkeyPatch.context() as patch:
        die(patch, counts, "change", after=after)
        with pytest.raises(Killed):
            fold(frontier.using)
    assert sums(frontier) == before
    assert Change.objects.using(frontier.using).count() == MOST_CHANGES


def test_what_others_append_during_a_fold_is_neither_lost_nor_counted_twice(frontier: World) -> None:
    for step in count(1):
        frontier.clear()
        many(frontier)

        def other() -> None:
            append(frontier, (0, Count(1_000, 100, 10)), (5, Count(7)))

        before = sums(frontier)
        stopped = interleave(frontier.using, lambda: fold(frontier.using), step, other)
        urls, held, hosts = before[0]
        assert sums(frontier) == before | {0: (urls + 1_000, held + 100, hosts + 10)}
        assert waiting(5, frontier.using) == (7, 0, 0)
        assert Change.objects.using(frontier.using).count() <= 5
        if not stopped:
            break
    assert step > 3


def test_a_merge_folds(frontier: World) -> None:
    before = many(frontier)
    frontier.add("https://a.test/", campaign=9)
    assert Change.objects.using(frontier.using).count() == 4
    assert sums(frontier) == before
    assert waiting(9, frontier.using) == (1, 0, 1)
