"""Many texts in one piece of memory: each comes out by its place."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from frontier.lines import Lines

texts = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=8)


@given(parts=st.lists(st.lists(texts, min_size=1, max_size=5), max_size=5), data=st.data())
def test_lines_are_taken_by_their_places_in_any_order(parts: list[list[str]], data: st.DataObject) -> None:
    lines = Lines("\n".join(part) for part in parts)
    expected = [text for part in parts for text in part]
    assert len(lines) == len(expected)
    places = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=9)) if expected else []
    assert lines.take(np.array(places, np.int64)) == [expected[place] for place in places]
    assert lines.take(np.arange(len(expected))) == expected


def test_no_lines_are_no_texts() -> None:
    assert len(Lines()) == 0
    assert Lines().take(np.empty(0, np.int64)) == []


def test_an_empty_text_is_a_line() -> None:
    assert Lines(["", "", "a\n", "\nb"]).take(np.arange(6)) == ["", "", "a", "", "", "b"]


def test_only_a_line_feed_ends_a_line() -> None:
    odd = ["a\rb", "a\u2028b", "a\x85b", "a\x0bb", "\u4e2d\U0001f600"]
    assert Lines(odd).take(np.arange(len(odd))[::-1]) == odd[::-1]
