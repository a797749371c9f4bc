"""trawl rebuild_seen: the seen index is made anew from the database, by one process at a time."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from crawl.models import Campaign, Page
from frontier.admission import Link, admit, recent
from frontier.merge import Merger, merge_lock
from frontier.models import QueuedUrl, SeenRun
from frontier.state import hash_seed, seen_directory
from frontier.urls import canonicalise
from tests.cli.test_lookup_campaign import visited
from tests.cli.test_lookup_url import environment, run
from tests.site import serve


@pytest.fixture
def frontier(settings: Any, tmp_path: Path, db: None) -> Iterator[Campaign]:
    """Three known URLs, one of them fetched."""
    settings.DATA_DIR = tmp_path
    hash_seed.cache_clear()
    recent.cache_clear()
    campaign = Campaign.objects.create(name="c")
    add(campaign, "http://a.test/1", "http://a.test/2", "http://b.test/")
    visited("http://a.test/1")
    yield campaign
    hash_seed.cache_clear()
    recent.cache_clear()


def add(campaign: Campaign, *urls: str) -> int:
    admit(campaign.pk, [Link(canonicalise(url), 5, 1) for url in urls])
    return Merger("default").merge().new_urls


def rebuild() -> str:
    out = io.StringIO()
    call_command("rebuild_seen", stdout=out, stderr=io.StringIO())
    return out.getvalue()


def lose_files() -> None:
    for path in seen_directory().glob("*.run"):
        path.unlink()


def spoil_files() -> None:
    for path in seen_directory().glob("*.run"):
        path.write_bytes(path.read_bytes()[:-1])


def lose_the_manifest() -> None:
    SeenRun.objects.all().delete()


def nothing() -> None:
    pass


@pytest.mark.django_db(databases=["default", "inbox"])
@pytest.mark.parametrize("damage", [nothing, lose_files, spoil_files, lose_the_manifest])
def test_what_was_known_is_known_again(frontier: Campaign, damage: Any) -> None:
    damage()
    assert rebuild().startswith("3 URLs are known; the index is in ")
    assert add(frontier, "http://a.test/1", "http://a.test/2", "http://b.test/", "http://a.test/new") == 1
    assert QueuedUrl.objects.count() == 3
    assert Page.objects.count() == 1


@pytest.mark.django_db(databases=["default", "inbox"])
def test_while_links_are_merged_it_says_so_and_changes_nothing(frontier: Campaign) -> None:
    before = sorted(seen_directory().iterdir())
    with merge_lock("default"), pytest.raises(CommandError, match="try again, or stop it first"):
        rebuild()
    assert sorted(seen_directory().iterdir()) == before


def test_it_shows_its_progress_on_a_terminal_and_the_result_on_standard_output(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("<a href=a>a</a>")
    with serve(folder) as site:
        run(tmp_path, "crawl", site.url, "--allow-network", "127.0.0.0/8", "--delay", "0", "--no-warc")
    master, slave = os.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "trawl_project", "rebuild_seen"],
        stdout=subprocess.PIPE,
        stderr=slave,
        env=environment(tmp_path, TERM="xterm"),
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert done.stdout.startswith(b"2 URLs are known")
    assert "rows read" in shown
    assert "2/2" in shown


def test_without_a_terminal_there_is_no_progress_bar_and_an_empty_database_is_fine(tmp_path: Path) -> None:
    done = run(tmp_path, "rebuild_seen")
    assert done.returncode == 0
    assert done.stdout.startswith("0 URLs are known")
    assert "rows read" not in done.stderr
