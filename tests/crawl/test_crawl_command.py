"""`trawl crawl` from the outside: a real process, a real server, exit codes and what the server saw."""

import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crawl.running import LOCAL, command, crawl, environment
from tests.rig import ROOT, free_port, wait_until
from tests.scripted import Answer, page, scripted

SMALL_SITE = {
    "/": page("/a", "/b", "/a#part", "//127.0.0.1:81/elsewhere", "mailto:x@y.z"),
    "/a": page("/", "b", "/c?y=1&x=2", "/c?x=2&y=1"),
    "/b": page("/missing"),
    "/c?y=1&x=2": page("/d"),
    "/d": page(),
}


def test_fetches_every_linked_page_once_and_tells_it_in_json(tmp_path: Path) -> None:
    with scripted(SMALL_SITE) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert ran.code == 0
    assert Counter(site.paths()) == Counter(["/", "/a", "/b", "/c?y=1&x=2", "/d", "/missing"])
    assert site.asked[0].path == "/robots.txt"
    assert ran.told["pages"] == 5
    assert ran.told["status"] == {"200": 5, "404": 1}
    assert ran.told["state"] == "finished"
    assert ran.told["errors"] == []
    assert all(Path(name).exists() for name in ran.told["warc_files"])


def test_a_finished_crawl_says_so_and_asks_nobody(tmp_path: Path) -> None:
    with scripted(SMALL_SITE) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
        before = len(site.asked)
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
        assert len(site.asked) == before
    assert ran.code == 0
    assert "finished" in ran.err
    assert "--again" in ran.err


def test_again_visits_everything_and_unchanged_pages_cost_no_body(tmp_path: Path) -> None:
    def tagged(asked: object) -> Answer:
        known = getattr(asked, "headers", {}).get("if-none-match")
        return Answer(status=304) if known == '"1"' else Answer("<a href='/b'>b</a>", headers={"ETag": '"1"'})

    with scripted({"/": tagged, "/b": page()}) as site:
        first = crawl(tmp_path, f"{site.url}/", *LOCAL)
        again = crawl(tmp_path, f"{site.url}/", *LOCAL, "--again")
    assert first.told["status"] == {"200": 2}
    assert again.code == 0
    assert again.told["run"] == 2
    assert again.told["status"] == {"200": 1, "304": 1}
    assert Counter(site.paths()) == {"/": 2, "/b": 2}


def test_an_interrupted_crawl_goes_on_with_the_same_command(tmp_path: Path) -> None:
    site_map = {f"/{n}": page(f"/{n + 1}", "/") for n in range(60)}
    with scripted({"/": page("/0"), **site_map}) as site:
        arguments = [f"{site.url}/", *LOCAL]
        words = [*command(tmp_path, *arguments), "--delay", "0.02"]
        process = subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: len(site.paths()) > 10)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130, err
        stopped_after = len(site.paths())
        assert stopped_after < 61
        ran = crawl(tmp_path, *arguments)
    assert ran.code == 0
    assert ran.told["pages"] == 61
    assert set(Counter(site.paths()).values()) == {1}, "a clean stop fetches nothing twice"


@pytest.mark.parametrize("limit", [1, 3])
def test_asks_for_no_more_than_the_page_limit_and_goes_on_with_a_larger_one(tmp_path: Path, limit: int) -> None:
    with scripted(SMALL_SITE) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL, "--pages", str(limit))
        assert len(site.paths()) == limit
        assert ran.told["page_limit_reached"]
        more = crawl(tmp_path, f"{site.url}/", *LOCAL, "--pages", "100")
    assert more.code == 0
    assert Counter(site.paths()) == Counter(["/", "/a", "/b", "/c?y=1&x=2", "/d", "/missing"])


def test_follows_no_link_beyond_the_depth(tmp_path: Path) -> None:
    with scripted(SMALL_SITE) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--depth", "1")
    assert sorted(site.paths()) == ["/", "/a", "/b"]


