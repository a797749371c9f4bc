"""Domain blocks in a real crawl: a block stops it at once, and the crawl goes on when it is lifted."""

import json
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from crawl import tasks
from frontier.blocking import block
from frontier.models import DomainBlock
from tests.cli.test_lookup_url import run
from tests.crawl.running import LOCAL, command, crawl, environment
from tests.frontier.world import World
from tests.rig import ROOT
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
