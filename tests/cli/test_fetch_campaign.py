"""trawl fetch --campaign: by the settings of a campaign, and without a trace in what it has stored."""

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
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
    """All rows of both databases."""
    lines = []
    for name in ("trawl", "trawl-inbox"):
        with closing(sqlite3.connect(installation.data / f"{name}.sqlite3")) as database:
            lines += list(database.iterdump())
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


def test_it_works_beside_a_running_crawl_of_the_same_data(tmp_path: Path) -> None:
    script = {f"/{number}": page(f"/{number + 1}") for number in range(1000)}
    with scripted({**script, "/": page("/0")}) as site:
        one = Installation(tmp_path / "data")
        words = one.crawl(f"{site.url}/", "--delay", "0.1")
        with subprocess.Popen(words, cwd=ROOT, env=one.environment, stdout=subprocess.PIPE) as crawl:
            wait_until(lambda: len(site.paths()) > 3)
            record = fetched(one, f"{site.url}/0")
            assert crawl.poll() is None
            crawl.terminate()
            told, _ = crawl.communicate(timeout=60)
    assert record["hops"][0]["status"] == 200
    assert json.loads(told)["errors"] == []
