"""Arrival logs of real crawls: what is in them, what trawl manners makes of it, and what a kill leaves."""

import json
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from crawl.store.arrivals import HEADER, Arrival, arrival_of, line_of
from tests.crawl.installation import Installation
from tests.crawl.running import LOCAL, Ran, command, crawl, environment
from tests.rig import ROOT, free_port, wait_until
from tests.scripted import Answer, Asked, page, redirect, scripted

TEXT = {"Content-Type": "text/plain"}
NAMES = ("--resolve", "*.test=127.0.0.1")
# The server's clock is the same one; its thread may be late to look at it.
SLACK_SECONDS = 0.25


def files(data: Path, run: int = 1) -> list[Path]:
    """The log of a run, by the time at which its processes began. In these tests the ids of runs are their numbers."""
    return sorted((data / "arrivals").glob(f"{run}-*/*.tsv"))


def logged(data: Path, run: int = 1) -> list[Arrival]:
    """The lines of a run, by file and in order."""
    found = []
    for path in files(data, run):
        head, *lines = path.read_text().split("\n")[:-1]  # without what a kill has cut
        assert head == HEADER
        found += [arrival_of(line) for line in lines]
    return found


def manners(data: Path, *arguments: str) -> Ran:
    return Installation(data).run("manners", *arguments)


def test_a_crawl_that_was_asked_to_wait_can_show_that_it_did(tmp_path: Path) -> None:
    """A Crawl-delay, a 429 with a Retry-After, a redirect; the log says what the server saw."""
    answers = iter([Answer(status=429, headers={"Retry-After": "2"})])
    site_map: dict[str, Any] = {
        "/robots.txt": Answer("User-agent: *\nCrawl-delay: 0.6\n", headers=TEXT),
        "/": page("/busy", "/old"),
        "/busy": lambda asked: next(answers, page()),
        "/old": redirect("/new"),
        "/new": page(),
    }
    with scripted(site_map) as site:
        since_epoch = time.time() - time.monotonic()
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL, "--delay", "0.3", "--arrival-log", "--name", "garden")
        assert ran.code == 0
    lines = logged(tmp_path)
    host = f"127.0.0.1:{site.port}"
    assert [(one.kind, one.result, one.url) for one in lines] == [
        ("robots", "200", f"{site.url}/robots.txt"),
        ("page", "200", f"{site.url}/"),
        ("page", "429", f"{site.url}/busy"),
        ("page", "200", f"{site.url}/busy"),
        ("page", "302", f"{site.url}/old"),
        ("page", "200", f"{site.url}/new"),
    ]
    assert {(one.host, one.address, one.delay, one.burst) for one in lines} == {(host, "127.0.0.1", 0.3, 1)}
    assert [one.crawl_delay for one in lines] == [None, *[0.6] * 5]
    assert lines[2].until == pytest.approx(lines[2].ended + 2, abs=0.001)
    assert [one.until for one in lines if one.result != "429"] == [None] * 5
    for one, asked in zip(lines, site.asked, strict=True):
        assert one.begun - 0.001 <= asked.time + since_epoch <= one.arrived + SLACK_SECONDS
        assert one.begun <= one.arrived <= one.ended

    told = manners(tmp_path, "garden")
    assert (told.code, told.err) == (0, "")
    assert told.out.endswith("\n6 requests to 1 host: every gap was kept\n")
    told = manners(tmp_path, "1", "--host", host)
    assert told.code == 0
    assert told.out.count(" s, due 0.600 s (Crawl-delay)") == 4
    assert told.out.count("(Retry-After)") == 1


