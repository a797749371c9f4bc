"""kill -9 at random moments of a worker, of a merger, or of both, over and over: nothing lost, nothing twice.

TRAWL_TEST_FRONTIER_KILLS=200 makes it the long test that it is meant to be (about six minutes a database).
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.storage import scratch_database
from tests.frontier.killed import url
from tests.rig import ROOT, wait_until

KILLS = int(os.environ.get("TRAWL_TEST_FRONTIER_KILLS", "8"))
URLS = 2_000 + 1_500 * KILLS
SERVER = os.environ.get("TRAWL_TEST_DATABASE_URL", "")

LOOK = """
import json
import django; django.setup()
from django.db.models import Sum
from frontier.counts import queued
from frontier.models import DueHost, Inbox, LeasedHost, QueuedUrl, SeenRun
from frontier.router import inbox_alias
print(json.dumps({
    "waiting": QueuedUrl.objects.count(),
    "counted": queued(),
    "inbox": Inbox.objects.using(inbox_alias("default")).count(),
    "known": SeenRun.objects.filter(kind="url").aggregate(n=Sum("entries"))["n"],
    "hosts": DueHost.objects.count() + LeasedHost.objects.count(),
}))
"""
SEED = """
import django; django.setup()
from frontier.admission import Link, admit
from frontier.urls import canonicalise
import sys
admit(1, [Link(canonicalise(sys.argv[1]), 0, 0)])
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of processes that share a new database and data directory."""
    if request.param == "postgresql" and not SERVER:
        pytest.skip("TRAWL_TEST_DATABASE_URL names no PostgreSQL")
    with scratch_database(SERVER if request.param == "postgresql" else None) as database:
        own = {name: value for name, value in os.environ.items() if not name.startswith("TRAWL_")}
        own |= {"TRAWL_DATA": str(tmp_path / "data"), "DJANGO_SETTINGS_MODULE": "trawl_project.settings"}
        own.pop("DATABASE_URL", None)
        yield own | ({"DATABASE_URL": database} if database else {})


def python(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(environment: dict[str, str], role: str, run: int, log: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.frontier.killed", role, str(run), str(URLS), str(log), *more]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


@pytest.mark.timeout(300 + 6 * KILLS)
def test_kills_at_random_moments_lose_nothing_and_double_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    log, chance = tmp_path / "asked", random.Random(5)
    for alias in ("default", "inbox") if "DATABASE_URL" not in environment else ("default",):
        python(environment, "manage.py", "migrate", "-v0", "--database", alias)
    python(environment, "-c", SEED, url(0))
    running = {role: start(environment, role, 0, log) for role in ("worker", "merger")}
    for number in range(1, KILLS + 1):
        if chance.random() < 0.8:  # else the kill may come in the start of a process
            asked_before = size(log)
            wait_until(lambda before=asked_before: size(log) > before, seconds=60)
        time.sleep(0.6 * chance.random())
        for role in chance.choice([["worker"], ["merger"], ["worker", "merger"]]):
            assert running[role].poll() is None, f"the {role} ended by itself"
            running[role].kill()
            running[role].wait()
            running[role] = start(environment, role, number, log)
    for process in running.values():
        process.kill()
        process.wait()
    merger = start(environment, "merger", KILLS + 1, log)
    try:
        assert start(environment, "worker", KILLS + 1, log, "--to-the-end").wait(600) == 0
    finally:
        merger.kill()
        merger.wait()

    asked = defaultdict(list)
    for line in log.read_text().splitlines():
        run, page = line.split()
        asked[int(page)].append(run)
    assert sorted(asked) == list(range(URLS))
    # A page is asked for again only by another process than the one that was killed with it.
    assert all(len(set(runs)) == len(runs) for runs in asked.values())
    again = sum(len(runs) - 1 for runs in asked.values())
    assert again or KILLS < 5, "no kill found the worker at work"
    print(f"{KILLS} kills, {URLS} URLs, {again} of them asked for again")
    assert again <= KILLS * 16 * 8  # what a worker holds
    found = json.loads(python(environment, "-c", LOOK))
    assert found == {"waiting": 0, "counted": 0, "inbox": 0, "known": URLS, "hosts": 0}
