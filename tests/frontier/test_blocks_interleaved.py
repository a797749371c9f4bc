"""Domain blocks under two hands at once: whatever the order of their steps, no mark outlives its block."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from frontier.blocking import FEW, block, lift_expired, sweep_marks, unblock, walk
from frontier.blocks import Blocks, covering
from frontier.models import BlockChange, DomainBlock
from frontier.purge import purge
from tests.frontier.test_blocks_filter import directory
from tests.frontier.world import World, interleave

OTHERS = [f"other{n}.test" for n in range(FEW)]
Act = Callable[[World], Any]


def known_and_blocked(world: World) -> None:
    world.add("https://a.test/")
    block(["a.test"], using=world.using)


def blocked_but_not_marked(world: World) -> None:
    world.add("https://a.test/")
    block(["a.test", *OTHERS], using=world.using)


def blocked_and_admitted(world: World) -> None:
    block(["a.test"], using=world.using)
    world.admit("https://a.test/")


def known(world: World) -> None:
    world.add("https://a.test/")


ACTS: dict[str, Act] = {
    "walk": lambda world: list(walk(world.using)),
    "merge": lambda world: world.merge(),
    "block": lambda world: block(["a.test"], using=world.using),
    "unblock": lambda world: unblock(["a.test"], world.using),
    "lift": lambda world: lift_expired(world.using),
    "sweep": lambda world: sweep_marks(world.using),
    "delete": lambda world: DomainBlock.objects.using(world.using).filter(domain="a.test").delete(),
    "purge": lambda world: list(purge(None, world.using)),
}
PAIRS = [
    (blocked_but_not_marked, "walk", "unblock"),
    (blocked_but_not_marked, "unblock", "walk"),
    (blocked_but_not_marked, "delete", "walk"),
    (blocked_and_admitted, "merge", "unblock"),
    (blocked_and_admitted, "unblock", "merge"),
    (known_and_blocked, "unblock", "block"),
    (known_and_blocked, "block", "unblock"),
    (known_and_blocked, "delete", "block"),
    (known_and_blocked, "block", "delete"),
    (known_and_blocked, "sweep", "unblock"),
    (known, "block", "block"),
]


@pytest.mark.parametrize(("before", "one", "other"), PAIRS)
def test_marks_agree_with_the_blocks_in_the_end(frontier: World, before: Act, one: str, other: str) -> None:
    for step in count(1):
        frontier.clear()
        before(frontier)
        going_on = interleave(frontier.using, lambda: ACTS[one](frontier), step, lambda: ACTS[other](frontier))
        frontier.merge()
        list(walk(frontier.using))
        host = frontier.host("a.test")
        is_blocked = bool(covering(["a.test"], frontier.using))
        assert host.blocked == is_blocked, step
        assert [visit.name for visit in frontier.visit()] == ([] if is_blocked else ["a.test"]), step
        if not going_on:
            break


def test_a_purge_takes_nothing_of_a_host_whose_block_was_lifted_before_it_got_there(frontier: World) -> None:
    outcomes = set()
    for step in count(1):
        frontier.clear()
        known_and_blocked(frontier)
        going_on = interleave(frontier.using, lambda: ACTS["purge"](frontier), step, lambda: ACTS["unblock"](frontier))
        left = bool(frontier.urls())
        assert [visit.name for visit in frontier.visit()] == (["a.test"] if left else [])
        outcomes.add(left)
        if not going_on:
            break
    assert outcomes == {True, False}


def test_a_process_that_refreshes_at_any_moment_misses_no_change(frontier: World) -> None:
    """Row ids and versions become visible in the order of the commits."""
    for step in count(1):
        frontier.clear()
        follower = Blocks(frontier.using, directory())
        follower.refresh()

        def other(follower: Blocks = follower) -> None:
            block(["b.test"], using=frontier.using)
            follower.refresh()

        going_on = interleave(frontier.using, lambda: ACTS["block"](frontier), step, other)
        follower.refresh()
        assert follower.blocked(["a.test", "b.test", "c.test"]) == {"a.test", "b.test"}, step
        versions = list(BlockChange.objects.using(frontier.using).order_by("version").values_list("version", flat=True))
        assert versions == [1, 2]
        if not going_on:
            break
