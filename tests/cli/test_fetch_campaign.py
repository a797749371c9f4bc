"""trawl fetch --campaign: by the settings of a campaign, and without a trace in what it has stored."""

import json
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.crawl.installation import Installation, checksums
from tests.crawl.running import LOCAL
from tests.rig import ROOT, wait_until
from tests.scripted import Answer, Asked, ScriptedSite, page, redirect, scripted

COLD = {"ETag": '"1"', "Last-Modified": "Mon, 30 Nov 2026 08:00:00 GMT"}


def unchanged(asked: Asked) -> Answer:
    if asked.headers.get("if-none-match") == '"1"':
        return Answer(status=304, headers=COLD)
    return Answer(
        "<title>one</title><a href=/a>a</a><a href=/calendar/1>b</a><a href=http://away.test/>c</a>", headers=COLD
    )


@pytest.fixture
def site() -> Iterator[ScriptedSite]:
    with scripted({"/": unchanged, "/a": page("/deep"), "/away": redirect("http://away.test/")}) as site:
        yield site


@pytest.fixture
def one(tmp_path: Path, site: ScriptedSite) -> Installation:
    """A finished crawl of the site, by settings of its own."""
    installation = Installation(tmp_path / "data")
    options = ("--exclude", "/calendar/", "--header", "X-Garden: tulips", "--auth", f"{site.url}=me:hunter2")
    subprocess.run(
        installation.crawl(f"{site.url}/", *options, "--contact", "me@garden.test", "--cookies"),
        cwd=ROOT,
        env=installation.environment,
        capture_output=True,
        check=True,
        timeout=90,
    )
    site.asked.clear()
    return installation


def fetched(installation: Installation, url: str, *words: str, code: int = 0) -> dict[str, Any]:
    ran = installation.run("fetch", url, *LOCAL, "--campaign", "site", "--json", *words)
    assert ran.code == code, ran.err
    record: dict[str, Any] = json.loads(ran.out)
    return record


def dumped(installation: Installation) -> list[str]:
    """All rows of both databases, but for the one value that a fetch leaves: when its host may be asked again."""
    lines = []
    for name in ("trawl", "trawl-inbox"):
        with closing(sqlite3.connect(":memory:")) as copy:
            with closing(sqlite3.connect(installation.data / f"{name}.sqlite3")) as database:
                database.backup(copy)
            if name == "trawl":
                copy.execute("UPDATE frontier_host SET booked_until = 0")
            lines += list(copy.iterdump())
    return lines


def test_its_settings_hold_and_nothing_is_written(one: Installation, site: ScriptedSite) -> None:
    before, files = dumped(one), checksums(one.data / "warc")
    record = fetched(one, f"{site.url}/")
    asked = site.asked[-1].headers
    assert asked["x-garden"] == "tulips"
    assert asked["authorization"].startswith("Basic ")
    assert asked["user-agent"].endswith("(+me@garden.test)")
    assert "if-none-match" not in asked
    (hop,) = record["hops"]
    assert (record["campaign"], hop["scope"]) == ("site", {"allowed": True, "rule": "seed", "depth": 0})
    assert hop["page"]["left_out"] == {"out of scope": 2}
    assert [link["why"] for link in hop["page"]["links"]] == [None, "exclude /calendar/", "not within reach: host"]
    assert hop["stored"]["links"] == 1
    assert dumped(one) == before
    assert checksums(one.data / "warc") == files


def test_again_asks_by_what_is_known_of_the_page(one: Installation, site: ScriptedSite) -> None:
    (hop,) = fetched(one, f"{site.url}/", "--again")["hops"]
    assert site.asked[-1].headers["if-none-match"] == '"1"'
    assert (hop["status"], hop["stored"]["warc"]) == (304, "revisit")


def test_the_depth_is_that_at_which_the_page_was_found(one: Installation, site: ScriptedSite) -> None:
    (hop,) = fetched(one, f"{site.url}/a")["hops"]
    assert hop["scope"] == {"allowed": True, "rule": "reach: host", "depth": 1}


def test_options_of_the_call_come_before_those_of_the_campaign(one: Installation, site: ScriptedSite) -> None:
    before = dumped(one)
    fetched(
        one, f"{site.url}/", "--header", "X-Other: 1", "--auth", f"{site.url}=you:other", "--contact", "b@garden.test"
    )
    asked = site.asked[-1].headers
    assert ("x-garden" in asked, asked["x-other"]) == (False, "1")
    assert asked["authorization"] == "Basic eW91Om90aGVy"
    assert asked["user-agent"].endswith("(+b@garden.test)")
    assert dumped(one) == before


def test_a_redirect_out_of_the_campaign_is_told_and_not_followed(one: Installation, site: ScriptedSite) -> None:
    (hop,) = fetched(one, f"{site.url}/away", code=1)["hops"]
    assert hop["error"]["kind"] == "out-of-scope"
    assert hop["error"]["detail"] == "leads to http://away.test/: not within reach: host"


