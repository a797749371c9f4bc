"""Sorted runs against plain sets of Python."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from frontier.seen import runs
from frontier.seen.runs import DamagedRun, Run

TOP = (1 << 64) - 1
# Few high halves, so that many keys share one; the ends of the range among them.
halves = st.one_of(st.integers(0, 4), st.sampled_from([(1 << 63) - 1, 1 << 63, TOP]), st.integers(0, TOP))
keys = st.dictionaries(st.tuples(st.one_of(st.integers(0, 4), halves), halves), st.integers(1, TOP), max_size=40)

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def run_of(entries: dict[tuple[int, int], int], values: bool = True) -> Run:
    """A run; keys with equal high halves stand in no order, as after a merge."""
    ordered = sorted(entries, key=lambda key: (key[0], -key[1]))
    columns = [
        [high for high, _ in ordered],
        [low for _, low in ordered],
        [entries[key] for key in ordered] if values else [],
    ]
    high, low, value = (np.array(column, np.uint64) for column in columns)
    return Run(high, low, value)


def content(run: Run) -> dict[tuple[int, int], int]:
    assert (run.high[1:] >= run.high[:-1]).all()
    pairs = list(zip(run.high.tolist(), run.low.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return dict(zip(pairs, run.value.tolist() or [0] * len(pairs), strict=True))


@quick
@given(entries=keys, others=keys, data=st.data())
def test_member_finds_exactly_the_keys_that_are_there(entries, others, data) -> None:
    run = run_of(entries)
    asked = data.draw(st.permutations([*entries, *others, *others]))
    asked.sort(key=lambda key: key[0])
    high, low = (np.array(half, np.uint64) for half in (zip(*asked, strict=True) if asked else ([], [])))
    found, where = runs.member(run, high, low)
    assert found.tolist() == [key in entries for key in asked]
    for key, is_there, at in zip(asked, found.tolist(), where.tolist(), strict=True):
        if is_there:
            assert int(run.value[at]) == entries[key]


@quick
@given(a=keys, b=keys, chunk=st.integers(1, 9), values=st.booleans())
@example(a={(7, i): 1 for i in range(9)}, b={(7, i): 1 for i in range(9, 20)}, chunk=2, values=True)
@example(a={}, b={}, chunk=1, values=False)
def test_merged_is_the_union_in_order(monkeypatch, a, b, chunk, values) -> None:
    monkeypatch.setattr(runs, "CHUNK", chunk)
    b = {key: value for key, value in b.items() if key not in a}
    union = {**a, **b} if values else dict.fromkeys([*a, *b], 0)
    parts = list(runs.merged(run_of(a, values), run_of(b, values)))
    if parts:
        assert content(runs.joined(iter(parts))) == union
    else:
        assert union == {}


@quick
@given(a=keys, b=keys, chunk=st.integers(1, 9), values=st.booleans())
def test_what_was_written_is_loaded(monkeypatch, tmp_path: Path, a, b, chunk, values) -> None:
    monkeypatch.setattr(runs, "CHUNK", chunk)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    b = {key: value for key, value in b.items() if key not in a}
    union = {**a, **b} if values else dict.fromkeys([*a, *b], 0)
    path = tmp_path / "x.run"
    runs.write(path, len(union), runs.merged(run_of(a, values), run_of(b, values)), with_values=values)
    assert content(runs.load(path)) == union
    assert path.stat().st_size == runs.HEADER + 8 * len(union) * (3 if values else 2)
    path.unlink()


@quick
@given(entries=keys.filter(len), cut=st.integers(1, 200))
def test_a_file_of_another_size_is_damaged(monkeypatch, tmp_path: Path, entries, cut) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    path = tmp_path / "x.run"
    runs.write(path, len(entries), iter([run_of(entries)]), with_values=True)
    whole = path.read_bytes()
    for damaged in (whole[: -min(cut, len(whole))], whole + bytes(cut)):
        path.write_bytes(damaged)
        with pytest.raises(DamagedRun):
            runs.load(path)
    path.unlink()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def failing() -> Iterator[Run]:
        yield run_of({(1, 1): 1})
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        runs.write(tmp_path / "x.run", 2, failing(), with_values=True)
    with pytest.raises(ValueError, match="1 keys instead of 2"):
        runs.write(tmp_path / "x.run", 2, iter([run_of({(1, 1): 1})]), with_values=True)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamagedRun, match="No such file"):
        runs.load(tmp_path / "x.run")


@quick
@given(entries=keys.filter(bool), where=st.integers(0, 1 << 20), bit=st.integers(0, 7), with_values=st.booleans())
def test_a_bit_that_has_changed_is_damage(tmp_path: Path, entries, where, bit, with_values) -> None:
    path = tmp_path / "a.run"
    runs.write(path, len(entries), iter([run_of(entries, with_values)]), with_values)
    data = bytearray(path.read_bytes())
    data[where % len(data)] ^= 1 << bit
    path.write_bytes(data)
    with pytest.raises(DamagedRun):
        runs.load(path)


def test_a_file_of_an_older_version_has_no_checksum_and_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    runs.write(path, 1, iter([run_of({(1, 2): 3})]), with_values=True)
    data = bytearray(path.read_bytes())
    data[24:32] = bytes(8)
    path.write_bytes(data)
    assert content(runs.load(path)) == {(1, 2): 3}
