"""Arrival logs on the disk: their lines, and a disk that refuses."""

import errno
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl.store.arrivals import HEADER, KINDS, Arrival, ArrivalLogs, NotALine, arrival_of, line_of

ONE = Arrival(
    *(1796129791.228316, 1796129791.229962, 1796129791.230175, "a.test:8080", "2001:db8::1", "page", "200"),
    *(0.501294, 1.0, None, 1.25, 3, None, "http://a.test:8080/x?y=1"),
)
LINE = (
    "1796129791.228316\t1796129791.229962\t1796129791.230175\ta.test:8080\t2001:db8::1\tpage\t200"
    "\t0.501294\t1\t\t1.25\t3\t\thttp://a.test:8080/x?y=1"
)


def test_a_line_has_a_column_for_each_thing_that_is_known() -> None:
    assert line_of(ONE) == LINE
    assert arrival_of(LINE) == ONE
    assert HEADER.split("\t") == list(Arrival._fields)


seconds = st.floats(0, 9_999_999_999).map(lambda value: round(value, 6))
texts = st.text(st.characters(exclude_characters="\\"), min_size=1)


@given(st.tuples(seconds, seconds, seconds), texts, st.sampled_from(sorted(KINDS)), st.none() | seconds, texts)
def test_a_line_never_breaks_and_reads_as_it_was_written(
    times: tuple[float, float, float], host: str, kind: str, delay: float | None, url: str
) -> None:
    one = Arrival(*times, host, "", kind, "200", -0.25, delay, None, None, 1, delay, url)
    line = line_of(one)
    assert line.replace("\t", "").isprintable()
    read = arrival_of(line)
    assert [value for value in read if not isinstance(value, str)] == [v for v in one if not isinstance(v, str)]
    if url.isprintable() and host.isprintable():
        assert read == one


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "1 columns instead of 14"),
        (LINE + "\t", "15 columns instead of 14"),
        (LINE.replace("page", "pagan"), "'pagan' is no kind of line"),
        (LINE.replace("a.test:8080\t", "\t"), "it names no host"),
        (LINE.replace("1796129791.228316", "yesterday"), "'yesterday' is not a number of seconds"),
        (LINE.replace("1796129791.228316", ""), "'' is not a number of seconds"),
        (LINE.replace("1796129791.228316", "nan"), "'nan' is not a number of seconds"),
        (LINE.replace("\t1\t", "\t-1\t"), "'-1' is not a number of seconds"),
        (LINE.replace("\t3\t", "\t0\t"), "'0' is not a burst"),
        (LINE.replace("\t3\t", "\t\t"), "'' is not a burst"),
    ],
)
def test_what_is_no_line_is_refused_with_a_reason(line: str, reason: str) -> None:
    with pytest.raises(NotALine) as refused:
        arrival_of(line)
    assert str(refused.value) == reason


def test_each_run_has_a_folder_with_a_file_of_each_process(tmp_path: Path) -> None:
    logs = ArrivalLogs(tmp_path / "arrivals")
    logs.write({"7": [ONE], "8": [ONE, ONE]})
    logs.write({"7": [ONE]})
    [seven], [eight] = (list((tmp_path / "arrivals" / run).iterdir()) for run in ("7", "8"))
    assert seven.read_text() == eight.read_text() == f"{HEADER}\n{LINE}\n{LINE}\n"
    assert f"-{os.getpid()}-" in seven.name


def test_without_an_arrival_no_folder_is_made(tmp_path: Path) -> None:
    ArrivalLogs(tmp_path / "arrivals").write({})
    assert not (tmp_path / "arrivals").exists()


def test_what_a_full_disk_took_of_a_batch_is_cut_off_and_written_again(tmp_path: Path) -> None:
    logs = ArrivalLogs(tmp_path)
    logs.write({"7": [ONE]})
    waiting = {"6": [ONE], "7": [ONE, ONE]}
    write, left = os.write, [20]

    def full(descriptor: int, data: Any) -> int:
        """Takes a few bytes of the second run's lines, then none."""
        if data[:4] == b"begu":
            return write(descriptor, data)
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: left.pop()])

    with mock.patch("os.write", full), pytest.raises(OSError, match="No space"):
        logs.write(waiting)
    [log] = (tmp_path / "7").iterdir()
    assert list(waiting) == ["7"], "what was written is not written again"
    assert log.read_text() == f"{HEADER}\n{LINE}\n"
    logs.write(waiting)
    assert not waiting
    assert log.read_text() == f"{HEADER}\n{LINE}\n{LINE}\n{LINE}\n"
