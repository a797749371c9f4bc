"""Domain blocks in a real crawl: a block stops it at once, and the crawl goes on when it is lifted."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from crawl import tasks
from frontier.blocking import block
from frontier.models import DomainBlock
from tests.cli.test_lookup_url import run
from tests.crawl.running import LOCAL, Ran, command, crawl, environment
from tests.frontier.world import World
from tests.rig import ROOT
from tests.scripted import Answer, Asked, ScriptedSite, scripted
from tests.site import Site, serve

PAGES = 60


@pytest.fixture
def using(sqlite: str) -> str:
    """A sweep is of the default database."""
    return sqlite


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A page that links to PAGES others."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "robots.txt").write_text("")
    (folder / "index.html").write_text("".join(f"<a href=/{n}.html>{n}</a>" for n in range(PAGES)))
    for number in range(PAGES):
        (folder / f"{number}.html").write_text(f"<title>{number}</title>")
    with serve(folder) as running:
        yield running


def waiting(tmp_path: Path) -> int:
    """URLs that wait, by what `block purge` would delete."""
    said = run(tmp_path, "block", "purge", "127.0.0.1").stderr
    return int(said.partition("would delete ")[2].partition(" ")[0]) if "would delete" in said else 0


def test_nothing_of_a_blocked_host_is_asked_for_and_unblocking_brings_it_back(site: Site, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run(tmp_path, "block", "add", "127.0.0.1").returncode == 0
    crawl(data, site.url, *LOCAL)
    assert site.paths() == []
    assert waiting(tmp_path) == 1
    assert run(tmp_path, "block", "remove", "127.0.0.1").returncode == 0
    crawl(data, site.url, *LOCAL)
    assert len(site.paths()) == PAGES + 2


def test_the_sweep_ends_expired_blocks_and_sends_their_hosts(frontier: World, monkeypatch) -> None:
    frontier.add("https://a.test/")
    block(["a.test"], using=frontier.using)
    DomainBlock.objects.update(expires_at=timezone.now() - timedelta(1))
    sent: list[bool] = []
    monkeypatch.setattr(tasks, "trigger_dispatch", lambda: sent.append(True))
    tasks.sweep()
    assert sent
    assert [visit.name for visit in frontier.visit()] == ["a.test"]
    sent.clear()
    DomainBlock.objects.update(expires_at=timezone.now() - timedelta(2))
    tasks.sweep()
    assert not sent


def test_a_block_stops_a_running_crawl_and_keeps_what_waits(site: Site, tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = command(data, site.url, *LOCAL)
    words[words.index("--delay") + 1] = "0.5"
    with subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 30
        while len(site.log) < 4 and time.monotonic() < until:
            time.sleep(0.05)
        assert run(tmp_path, "block", "add", "127.0.0.1").returncode == 0
        time.sleep(6)  # a heartbeat of the worker
        stopped = len(site.log)
        time.sleep(2)
        assert len(site.log) == stopped < PAGES
        try:
            told = json.loads(process.communicate(timeout=60)[0])
        finally:
            process.kill()
    assert told
    assert waiting(tmp_path) == PAGES + 2 - stopped
    run(tmp_path, "block", "purge", "--all", "--yes")
    run(tmp_path, "block", "remove", "127.0.0.1")
    crawl(data, site.url, *LOCAL)
    assert len(site.log) == stopped  # what was purged does not come back by itself


# --- links to blocked domains --------------------------------------------------------------------------------


@pytest.fixture
def two_hosts() -> Iterator[ScriptedSite]:
    """Pages of one.test that link to pages of two.test; all of them answer 304 to who has them already."""

    def answer(body: str) -> Callable[[Asked], Answer]:
        def asked(request: Asked) -> Answer:
            return Answer(body, 304 if "if-none-match" in request.headers else 200, {"ETag": '"1"'})

        return asked

    with scripted({}) as site:
        other = f"http://two.test:{site.port}"
        site.script = {"/": answer(f"<a href=/more>1</a><a href={other}/a>2</a>"), "/a": answer("a"), "/b": answer("b")}
        site.script["/more"] = answer(f"<a href={other}/b>3</a>")
        yield site


def crawl_two(data: Path, site: ScriptedSite, *more: str) -> Ran:
    start = f"http://one.test:{site.port}/"
    return crawl(data, start, *LOCAL, "--resolve", "*.test=127.0.0.1", "--scope", "any", "--name", "two", *more)


def asked_of(site: ScriptedSite, host: str) -> list[str]:
    return [one.path for one in site.asked if one.host.startswith(host) and one.path != "/robots.txt"]


def test_links_that_a_block_left_out_are_found_again_once_it_is_lifted(two_hosts: ScriptedSite, tmp_path: Path) -> None:
    data = tmp_path / "data"
    run(tmp_path, "block", "add", "two.test")
    told = crawl_two(data, two_hosts).told
    assert [(error["kind"], error["count"]) for error in told["errors"]] == [("blocked-domain", 2)]
    crawl_two(data, two_hosts, "--again")
    assert sorted(one.path for one in two_hosts.asked if "if-none-match" in one.headers) == ["/", "/more"]
    assert "reading pages once more (crawl --again): 'two'" in run(tmp_path, "block", "remove", "two.test").stdout
    assert "--again" in crawl_two(data, two_hosts).err
    assert asked_of(two_hosts, "two") == []
    crawl_two(data, two_hosts, "--again")
    assert sorted(asked_of(two_hosts, "two")) == ["/a", "/b"]


def test_links_to_a_domain_that_is_blocked_for_a_time_wait_for_its_end(two_hosts: ScriptedSite, tmp_path: Path) -> None:
    data = tmp_path / "data"
    run(tmp_path, "block", "add", "two.test", "--expires", "1d")
    told = crawl_two(data, two_hosts).told
    assert told["errors"] == []
    assert (told["blocked_hosts"], told["blocked_urls"], told["blocked_by"]) == (1, 2, "two.test")
    assert (told["unreachable_hosts"], told["unreachable_urls"]) == (0, 0)
    assert asked_of(two_hosts, "two") == []
    expire = "from frontier.models import *; DomainBlock.objects.update(expires_at='2020-01-01T00:00:00Z')"
    assert run(tmp_path, "shell", "-c", expire).returncode == 0
    told = crawl_two(data, two_hosts).told
    assert sorted(asked_of(two_hosts, "two")) == ["/a", "/b"]
    assert (told["blocked_urls"], told["waiting_urls"]) == (0, 0)


def test_what_waits_under_a_block_is_told_with_the_way_out(site: Site, tmp_path: Path) -> None:
    run(tmp_path, "block", "add", "127.0.0.1")
    words = [word for word in command(tmp_path / "data", site.url, *LOCAL) if word != "--json"]
    done = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert "1 URL left on 1 host under a domain block, one of them by the block of 127.0.0.1" in done.stdout
    assert "did not answer" not in done.stdout
