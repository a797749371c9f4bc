"""Manners as the server sees them: gaps, robots.txt, and waits that it asks for."""

import signal
import sqlite3
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.crawl.running import LOCAL, command, crawl, environment
from tests.rig import ROOT, wait_until
from tests.scripted import Answer, Asked, page, redirect, scripted

TEXT = {"Content-Type": "text/plain"}


def gaps(asked: list[Asked]) -> list[float]:
    """Seconds between the arrivals of requests, robots.txt included."""
    return [b.time - a.time for a, b in pairwise(asked)]


def rows(data: Path, query: str) -> list[tuple[Any, ...]]:
    """What a statement finds in, or changes of, the database of a crawl that has ended."""
    with sqlite3.connect(data / "trawl.sqlite3", timeout=30) as database:
        found = database.execute(query).fetchall()
    database.close()
    return found


def test_requests_to_a_host_are_a_delay_apart_robots_included(tmp_path: Path) -> None:
    with scripted({"/": page("/a", "/b"), "/a": page(), "/b": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--delay", "0.4")
    assert len(site.asked) == 4
    assert min(gaps(site.asked)) >= 0.39


def test_a_burst_comes_at_once_and_then_one_request_each_delay(tmp_path: Path) -> None:
    # All are seeds: between a page and its links would lie a merge, which a busy machine delays.
    names = [f"/{number}" for number in range(7)]
    with scripted({name: page() for name in names}) as site:
        crawl(tmp_path, *[f"{site.url}{name}" for name in names], *LOCAL, "--delay", "0.5", "--burst", "4")
    assert len(site.asked) == 8  # robots.txt and seven pages
    moments = [asked.time - site.asked[0].time for asked in site.asked]
    assert moments[3] < 0.45 + 0.3, "one each delay it would be 1.5"
    assert all(moment >= 0.5 * (number - 3) - 0.02 for number, moment in enumerate(moments))
    assert moments[-1] < 0.5 * 7


def test_a_host_that_names_a_crawl_delay_gets_no_burst(tmp_path: Path) -> None:
    robots = Answer("User-agent: *\nCrawl-delay: 0.4\n", headers=TEXT)
    with scripted({"/robots.txt": robots, "/": page("/a", "/b"), "/a": page(), "/b": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--burst", "50")
    assert len(site.asked) == 4
    assert min(gaps(site.asked)) >= 0.39


def test_after_a_pause_that_a_host_asked_for_it_gets_no_burst(tmp_path: Path) -> None:
    answers = iter([Answer(status=429, headers={"Retry-After": "2"})])
    names = [f"/{number}" for number in range(3)]
    with scripted({"/": lambda asked: next(answers, page(*names)), **{name: page() for name in names}}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--delay", "0.4", "--burst", "20")
    pages = [asked for asked in site.asked if asked.path != "/robots.txt"]
    assert [asked.path for asked in pages[:2]] == ["/", "/"]
    assert pages[1].time - pages[0].time >= 1.99
    assert min(gaps(pages)) >= 0.39


def test_hosts_on_one_address_share_what_it_is_given(tmp_path: Path) -> None:
    """Some of them wait longer than a visit stays for it: they are given back and come again in their turn."""
    with scripted({"/": page("/a"), "/a": page()}) as site:
        urls = [f"http://h{number}.test:{site.port}/" for number in range(6)]
        local = (*LOCAL, "--resolve", "*.test=127.0.0.1", "--scope", "any")
        ran = crawl(tmp_path, *urls, *local, "--delay", "0.1", "--address-delay", "0.5")
    assert ran.told["pages"] == 12
    assert len(site.asked) == 18
    assert min(gaps(site.asked)) >= 0.4  # by when they were sent: on a busy machine one of them arrived 27 ms late
    assert len({asked.host for asked in site.asked[:6]}) == 6  # in turns


def test_in_networks_that_are_allowed_an_address_needs_no_gap_unless_it_is_named(tmp_path: Path) -> None:
    with scripted({"/": page()}) as site:
        urls = [f"http://h{number}.test:{site.port}/" for number in range(4)]
        crawl(tmp_path, *urls, *LOCAL, "--resolve", "*.test=127.0.0.1", "--delay", "3")
    assert site.asked[3].time - site.asked[0].time < 0.3


def test_a_crawl_delay_beyond_our_own_is_kept(tmp_path: Path) -> None:
    robots = Answer("User-agent: *\nCrawl-delay: 1\n", headers=TEXT)
    with scripted({"/robots.txt": robots, "/": page("/a"), "/a": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert min(gaps(site.asked)) >= 0.99


def test_what_robots_txt_forbids_is_not_asked_for_and_told(tmp_path: Path) -> None:
    robots = Answer("User-agent: trawl\nDisallow: /private\n", headers=TEXT)
    with scripted({"/robots.txt": robots, "/": page("/private/x", "/open"), "/open": page()}) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert site.paths() == ["/", "/open"]
    [error] = ran.told["errors"]
    assert error["kind"] == "robots-denied"
    assert "Disallow: /private" in error["example"]


def test_robots_txt_is_asked_for_once_whatever_the_number_of_visits(tmp_path: Path) -> None:
    site_map = {f"/{n}": page(f"/{n + 1}") for n in range(20)}
    with scripted({"/": page("/0"), **site_map}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--again")
    assert [asked.path for asked in site.asked].count("/robots.txt") == 1


@pytest.mark.parametrize("status", [500, 503])
def test_a_robots_txt_that_fails_closes_the_host(tmp_path: Path, status: int) -> None:
    with scripted({"/robots.txt": Answer(status=status), "/": page()}) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert site.paths() == []
    assert ran.code == 1
    assert [error["kind"] for error in ran.told["errors"]] == ["robots-unreachable"]


def test_robots_txt_rules_hold_for_the_first_host_of_a_redirect_chain(tmp_path: Path) -> None:
    rules = Answer("User-agent: *\nDisallow: /closed\n", headers=TEXT)
    with scripted({"/rules.txt": rules}) as other, scripted({}) as site:
        hops = {f"/hop{n}": redirect(f"/hop{n + 1}") for n in range(1, 4)}
        site.script = {
            "/robots.txt": redirect("/hop1", 301),
            **hops,
            "/hop4": redirect(f"{other.url}/rules.txt"),
            "/": page("/closed", "/open"),
            "/open": page(),
        }
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--ports", str(other.port))
        assert [asked.path for asked in other.asked] == ["/rules.txt"]
    assert "/closed" not in site.paths()
    assert "/open" in site.paths()


def test_a_sixth_redirect_of_robots_txt_means_that_there_is_none(tmp_path: Path) -> None:
    hops = {f"/hop{n}": redirect(f"/hop{n + 1}") for n in range(1, 9)}
    with scripted({"/robots.txt": redirect("/hop1"), **hops, "/": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert [path for path in site.paths() if path.startswith("/hop")] == [f"/hop{n}" for n in range(1, 6)]
    assert "/" in site.paths()


def test_a_robots_txt_on_another_host_is_asked_for_at_that_hosts_pace(tmp_path: Path) -> None:
    """Four hosts have theirs on b.test, which is visited meanwhile, and where it is no robots.txt of its own."""

    def robots(asked: Asked) -> Answer:
        return Answer("", headers=TEXT) if asked.host.startswith("b.") else redirect(f"http://b.test:{site.port}/rules")

    names = [f"/{number}" for number in range(6)]
    rules = Answer("User-agent: *\nDisallow: /5\n", headers=TEXT)
    with scripted({"/robots.txt": robots, "/rules": rules, "/": page(*names), **{n: page() for n in names}}) as site:
        urls = [f"http://{name}.test:{site.port}/" for name in ("a1", "a2", "a3", "a4", "b")]
        crawl(tmp_path, *urls, *LOCAL, "--resolve", "*.test=127.0.0.1", "--delay", "0.3", "--no-adaptive-delay")
    by_host: dict[str, list[Asked]] = {}
    for asked in site.asked:
        by_host.setdefault(asked.host.partition(".")[0], []).append(asked)
    assert min(gaps(by_host["b"])) >= 0.29
    assert [asked.path for asked in by_host["b"]].count("/rules") == 4
    for name in ("a1", "a2", "a3", "a4"):
        assert sorted(a.path for a in by_host[name]) == sorted(["/robots.txt", "/", *names[:5]])
    assert "/5" in [asked.path for asked in by_host["b"]]


def test_a_robots_txt_that_is_that_of_another_host_is_fetched_once(tmp_path: Path) -> None:
    def robots(asked: Asked) -> Answer:
        if asked.host.startswith("www."):
            return Answer("User-agent: *\nDisallow: /a\n", headers=TEXT)
        return redirect(f"http://www.example.test:{site.port}/robots.txt", 301)

    with scripted({"/robots.txt": robots, "/": page("/a", "/b"), "/b": page()}) as site:
        urls = [f"http://{name}:{site.port}/" for name in ("www.example.test", "example.test")]
        crawl(tmp_path, urls[0], *LOCAL, "--resolve", "*.test=127.0.0.1")
        crawl(tmp_path, urls[1], *LOCAL, "--resolve", "*.test=127.0.0.1")
    asked = [(one.host.partition(":")[0], one.path) for one in site.asked]
    assert asked.count(("www.example.test", "/robots.txt")) == 1
    assert ("example.test", "/b") in asked
    assert ("example.test", "/a") not in asked


def test_each_scheme_and_port_of_a_name_has_its_own_robots_txt(tmp_path: Path) -> None:
    closed = Answer("User-agent: *\nDisallow: /\n", headers=TEXT)
    with scripted({"/": page()}) as one, scripted({"/robots.txt": closed, "/": page()}) as two:
        crawl(tmp_path, f"{one.url}/", f"{two.url}/", *LOCAL)
    assert one.paths() == ["/"]
    assert two.paths() == []


@pytest.mark.parametrize("status", [429, 503])
def test_a_robots_txt_that_asks_for_a_wait_gets_it(tmp_path: Path, status: int) -> None:
    answers = iter([Answer(status=status, headers={"Retry-After": "3"})])
    with scripted({"/robots.txt": lambda asked: next(answers, Answer("", headers=TEXT)), "/": page()}) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert [asked.path for asked in site.asked] == ["/robots.txt", "/robots.txt", "/"]
    assert gaps(site.asked)[0] >= 3
    assert ran.told["errors"] == []


def test_rules_that_have_expired_hold_while_robots_txt_fails(tmp_path: Path) -> None:
    rules = Answer("User-agent: *\nDisallow: /closed\n", headers=TEXT)
    with scripted({"/robots.txt": rules, "/": page("/closed", "/open"), "/open": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
        rows(tmp_path, "UPDATE crawl_robotsfile SET expires_at = fetched_at")
        site.script["/robots.txt"] = Answer(status=500)
        site.script["/closed"] = page()
        site.asked.clear()
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL, "--again")
        assert site.asked[0].path == "/robots.txt"
        assert sorted(asked.path for asked in site.asked) == ["/", "/open", "/robots.txt"]
        assert ran.code == 0
        # A month later nobody knows what the owner wants.
        rows(tmp_path, "UPDATE crawl_robotsfile SET expires_at = 1, fetched_at = fetched_at - 31 * 86400000")
        site.asked.clear()
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL, "--again")
    assert {asked.path for asked in site.asked} == {"/robots.txt"}
    assert ran.code == 1
    [(reason, parked)] = rows(tmp_path, "SELECT reason, parked_until FROM frontier_host")
    assert reason == "robots-unreachable: robots.txt answers 500"
    assert parked / 1000 > time.time() + 3_000


@pytest.mark.parametrize("body", ["<!DOCTYPE html><h1>It works</h1>\nDisallow: /", "", "\x00\x01\x02" * 5_000])
def test_what_is_no_robots_txt_forbids_nothing(tmp_path: Path, body: str) -> None:
    with scripted({"/robots.txt": Answer(body), "/": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert site.paths() == ["/"]


def test_of_a_huge_robots_txt_behind_a_redirect_500_kib_hold(tmp_path: Path) -> None:
    huge = "User-agent: *\nDisallow: /first\n" + "# filler\n" * 60_000 + "Disallow: /late\n"
    site_map = {"/robots.txt": redirect("/rules"), "/rules": Answer(huge, headers=TEXT)}
    with scripted({**site_map, "/": page("/first", "/late"), "/late": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert site.paths() == ["/rules", "/", "/late"]


def test_two_hosts_with_different_robots_txt_are_each_judged_by_their_own(tmp_path: Path) -> None:
    def robots(asked: Asked) -> Answer:
        closed = asked.host.startswith("www.")
        return Answer(f"User-agent: *\nDisallow: {'/' if closed else ''}\n", headers=TEXT)

    with scripted({"/robots.txt": robots, "/": page()}) as site:
        seeds = [f"http://example.test:{site.port}/", f"http://www.example.test:{site.port}/"]
        crawl(tmp_path, *seeds, *LOCAL, "--resolve", "*.test=127.0.0.1")
    assert [asked.host for asked in site.asked if asked.path == "/"] == [f"example.test:{site.port}"]


@pytest.mark.parametrize("status", [429, 503])
def test_a_retry_after_parks_the_whole_host_for_as_long(tmp_path: Path, status: int) -> None:
    def busy_once(asked: Asked) -> Answer:
        first = [a.path for a in site.asked].count("/busy") == 1
        return Answer(status=status, headers={"Retry-After": "2"}) if first else page()

    with scripted({"/": page("/busy", "/b"), "/busy": busy_once, "/b": page()}) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert ran.code == 0
    assert site.paths() == ["/", "/busy", "/busy", "/b"]
    first, second = (asked.time for asked in site.asked if asked.path == "/busy")
    assert second - first >= 2
    assert ran.told["pages"] == 3


@pytest.mark.parametrize("value", ["-5", "soon", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_retry_after_that_makes_no_sense_never_means_at_once(tmp_path: Path, value: str) -> None:
    def busy_once(asked: Asked) -> Answer:
        first = [a.path for a in site.asked].count("/") == 1
        return Answer(status=503, headers={"Retry-After": value}) if first else page()

    with scripted({"/": busy_once}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    first, second = (asked.time for asked in site.asked if asked.path == "/")
    assert second - first >= 5


def test_a_server_error_is_tried_again_later_and_then_told(tmp_path: Path) -> None:
    with scripted({"/": page("/broken"), "/broken": Answer("oh", status=500)}) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    times = [asked.time for asked in site.asked if asked.path == "/broken"]
    assert len(times) == 3
    assert times[1] - times[0] >= 5
    assert times[2] - times[1] >= 10
    assert ran.code == 0
    assert ran.told["status"] == {"200": 1, "500": 3}


def test_a_host_that_answers_slowly_is_asked_less_often(tmp_path: Path) -> None:
    def slow(asked: Asked) -> Answer:
        time.sleep(0.3)
        return page()

    names = [f"/{number}" for number in range(8)]
    with scripted({"/": page(*names), **dict.fromkeys(names, slow)}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--delay", "0.1")
    assert gaps(site.asked)[-1] > 0.3 + 0.25, "three times 0.3 s in the end, and it gets there step by step"
    [(reason, gap_ms)] = rows(tmp_path, "SELECT reason, gap_ms FROM frontier_host")
    assert reason == "answers slowly"
    assert 400 < gap_ms < 5_000


def test_the_pace_can_be_held_to_the_delay(tmp_path: Path) -> None:
    names = [f"/{number}" for number in range(8)]

    def slow(asked: Asked) -> Answer:
        time.sleep(0.2)
        return page()

    with scripted({"/": page(*names), **dict.fromkeys(names, slow)}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--delay", "0.1", "--no-adaptive-delay")
    assert rows(tmp_path, "SELECT reason, gap_ms FROM frontier_host") == [("", 100)]


def test_server_errors_one_after_another_slow_a_host_down(tmp_path: Path) -> None:
    names = [f"/{number}" for number in range(5)]
    broken = Answer("oh", status=500)
    with scripted({"/": page(*names), **dict.fromkeys(names, broken)}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--delay", "0.1")
    first = [asked for asked in site.asked if asked.path in names][:5]
    assert gaps(first)[1] >= 0.19
    assert gaps(first)[2] >= 0.39
    assert gaps(first)[3] >= 0.79
    assert rows(tmp_path, "SELECT reason FROM frontier_host") == [("server errors one after another",)]


def test_at_a_delay_of_zero_errors_do_not_slow_a_host_down(tmp_path: Path) -> None:
    names = [f"/{number}" for number in range(5)]
    with scripted({"/": page(*names), **dict.fromkeys(names, Answer("oh", status=500))}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert rows(tmp_path, "SELECT reason, gap_ms FROM frontier_host") == [("", 0)]


def test_a_wait_that_was_shortened_is_told_as_such(tmp_path: Path) -> None:
    month = Answer(status=429, headers={"Retry-After": str(30 * 86_400)})
    told = "HTTP 429, asked to wait 30 days, shortened to 1 day"
    with scripted({"/": month}) as site:
        process = subprocess.Popen(
            command(tmp_path, f"{site.url}/", *LOCAL), cwd=ROOT, env=environment(), stdout=-1, stderr=-1, text=True
        )
        wait_until(lambda: "/" in site.paths())
        time.sleep(6)  # a line of progress every 5 s
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=30)
    assert site.paths() == ["/"]
    assert f"waits for 127.0.0.1:{site.port} ({told}), due in 23 h 59 min" in shown
    assert rows(tmp_path, "SELECT reason FROM frontier_host") == [(told,)]


def test_nofollow_is_obeyed_on_links_pages_and_in_headers(tmp_path: Path) -> None:
    pages = {
        "/": Answer("<a rel=nofollow href=/no1>n</a><a href=/meta>m</a><a href=/header>h</a>"),
        "/meta": page("/no2", head="<meta name=robots content=nofollow>"),
        "/header": Answer("<a href=/no3>n</a>", headers={"X-Robots-Tag": "nofollow"}),
    }
    with scripted(pages) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert sorted(site.paths()) == ["/", "/header", "/meta"]


def test_a_campaign_that_is_paused_elsewhere_stops_within_seconds(tmp_path: Path) -> None:
    pages = {"/": page(*(f"/{n}" for n in range(100)))} | {f"/{n}": page() for n in range(100)}
    with scripted(pages) as site:
        process = subprocess.Popen(
            [*command(tmp_path, f"{site.url}/", *LOCAL), "--delay", "0.2"],
            cwd=ROOT,
            env=environment(),
            stdout=-1,
            stderr=-1,
        )
        wait_until(lambda: len(site.paths()) > 5)
        with sqlite3.connect(tmp_path / "trawl.sqlite3", timeout=30) as database:
            database.execute("UPDATE crawl_campaign SET status = 'paused'")
        database.close()
        time.sleep(6)
        after = len(site.paths())
        time.sleep(3)
        assert len(site.paths()) == after < 101
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130


def test_one_url_that_is_always_busy_does_not_close_its_host(tmp_path: Path) -> None:
    busy = Answer(status=429, headers={"Retry-After": "1"})
    with scripted({"/": page("/busy", "/a", "/b"), "/busy": busy, "/a": page(), "/b": page()}) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert site.paths().count("/a") == site.paths().count("/b") == 1
    assert site.paths().count("/busy") == 7, "three tries and set aside, twice; the last time nothing came in between"
    assert ran.told["pages"] == 3
    assert [error["kind"] for error in ran.told["errors"]] == ["overloaded"]


def test_a_few_urls_that_are_always_busy_do_not_close_their_host(tmp_path: Path) -> None:
    busy = Answer(status=429, headers={"Retry-After": "1"})
    bad = {f"/bad{number}": busy for number in range(4)}
    with scripted({"/": page(*bad, "/a"), "/a": page("/b"), "/b": page(), **bad}) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL, timeout=200)
    assert ran.told["status"]["200"] == 3
    assert ran.told["unreachable_hosts"] == 0
    assert {error["kind"]: error["count"] for error in ran.told["errors"]} == {"overloaded": 12}


def test_a_dead_https_twin_does_not_close_the_http_site(tmp_path: Path) -> None:
    dead = [f"https://127.0.0.1:{{port}}/dead{n}" for n in range(5)]
    with scripted({"/a": page(), "/b": page()}) as site:
        site.script["/"] = page(*(link.format(port=site.port) for link in dead), "/a", "/b")
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert sorted(site.paths()) == ["/", "/a", "/b"]
    assert ran.told["pages"] == 3
    [error] = ran.told["errors"]
    assert error["kind"] == "tls"
