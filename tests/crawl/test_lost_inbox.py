"""An inbox that is deleted or replaced: no link is missing without a word."""

import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.crawl.running import LOCAL, command, crawl, environment
from tests.rig import ROOT, wait_until
from tests.scripted import ScriptedSite, page, scripted

SITE = {"/": page(*(f"/{n}" for n in range(30))), **{f"/{n}": page(f"/{n}/more") for n in range(30)}}
PATHS = {"/", *(f"/{n}" for n in range(30)), *(f"/{n}/more" for n in range(30))}


def killed_crawl(data: Path, site: ScriptedSite) -> None:
    words = [*command(data, f"{site.url}/", *LOCAL), "--delay", "0.05"]
    with subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: len(site.asked) > 15)
        process.send_signal(signal.SIGKILL)


def delete(inbox: Path) -> None:
    for path in inbox.parent.glob(f"{inbox.name}*"):
        path.unlink()


def empty(inbox: Path) -> None:
    delete(inbox)
    inbox.touch()


@pytest.mark.parametrize("damage", [delete, empty])
def test_a_lost_inbox_is_told_and_its_links_are_found_again(tmp_path: Path, damage) -> None:
    with scripted({**SITE, **{path: page() for path in PATHS if path.endswith("/more")}}) as site:
        killed_crawl(tmp_path, site)
        damage(tmp_path / "trawl-inbox.sqlite3")
        refused = crawl(tmp_path, f"{site.url}/", *LOCAL)
        assert refused.code == 1
        assert "trawl-inbox.sqlite3 is not the inbox of this database" in refused.err
        assert "--again" in refused.err
        assert crawl(tmp_path, f"{site.url}/", *LOCAL, "--again").code == 0
        assert set(site.paths()) == PATHS
        before = len(site.asked)
        assert crawl(tmp_path, f"{site.url}/", *LOCAL).code == 0  # finished, and nothing is wrong any more
        assert len(site.asked) == before


def test_links_in_a_lost_inbox_are_found_again(tmp_path: Path) -> None:
    """The worst case: every page was read, and none of their links was merged."""
    with scripted({**SITE, **{path: page() for path in PATHS if path.endswith("/more")}}) as site:
        assert crawl(tmp_path, f"{site.url}/", *LOCAL).code == 0
        with sqlite3.connect(tmp_path / "trawl.sqlite3") as main:
            main.execute("DELETE FROM frontier_queuedurl")
            main.execute("DELETE FROM crawl_page WHERE ref LIKE '%more'")
        main.close()
        for path in (tmp_path / "seen").rglob("*.run"):
            path.unlink()
        delete(tmp_path / "trawl-inbox.sqlite3")
        site.asked.clear()
        assert crawl(tmp_path, f"{site.url}/", *LOCAL, "--again").code == 0
        assert set(site.paths()) == PATHS


def test_an_inbox_that_is_whole_is_not_suspected(tmp_path: Path) -> None:
    with scripted({"/": page()}) as site:
        for _ in range(2):
            assert crawl(tmp_path, f"{site.url}/", *LOCAL, "--again").code == 0
    with sqlite3.connect(tmp_path / "trawl-inbox.sqlite3") as inbox:
        [(number,)] = inbox.execute("PRAGMA user_version").fetchall()
    inbox.close()
    with sqlite3.connect(tmp_path / "trawl.sqlite3") as main:
        rows = main.execute("SELECT value FROM frontier_frontierstate WHERE name = 'inbox_id'").fetchall()
    main.close()
    assert rows == [(number,)]
    assert number
    assert os.stat(tmp_path / "trawl-inbox.sqlite3").st_size
