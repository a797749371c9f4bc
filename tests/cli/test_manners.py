"""trawl manners, upon arrival logs that are written by hand."""

import json
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from crawl import sorting
from crawl.manners import LINE_BYTES, Logs
from crawl.store.arrivals import HEADER, line_of
from tests.crawl.installation import Installation
from tests.crawl.running import Ran
from tests.crawl.test_conduct import T, asked, pause


@pytest.fixture
def one(tmp_path: Path) -> Installation:
    """An installation with nothing in it."""
    return Installation(tmp_path / "data")


def log(path: Path, *lines: Any) -> Path:
    """An arrival log of these arrivals, and of these texts as they stand."""
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("\n".join([HEADER, *(one if isinstance(one, str) else line_of(one) for one in lines)]) + "\n")
    return path


def rows(ran: Ran) -> list[list[str]]:
    """The rows of the table, without its head."""
    lines = ran.out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("host "))
    end = lines.index("", start)
    return [line.split() for line in lines[start + 1 : end]]


def test_good_conduct_is_shown_without_a_database(one: Installation, tmp_path: Path) -> None:
    path = log(tmp_path / "log.tsv", asked(0), asked(1.5), asked(2.9, host="b.test"))
    ran = one.run("manners", str(path))
    assert (ran.code, ran.err) == (0, "")
    assert rows(ran) == [
        ["a.test", "2", "1.490", "1.000", "1.490", "own", "delay", "kept"],
        ["b.test", "1", "-", "-", "-", "-", "kept"],
    ]
    assert "from       2026-11-30 00:53:20.000 to 2026-11-30 00:53:22.900\n" in ran.out
    assert "tolerance  0.001 s\n" in ran.out
    assert "two requests to 192.0.2.1 were begun 1.400 s apart (a.test and b.test)\n" in ran.out
    assert ran.out.endswith("\n3 requests to 2 hosts: every gap was kept\n")
    assert not one.data.exists()


def test_a_gap_that_was_too_small_is_told_with_time_and_urls(one: Installation, tmp_path: Path) -> None:
    path = log(tmp_path / "log.tsv", asked(0), asked(0.96), asked(3), asked(4, host="b.test"), asked(6, host="b.test"))
    ran = one.run("manners", str(path))
    assert ran.code == 1
    assert rows(ran)[0] == ["a.test", "3", "0.950", "1.000", "0.950", "own", "delay", "too", "small", "(1)"]
    told = "2026-11-30 00:53:20.960  a.test: 0.950000 s instead of 1.000000 s (own delay), http://a.test/0.96 after"
    assert f"\n{told} http://a.test/0\n" in ran.out
    assert ran.out.endswith("\n5 requests to 2 hosts: 1 gap was too small\n")
    assert one.run("manners", str(path), "--tolerance", "0.06").code == 0


def test_the_logs_of_two_workers_are_judged_together(one: Installation, tmp_path: Path) -> None:
    log(tmp_path / "logs" / "1.tsv", asked(0), asked(4))
    assert one.run("manners", str(tmp_path / "logs")).code == 0
    second = log(tmp_path / "logs" / "2.tsv", asked(2), asked(3.99))
    assert one.run("manners", str(second)).code == 0, "alone it is good"
    ran = one.run("manners", str(tmp_path / "logs"))
    assert ran.code == 1
    assert rows(ran) == [["a.test", "4", "0.000", "1.000", "0.000", "own", "delay", "too", "small", "(1)"]]
    assert one.run("manners", str(second), str(tmp_path / "logs" / "1.tsv")).out == ran.out.replace("1.tsv", "2.tsv")


def test_a_cut_last_line_is_left_out_and_counted(one: Installation, tmp_path: Path) -> None:
    path = log(tmp_path / "log.tsv", asked(0), asked(2))
    with open(path, "a") as file:
        file.write(line_of(asked(2.1))[:-3])
    ran = one.run("manners", str(path))
    assert (ran.code, ran.err) == (0, "1 last line cut off by a kill: left out\n")
    assert "2 requests" in ran.out