def test_include_and_exclude_patterns_narrow_the_scope(tmp_path: Path) -> None:
    pages = {"/": page("/docs/a", "/docs/b", "/blog/a"), "/docs/a": page("/docs/b"), "/docs/b": page()}
    with scripted(pages) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--include", "/docs/", "--exclude", "/b$")
    assert sorted(site.paths()) == ["/", "/docs/a"]


def test_the_prefix_scope_stays_below_the_seed(tmp_path: Path) -> None:
    with scripted({"/docs/": page("a", "/other"), "/docs/a": page()}) as site:
        crawl(tmp_path, f"{site.url}/docs/", *LOCAL, "--scope", "prefix")
    assert sorted(site.paths()) == ["/docs/", "/docs/a"]


def test_seeds_come_from_a_file_and_from_standard_input(tmp_path: Path) -> None:
    with scripted({"/1": page(), "/2": page()}) as site:
        seeds = tmp_path / "mine.txt"
        seeds.write_text(f"# first\n{site.url}/1\n\n", encoding="utf-8-sig")
        one = crawl(tmp_path / "data", "--seeds", str(seeds), *LOCAL)
        two = crawl(tmp_path / "data", "--seeds", "-", *LOCAL, "--name", "other", stdin=f"{site.url}/2\n")
    assert one.told["campaign"] == "mine"
    assert two.told["campaign"] == "other"
    assert site.paths() == ["/1", "/2"]


def test_seeds_are_taken_by_their_weight(tmp_path: Path) -> None:
    with scripted({f"/{number}": page() for number in range(5)}) as site:
        lines = [f"{site.url}/0\t1", f"{site.url}/1\t5", f"{site.url}/2", f"{site.url}/3 \t 10", f"{site.url}/4\t9"]
        ran = crawl(tmp_path, "--seeds", "-", "--name", "weighed", *LOCAL, "--delay", "0.02", stdin="\n".join(lines))
    assert ran.code == 0
    assert site.paths() == ["/2", "/3", "/4", "/1", "/0"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("example.org", "http://"),
        ("http://[::1", "cannot be crawled"),
        ("http://h.test/\t11", "weight from 1 to 10"),
        ("http://h.test/\t" + "9" * 5000, "weight from 1 to 10"),
        ("http://h.test/\t-1", "weight from 1 to 10"),
        ("http://h.test/\t1\t2", "a tab and a weight"),
    ],
)
def test_a_bad_line_of_seeds_is_told_with_its_number(tmp_path: Path, line: str, says: str) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text(f"# a list\nhttp://127.0.0.1/\n{line}\n")
    ran = crawl(tmp_path / "data", "--seeds", str(seeds))
    assert ran.code == 2
    assert f"{seeds}, line 3:" in ran.err
    assert says in ran.err