def test_a_log_with_one_time_moved_is_bad_conduct(tmp_path: Path) -> None:
    with scripted({"/": page("/a", "/b"), "/a": page(), "/b": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--delay", "0.4", "--arrival-log", "--name", "garden")
    assert manners(tmp_path, "garden").code == 0
    [path] = files(tmp_path)
    head, *lines, last = path.read_text().splitlines()
    one = arrival_of(last)
    before = arrival_of(lines[-1])
    moved = one.begun - before.arrived - 0.3
    path.write_text("\n".join([head, *lines, line_of(one._replace(begun=one.begun - moved))]) + "\n")
    ran = manners(tmp_path, "garden")
    assert ran.code == 1
    assert f"0.300000 s instead of 0.400000 s (own delay), {one.url} after {before.url}\n" in ran.out
    assert ran.out.endswith("4 requests to 1 host: 1 gap was too small\n")


def test_a_robots_txt_on_another_host_counts_for_that_host(tmp_path: Path) -> None:
    def robots(asked: Asked) -> Answer:
        return Answer("", headers=TEXT) if asked.host.startswith("b.") else redirect(f"http://b.test:{site.port}/rules")

    rules = Answer("User-agent: *\nDisallow: /5\n", headers=TEXT)
    with scripted({"/robots.txt": robots, "/rules": rules, "/": page("/1"), "/1": page()}) as site:
        urls = [f"http://{name}.test:{site.port}/" for name in ("a1", "a2", "b")]
        crawl(tmp_path, *urls, *LOCAL, *NAMES, "--delay", "0.3", "--arrival-log", "--name", "garden")
    asked = [(one.host.partition(".")[0], one.kind, one.url.rpartition("/")[2]) for one in logged(tmp_path)]
    assert sorted(asked) == sorted(
        [
            *((name, "robots", "robots.txt") for name in ("a1", "a2", "b")),
            ("b", "robots", "rules"),
            ("b", "robots", "rules"),
        ]
        + [(name, "page", path) for name in ("a1", "a2", "b") for path in ("", "1")]
    )
    ran = manners(tmp_path, "garden")
    assert ran.code == 0, ran.out
    assert f"b.test:{site.port}          5" in ran.out


def test_a_wait_that_another_host_asked_for_with_its_robots_txt_is_kept_by_that_hosts_visits(tmp_path: Path) -> None:
    busy = iter([Answer(status=503, headers={"Retry-After": "3"})])

    def robots(asked: Asked) -> Answer:
        return Answer("", headers=TEXT) if asked.host.startswith("b.") else redirect(f"http://b.test:{site.port}/rules")

    # A link at a time, so that the visits of both hosts are short and there are many.
    chain = {f"/{number}": page(f"/{number + 1}") for number in range(25)}
    script: dict[str, Any] = {
        "/robots.txt": robots,
        "/rules": lambda asked: next(busy, Answer("", headers=TEXT)),
        "/": page("/0"),
    }
    with scripted(script | chain) as site:
        urls = [f"http://{name}.test:{site.port}/" for name in ("b", "a")]
        crawl(tmp_path, *urls, *LOCAL, *NAMES, "--delay", "0.2", "--arrival-log", "--name", "garden")
    assert [one.result for one in logged(tmp_path) if one.url.endswith("/rules")] == ["503", "200"]
    ran = manners(tmp_path, "garden")
    assert ran.code == 0, ran.out


def test_what_was_never_sent_is_logged_as_such_and_its_back_off_is_kept(tmp_path: Path) -> None:
    port = free_port()
    ran = crawl(tmp_path, f"http://127.0.0.1:{port}/", *LOCAL, "--arrival-log", "--name", "garden")
    assert ran.code == 1
    lines = logged(tmp_path)
    assert [one.kind for one in lines] == ["unsent", "pause", "unsent", "pause", "unsent"]
    assert [one.result for one in lines if one.kind == "unsent"] == ["connect"] * 3
    assert [one.result.partition(":")[0] for one in lines if one.kind == "pause"] == ["connect"] * 2
    assert [one.until is not None and one.until - one.begun >= 2 for one in lines] == [False, True, False, True, False]
    told = manners(tmp_path, "garden", "--json").told
    assert (told["requests"], told["never_sent"], told["too_small"]) == (0, 3, 0)


def test_an_answer_that_never_came_was_a_request(tmp_path: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        port = listening.getsockname()[1]
        words = [*command(tmp_path, f"http://127.0.0.1:{port}/", *LOCAL), "--arrival-log"]
        process = subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=-1, stderr=-1)
        connection, _ = listening.accept()
        connection.close()
        wait_until(lambda: (tmp_path / "arrivals").exists())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert (logged(tmp_path)[0].kind, logged(tmp_path)[0].result) == ("robots", "disconnect")


def test_a_disk_that_refuses_the_log_keeps_pages_waiting_and_loses_nothing(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "data" / "crawl.log"
    data.mkdir()
    (data / "arrivals").write_text("in the way")
    with scripted({"/": page("/a"), "/a": page()}) as site:
        words = [*command(data, f"{site.url}/", *LOCAL), "--arrival-log"]
        with subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=-1, stderr=-1, text=True) as process:
            try:
                wait_until(lambda: log.exists() and "could not be stored, trying again" in log.read_text())
            finally:
                (data / "arrivals").unlink()
            out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert [one.url for one in logged(data)] == [f"{site.url}{asked.path}" for asked in site.asked]
    assert json.loads(out)["pages"] == 2


def test_bursts_are_good_conduct(tmp_path: Path) -> None:
    names = [f"/{number}" for number in range(6)]
    with scripted({"/": page(*names), **{name: page() for name in names}}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--delay", "0.4", "--burst", "4", "--arrival-log", "--name", "garden")
    assert {one.burst for one in logged(tmp_path)} == {4}
    ran = manners(tmp_path, "garden", "--host", f"127.0.0.1:{site.port}")
    assert ran.code == 0, ran.out
    assert "none due (burst)" in ran.out


def test_the_campaign_remembers_that_it_keeps_a_log_until_it_is_told_not_to(tmp_path: Path) -> None:
    with scripted({"/": page()}) as site:
        words = (f"{site.url}/", *LOCAL, "--name", "garden")
        crawl(tmp_path, *words)
        assert not (tmp_path / "arrivals").exists()
        refused = manners(tmp_path, "garden")
        assert (refused.code, refused.out) == (2, "")
        assert "run 1 of 'garden' has kept no arrival log" in refused.err
        assert "--arrival-log" in refused.err
        crawl(tmp_path, *words, "--again", "--arrival-log")
        crawl(tmp_path, *words, "--again")
        assert [len(logged(tmp_path, run)) for run in (2, 3)] == [1, 1], "robots.txt holds for a day"
        crawl(tmp_path, *words, "--again", "--no-arrival-log")
        assert not files(tmp_path, 4)
        assert manners(tmp_path, "garden").code == 2
        assert manners(tmp_path, "garden#3").code == 0
        assert manners(tmp_path, "2").out == manners(tmp_path, str(files(tmp_path, 2)[0].parent)).out
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--name", "park", "--arrival-log")
        both = manners(tmp_path, "1")
        assert (both.code, both.err) == (
            2,
            "trawl: 2 campaigns have a run 1: say which, as 'garden#1', 'park#1'\n",
        )
        unknown = manners(tmp_path, "gardn")
        assert (unknown.code, unknown.err) == (
            2,
            "trawl: there is no run 'gardn'; there are the campaigns 'garden', 'park'\n",
        )


def test_after_a_kill_the_log_can_be_read_and_a_new_start_keeps_the_gaps(tmp_path: Path) -> None:
    names = [f"/{number}" for number in range(40)]
    hosts = [f"h{number}.test" for number in range(4)]
    with scripted({"/": page(*names), **{name: page() for name in names}}) as site:
        urls = [f"http://{host}:{site.port}/" for host in hosts]
        words = [*command(tmp_path, *urls, *LOCAL, *NAMES), "--delay", "0.1", "--arrival-log", "--name", "garden"]
        for wanted in (60, 120):
            process = subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=-1, stderr=-1)
            wait_until(lambda wanted=wanted: len(site.asked) > wanted)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        crawl(tmp_path, *words[words.index("--json") + 1 :])
    assert len(files(tmp_path)) == 3
    lines = logged(tmp_path)
    stored = Installation(tmp_path).rows("SELECT count(*) FROM crawl_fetch WHERE status > 0")[0][0]
    assert stored <= sum(one.kind == "page" for one in lines) <= len(site.paths()), "a page is stored after its line"
    assert {one.url for one in lines} >= {f"http://{host}:{site.port}{name}" for host in hosts for name in names}
    ran = manners(tmp_path, "garden")
    assert ran.code == 0, ran.out