def test_a_line_that_cannot_be_read_is_told_with_its_number(one: Installation, tmp_path: Path) -> None:
    long = "x" * (3 * LINE_BYTES)
    path = log(tmp_path / "log.tsv", asked(0), "rubbish", asked(2), long, asked(4))
    with open(path, "ab") as file:
        file.write(b"\xff\xfe\n")
    ran = one.run("manners", str(path))
    assert ran.code == 1, "what it said may have been a violation"
    assert ran.err.splitlines() == [
        f"{path}, line 3: 1 columns instead of 14",
        f"{path}, line 5: longer than 65,536 bytes",
        f"{path}, line 7: not UTF-8",
    ]
    assert ran.out.endswith("3 requests to 1 host: every gap was kept, as far as the lines can be read\n")


def test_of_many_bad_lines_the_first_are_told(one: Installation, tmp_path: Path) -> None:
    ran = one.run("manners", str(log(tmp_path / "log.tsv", asked(0), *["rubbish"] * 30)))
    assert len(ran.err.splitlines()) == 21
    assert ran.err.endswith("... and 10 more unreadable lines\n")


def test_what_is_no_arrival_log_is_refused(one: Installation, tmp_path: Path) -> None:
    path = tmp_path / "log.tsv"
    path.write_text("some\tother\ttable\n")
    ran = one.run("manners", str(path))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"trawl: no arrival log: {path}, line 1: 3 columns instead of 14\n"


