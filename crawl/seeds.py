"""Seeds as people write them: a URL in each line, after a tab a weight."""

from frontier.priority import MAX_WEIGHT
from frontier.urls import URL, InvalidURL, canonicalise


class InvalidSeed(ValueError):
    """A line that is no seed; the message says which and why."""


def parse_seeds(text: str) -> list[tuple[URL, int]]:
    """The seeds of a text with their weights; empty lines and those that begin with # are left out.

    Raises InvalidSeed for the first line that is none, with its number.
    """
    seeds = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                seeds.append(_parse_line(line))
            except InvalidSeed as error:
                raise InvalidSeed(f"line {number}: {error}") from None
    return seeds


def parse_seed(text: str) -> URL:
    """One URL. Raises InvalidSeed."""
    if "://" not in text:
        raise InvalidSeed(f"'{text}' is not a URL: write it with http:// or https://")
    try:
        return canonicalise(text)
    except InvalidURL as error:
        raise InvalidSeed(f"'{text}' cannot be crawled: {error}") from None


def _parse_line(line: str) -> tuple[URL, int]:
    url, *weights = [part.strip() for part in line.strip().split("\t") if part.strip()]
    if len(weights) > 1:
        raise InvalidSeed("more than a URL, a tab and a weight")
    if weights and weights[0] not in map(str, range(1, MAX_WEIGHT + 1)):
        raise InvalidSeed(f"'{weights[0]}' is not a weight from 1 to {MAX_WEIGHT}")
    return parse_seed(url), int(weights[0]) if weights else MAX_WEIGHT