def test_a_blocked_host_is_not_asked_for_anything(one: Installation, site: ScriptedSite) -> None:
    assert one.run("block", "add", "127.0.0.1").code == 0
    ran = one.run("fetch", f"{site.url}/", *LOCAL, "--campaign", "site")
    assert ran.code == 1
    assert "a domain block covers the host; nothing is asked for" in ran.out
    assert "blocked-domain after 0 requests" in ran.out
    assert site.asked == []


def test_robots_txt_on_a_blocked_host_is_not_asked_for(one: Installation, site: ScriptedSite) -> None:
    site.script["/robots.txt"] = redirect(f"http://away.test:{site.port}/robots.txt")
    assert one.run("block", "add", "away.test").code == 0
    (hop,) = fetched(one, f"{site.url}/", "--resolve", "away.test=127.0.0.1", code=1)["hops"]
    assert hop["error"]["kind"] == "robots-unreachable"
    assert "which is blocked" in hop["error"]["detail"]
    assert [asked.path for asked in site.asked] == ["/robots.txt"]


def test_an_unknown_campaign_is_told_and_no_installation_is_made_for_it(one: Installation, tmp_path: Path) -> None:
    ran = one.run("fetch", "http://127.0.0.1/", "--campaign", "other")
    assert (ran.code, ran.err) == (2, "trawl: there is no campaign 'other'; there are 'site'\n")
    nowhere = Installation(tmp_path / "nowhere")
    assert nowhere.run("fetch", "http://127.0.0.1/", "--campaign", "site").code == 2
    assert not nowhere.data.exists()


def test_beside_a_running_crawl_both_keep_the_gap_to_each_other(tmp_path: Path) -> None:
    def slow(asked: Asked) -> Answer:
        time.sleep(5)
        return page("/4")

    script = {f"/{number}": page(f"/{number + 1}") for number in range(1000)}
    with scripted({**script, "/": page("/0"), "/3": slow}) as site:
        one = Installation(tmp_path / "data")
        words = one.crawl(f"{site.url}/", "--delay", "0.5", "--no-adaptive-delay")
        with subprocess.Popen(words, cwd=ROOT, env=one.environment, stdout=subprocess.PIPE) as crawl:
            wait_until(lambda: "/3" in site.paths())
            record = fetched(one, f"{site.url}/999")
            wait_until(lambda: len(site.asked) - site.paths().index("/999") > 4, seconds=60)
            assert crawl.poll() is None
            crawl.terminate()
            told, _ = crawl.communicate(timeout=60)
    robots, page_asked = (step["attempts"][0] for step in record["hops"][0]["requests"])
    assert robots["waited_for"] == f"a crawl is visiting {site.url.removeprefix('http://')}"
    assert (robots["status"], page_asked["status"]) == (404, 200)
    assert json.loads(told)["errors"] == []
    # The crawl asked for robots.txt once, the fetch for robots.txt and its page.
    at = [asked.time for asked in site.asked]
    assert [asked.path for asked in site.asked].count("/robots.txt") == 2
    assert min(after - before for before, after in pairwise(at)) >= 0.5


@pytest.mark.parametrize("campaign", [("--campaign", "site"), ()], ids=["with the campaign", "without"])
def test_a_host_that_has_asked_a_crawl_for_a_pause_is_left_alone(tmp_path: Path, campaign: tuple[str, ...]) -> None:
    busy = Answer("busy", status=429, headers={"Retry-After": "3600"})
    with scripted({"/": page("/a"), "/a": busy, "/b": page()}) as site:
        one = Installation(tmp_path / "data")
        words = one.crawl(f"{site.url}/")
        with subprocess.Popen(words, cwd=ROOT, env=one.environment, stdout=subprocess.PIPE) as crawl:
            wait_until(lambda: "/a" in site.paths())
            wait_until(lambda: one.rows("SELECT 1 FROM frontier_host WHERE reason LIKE '%asked to wait%'"))
            site.asked.clear()
            ran = one.run("fetch", f"{site.url}/b", *LOCAL, *campaign, "--json")
            crawl.terminate()
            crawl.communicate(timeout=60)
    assert (ran.code, ran.err, site.asked) == (1, "", [])
    (hop,) = json.loads(ran.out)["hops"]
    assert (hop["status"], hop["requests"], hop["again"]["what"]) == (None, [], "host")
    assert hop["again"]["why"] == "HTTP 429, asked to wait 1 hour"
    assert hop["stored"]["why"] == "the URL keeps its place in its queue"


def test_a_pause_that_a_fetch_was_asked_for_is_kept_by_the_next_crawl(one: Installation, site: ScriptedSite) -> None:
    site.script["/a"] = Answer("busy", status=429, headers={"Retry-After": "5"})
    fetched(one, f"{site.url}/a", code=1)
    site.script["/a"] = page()
    subprocess.run(
        one.crawl(f"{site.url}/", "--again"),
        cwd=ROOT,
        env=one.environment,
        capture_output=True,
        check=True,
        timeout=90,
    )
    told, after = [asked.time for asked in site.asked if asked.path != "/robots.txt"][:2]
    assert after - told >= 5