def test_a_host_that_refuses_connections_is_tried_three_times_and_told(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    ran = crawl(tmp_path, url, *LOCAL)
    assert ran.code == 1
    [error] = ran.told["errors"]
    assert error["kind"] == "connect"
    assert url in error["example"]


def test_a_private_address_is_refused_unless_its_network_is_allowed(tmp_path: Path) -> None:
    with scripted(SMALL_SITE) as site:
        ran = crawl(tmp_path, f"{site.url}/")
        assert site.asked == []
    assert ran.code == 1
    assert [error["kind"] for error in ran.told["errors"]] == ["blocked-address"]


def test_a_redirect_cannot_lead_to_an_address_that_is_not_allowed(tmp_path: Path) -> None:
    with scripted(SMALL_SITE) as inner, scripted({"/": Answer(status=302)}) as outer:
        outer.script["/"] = Answer(status=302, headers={"Location": f"http://127.66.6.6:{inner.port}/"})
        ran = crawl(tmp_path, f"{outer.url}/", "--allow-network", "127.0.0.1", "--scope", "any", "--ports", "any")
        assert inner.asked == []
    assert [error["kind"] for error in ran.told["errors"]] == ["blocked-address"]


def test_without_a_contact_nothing_beyond_this_machine_is_started(tmp_path: Path) -> None:
    ran = crawl(tmp_path, "http://example.test/")
    assert ran.code == 2
    assert "--contact" in ran.err
    again = crawl(tmp_path, "--name", "example.test")
    assert "there is no campaign" in again.err


def test_the_contact_stands_in_the_user_agent(tmp_path: Path) -> None:
    with scripted({"/": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--contact", "crawl@example.org")
    assert {asked.headers["user-agent"] for asked in site.asked} == {"trawl/0.1.0 (+crawl@example.org)"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give a URL"),
        (["example.org"], "http://"),
        (["ftp://example.org/"], "ftp"),
        (["http://[::1"], "cannot be crawled"),
        (["http://127.0.0.1/", "--include", "(" * 3], "regular expression"),
        (["http://127.0.0.1/", "--delay", "soon"], "number of seconds"),
        (["http://127.0.0.1/", "--pages", "0"], "at least 1"),
        (["http://127.0.0.1/", "--burst", "0"], "at least 1"),
        (["http://127.0.0.1/", "--burst", "1001"], "at most 1000"),
        (["http://127.0.0.1/", "--address-delay", "-1"], "between 0"),
        (["http://127.0.0.1/", "--resolve", "x"], "NAME=ADDRESS"),
        (["http://127.0.0.1/", "--allow-network", "all"], "network"),
        (["--seeds", "/nowhere/seeds.txt"], "cannot read"),
        (["--name", "unknown"], "no campaign"),
        (["http://127.0.0.1/", "--nonsense"], "nonsense"),
    ],
)
def test_bad_arguments_are_told_in_a_line_with_exit_code_2(tmp_path: Path, arguments: list[str], says: str) -> None:
    ran = crawl(tmp_path, *arguments)
    assert ran.code == 2, ran.err
    assert says in ran.err
    assert ran.out == ""


def test_two_crawls_cannot_use_one_data_directory(tmp_path: Path) -> None:
    def slow(asked: object) -> Answer:
        time.sleep(3)
        return page()

    with scripted({"/": slow}) as site:
        first = subprocess.Popen(
            command(tmp_path, f"{site.url}/", *LOCAL), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=-1
        )
        wait_until(lambda: site.paths())
        second = crawl(tmp_path, f"{site.url}/", *LOCAL)
        assert second.code == 1
        assert f"pid {first.pid}" in second.err
        first.communicate(timeout=30)
        assert first.returncode == 0


def test_a_wider_scope_is_told_and_again_finds_what_it_lets_in(tmp_path: Path) -> None:
    def tagged(asked: object) -> Answer:
        known = getattr(asked, "headers", {}).get("if-none-match")
        return Answer(status=304) if known else Answer("<a href='/a'>a</a>", headers={"ETag": '"1"'})

    with scripted({"/": tagged, "/a": page("/b"), "/b": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--depth", "0")
        told = crawl(tmp_path, f"{site.url}/", *LOCAL, "--depth", "1")
        assert "scope has changed" in told.err
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--depth", "1", "--again")
    assert site.paths() == ["/", "/", "/a"]


@pytest.mark.parametrize("contact", ["müller@example.org", "a@b.c\r\nX: y", "a\0b"])
def test_a_contact_that_cannot_stand_in_a_header_is_refused(tmp_path: Path, contact: str) -> None:
    if "\0" in contact:
        pytest.skip("no process can be given a NUL as an argument")
    ran = crawl(tmp_path, "http://127.0.0.1:81/", *LOCAL, "--contact", contact)
    assert ran.code == 2
    assert "contact" in ran.err


def test_a_data_directory_that_is_deleted_ends_the_crawl_with_a_word(tmp_path: Path) -> None:
    data = tmp_path / "data"
    pages = {"/": page(*(f"/{n}" for n in range(200)))} | {f"/{n}": page() for n in range(200)}
    with scripted(pages) as site:
        words = [*command(data, f"{site.url}/", *LOCAL), "--delay", "0.1"]
        process = subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: len(site.paths()) > 3)
        shutil.rmtree(data, ignore_errors=True)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"was deleted" in err
