"""trawl campaign: what can be done with campaigns from a terminal."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_up import up
from tests.crawl.installation import Installation
from tests.crawl.running import prepare
from tests.scripted import Script, page, scripted

MADE = """
from crawl import campaigns
from crawl.models import Campaign
campaign = Campaign.objects.create(name={name!r}, reach="host", delay_ms=100, contact={contact!r})
campaigns.add_seeds(campaign, [({url!r}, 10)])
"""


def made(data: Path, name: str, url: str, contact: str = "") -> Installation:
    prepare(data)
    one = Installation(data)
    done = one.python(MADE.format(name=name, url=url, contact=contact))
    assert done.returncode == 0, done.stderr
    return one


def shown(one: Installation, name: str = "site") -> dict[str, Any]:
    told: dict[str, Any] = json.loads(one.run("campaign", "show", name, "--json").out)
    return told


def wait(until: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_campaign_is_started_paused_resumed_stopped_and_run_again(tmp_path: Path) -> None:
    pages: Script = {"/": page(*(f"/{n}" for n in range(150)))} | {f"/{n}": page() for n in range(150)}
    with scripted(pages) as site:
        one = made(tmp_path / "data", "site", f"{site.url}/")
        assert "1 seed; start it with: trawl campaign start site" in one.run("campaign", "show", "site").out
        started = one.run("campaign", "start", "site")
        assert (started.code, started.out) == (0, "campaign 'site' starts\n")
        assert started.err == "no worker runs; start one with: trawl up\n"
        with up(one.data) as fleet:
            fleet.wait_for("open http://")
            wait(lambda: len(site.asked) > 5)
            assert one.run("campaign", "start", "site").out == "campaign 'site' runs already\n"
            assert "site, run 1: running" in one.run("campaign", "show", "site").out

            paused = one.run("campaign", "pause", "site", "--reason", "they asked for it")
            assert paused.out == "campaign 'site' is paused; what is in flight is finished\n"
            wait(lambda: shown(one)["visiting_hosts"] == 0)
            asked, told = len(site.asked), shown(one)
            assert told["status"] == "paused"
            assert told["waits_for"] == "somebody to start it again: it was paused (they asked for it)"
            assert 0 < told["seconds"] < 60
            time.sleep(6)  # a sweep, which goes on clocking what runs
            assert len(site.asked) == asked < 150
            assert shown(one)["seconds"] == told["seconds"]
            assert "paused" in one.run("campaign", "list").out
            refused = one.run("campaign", "pause", "site")
            assert (refused.code, refused.err) == (1, "trawl: campaign 'site' is paused: there is nothing to pause\n")

            assert one.run("campaign", "resume", "site").out == "campaign 'site' goes on\n"
            wait(lambda: len(site.asked) > asked + 3)
            assert one.run("campaign", "stop", "site").code == 0
            assert one.run("campaign", "resume", "site").err == "trawl: campaign 'site' is stopped, and not paused\n"
            assert one.run("campaign", "start", "site").code == 0
            wait(lambda: shown(one)["status"] == "finished")
            assert (shown(one)["pages"], len(site.paths())) == (151, 151)

            over = one.run("campaign", "start", "site")
            assert over.code == 1
            assert "is finished; visit everything again with: trawl campaign start site --again" in over.err
            assert one.run("campaign", "stop", "site").code == 1
            assert one.run("campaign", "start", "site", "--again").code == 0
            wait(lambda: shown(one)["run"] == 2 and shown(one)["status"] == "finished")
            assert len(site.paths()) == 302
            row = json.loads(one.run("campaign", "list", "--json").out)
            assert (row["campaign"], row["pages"], row["waiting_urls"], row["errors"]) == ("site", 151, 0, 0)


def test_without_any_campaign_there_is_advice_and_nothing_is_made(tmp_path: Path) -> None:
    one = Installation(tmp_path / "data")
    told = one.run("campaign", "list")
    assert (told.code, told.out) == (0, "no campaign yet; make one in the admin (trawl up), or with: trawl crawl URL\n")
    assert one.run("campaign", "list", "--json").out == ""
    assert one.run("campaign", "show", "x").code == 2
    assert not one.data.exists()


@pytest.mark.parametrize("act", ["show", "start", "pause", "resume", "stop"])
def test_a_campaign_that_is_not_there_is_told_with_those_that_are(tmp_path: Path, act: str) -> None:
    one = made(tmp_path / "data", "gärten\x1b[2J of 'kim'", "http://127.0.0.1:8080/")
    told = one.run("campaign", act, "gardens")
    assert told.code == 2
    assert "there is no campaign 'gardens'; there are" in told.err
    assert "\x1b" not in told.err
    assert "\x1b" not in one.run("campaign", "list").out
    assert one.run("campaign").code == 2


def test_what_nobody_could_complain_about_does_not_start(tmp_path: Path) -> None:
    one = made(tmp_path / "data", "far", "https://far.test/")
    refused = one.run("campaign", "start", "far")
    assert refused.code == 1
    assert "site owners must be able to complain" in refused.err
    assert shown(one, "far")["status"] == "new"
    made(one.data, "near", "https://far.test/", contact="me@example.org")
    assert one.run("campaign", "start", "near").code == 0