@pytest.mark.parametrize("text", ["", HEADER + "\n"])
def test_an_empty_log_is_no_proof(one: Installation, tmp_path: Path, text: str) -> None:
    (tmp_path / "log.tsv").write_text(text)
    ran = one.run("manners", str(tmp_path / "log.tsv"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "trawl: there is no request in the log, so it shows nothing\n"


def test_a_clock_that_went_back_leaves_the_conduct_unproven(one: Installation, tmp_path: Path) -> None:
    path = log(tmp_path / "log.tsv", asked(10), asked(20), asked(13), asked(30))
    ran = one.run("manners", str(path))
    assert ran.code == 1
    assert ran.err == f"{path}, line 4: the clock has gone back by 7.000 s\n"
    assert ran.out.endswith("4 requests to 1 host: not shown, since the clock went back\n")


def test_logs_that_were_put_one_behind_the_other_are_no_clock_that_went_back(one: Installation, tmp_path: Path) -> None:
    path = log(tmp_path / "log.tsv", asked(10), asked(20), HEADER, asked(3))
    assert (one.run("manners", str(path)).code, one.run("manners", str(path)).err) == (0, "")


def test_one_host_is_shown_request_by_request(one: Installation, tmp_path: Path) -> None:
    busy = asked(2, result="429", until=T + 32)
    lines = [asked(0, kind="robots"), asked(1.02), busy, pause(2.5, 40), asked(30), asked(31, host="b.test")]
    path = log(tmp_path / "log.tsv", *lines)
    ran = one.run("manners", str(path), "--host", "a.test")
    assert ran.code == 1
    assert ran.out.splitlines() == [
        "2026-11-30 00:53:20.000  robots  200  the first  http://a.test/0",
        "2026-11-30 00:53:21.020  page    200  gap 1.010 s, due 1.000 s (own delay)  http://a.test/1.02",
        "2026-11-30 00:53:22.000  page    429  gap 0.970 s, due 1.000 s (own delay), asked to wait until"
        " 2026-11-30 00:53:52.000 TOO SMALL  http://a.test/2",
        "2026-11-30 00:53:22.500  pause   connect: refused  until 2026-11-30 00:54:00.000  ",
        "2026-11-30 00:53:50.000  page    200  gap 27.990 s, due 37.990 s (back-off) TOO SMALL  http://a.test/30",
    ]
    records = [
        json.loads(line) for line in one.run("manners", str(path), "--host", "a.test", "--json").out.splitlines()
    ]
    assert [record["kept"] for record in records] == [True, True, False, True, False]
    assert records[1]["begun"] == "2026-11-30T00:53:21.020000+00:00"
    assert (records[1]["gap"], records[1]["due"], records[1]["set_by"]) == (1.01, 1.0, "own delay")
    unknown = one.run("manners", str(path), "--host", "c.test")
    assert (unknown.code, unknown.err) == (2, "trawl: no request to 'c.test' is in the log\n")


def test_the_tightest_hosts_are_told_and_the_rest_counted(one: Installation, tmp_path: Path) -> None:
    lines = [asked(at, host=f"h{number}.test") for number in range(30) for at in (0, 1.02 + number / 100)]
    random.Random(1).shuffle(lines)
    path = log(tmp_path / "log.tsv", *sorted(lines, key=lambda line: line.ended))
    ran = one.run("manners", str(path), "--top", "2")
    assert ran.code == 0
    assert [row[0] for row in rows(ran)[:2]] == ["h0.test", "h1.test"]
    assert "\n... and 28 more\n" in ran.out
    told = one.run("manners", str(path), "--json").told
    assert [entry["host"] for entry in told["tightest"]] == [f"h{number}.test" for number in range(20)]
    assert (told["hosts"], told["requests"]) == (30, 60)


def test_what_could_steer_a_terminal_is_shown_as_escapes(one: Installation, tmp_path: Path) -> None:
    path = log(tmp_path / "log.tsv", asked(0), line_of(asked(0.5)).replace("http", "\x1b[2J"))
    ran = one.run("manners", str(path))
    assert ran.code == 1
    assert "\x1b" not in ran.out
    assert "\\x1b[2J://a.test/0.5" in ran.out


def test_more_lines_than_memory_should_hold_are_sorted_on_the_disk(tmp_path: Path) -> None:
    lines = [asked(2 * at, host=f"h{number}.test") for number in range(40) for at in range(5)]
    lines[7] = asked(2.5, host="h1.test")
    paths = []
    for part in range(3):
        chosen = sorted(lines[part::3], key=lambda line: line.ended)
        paths.append(log(tmp_path / f"{part}.tsv", *chosen))
    folder = tmp_path / "pieces"
    folder.mkdir()
    judged = []
    for size in (10_000, 7):
        with mock.patch.object(sorting.Sorter.__init__, "__defaults__", (size,)):
            logs = Logs(folder)
        logs.read(paths)
        judged.append(logs.judge(3))
    assert list(folder.iterdir())
    assert judged[0] == judged[1]
    assert [gap.one.url for gap in judged[0].examples] == ["http://a.test/2.5"]
    assert judged[0].requests == 200


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "the following arguments are required: RUN"),
        (["garden"], "there is no run 'garden': there is no "),
        (["./nothing"], "there is no nothing"),
        (["nothing.tsv"], "there is no nothing.tsv"),
        (["x/", "--top", "-1"], "argument --top: '-1' is not a whole number of 0 or more"),
        (["x/", "--tolerance", "nan"], "argument --tolerance: it must be at least 0"),
        (["x/", "--tolerance", "much"], "argument --tolerance: 'much' is not a number of seconds"),
    ],
)
def test_wrong_usage_is_told(one: Installation, words: list[str], reason: str) -> None:
    ran = one.run("manners", *words)
    assert (ran.code, ran.out) == (2, "")
    assert reason in ran.err
    assert not one.data.exists()


def test_a_folder_without_a_log_is_told(one: Installation, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    ran = one.run("manners", str(tmp_path / "logs"))
    assert (ran.code, ran.err) == (2, f"trawl: no arrival log (.tsv) is in {tmp_path}/logs\n")
