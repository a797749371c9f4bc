"""A robots.txt that does not come whole: what is missing may forbid what the rest allows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crawl.running import LOCAL, Ran, crawl
from tests.scripted import Answer, Asked, ScriptedSite, page, scripted

RULES = "# rules\nUser-agent: *\nDisallow: /p\n"
SITE = {"/": page("/p", "/q"), "/p": page(), "/q": page()}


def crawled(data: Path, robots: Answer | Callable[[Asked], Answer]) -> tuple[ScriptedSite, Ran]:
    with scripted({**SITE, "/robots.txt": robots}) as site:
        return site, crawl(data, f"{site.url}/", *LOCAL, "--delay", "0.3", "--no-adaptive-delay")


def times(site: ScriptedSite) -> list[float]:
    return [one.time for one in site.asked]


def cuts(*lengths: int) -> Callable[[Asked], Answer]:
    """The rules up to each of these lengths in turn; the last one for ever."""
    left = list(lengths)

    def answer(asked: Asked) -> Answer:
        length = left.pop(0) if len(left) > 1 else left[0]
        return Answer(RULES[:length], missing=len(RULES) - length)

    return answer


@pytest.mark.parametrize("length", [10, 24, len(RULES) - 1])
def test_it_is_asked_for_once_more_after_the_gap_and_then_holds(tmp_path: Path, length: int) -> None:
    site, ran = crawled(tmp_path, cuts(length, len(RULES)))
    assert [one.path for one in site.asked] == ["/robots.txt", "/robots.txt", "/", "/q"]
    first, second, third, _ = times(site)
    assert min(second - first, third - second) > 0.29
    assert ran.told["pages"] == 2


def test_what_ends_at_the_same_place_twice_is_the_file(tmp_path: Path) -> None:
    site, ran = crawled(tmp_path, Answer(RULES, missing=1))
    assert [one.path for one in site.asked] == ["/robots.txt", "/robots.txt", "/", "/q"]
    assert ran.told["pages"] == 2


def test_while_it_ends_elsewhere_each_time_nothing_is_fetched(tmp_path: Path) -> None:
    lengths = iter(range(5, 1000))
    site, ran = crawled(tmp_path, lambda asked: Answer("#" * next(lengths), missing=9))
    assert site.paths() == []
    assert [error["kind"] for error in ran.told["errors"]] == ["robots-unreachable"]
    assert "robots.txt breaks off" in ran.told["errors"][0]["example"]
