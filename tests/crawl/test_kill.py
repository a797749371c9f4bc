"""kill -9 in the middle of a crawl: the same command again, and the union of what was fetched is exact.

TRAWL_TEST_KILL_HOSTS makes the web larger (2000 hosts are 20,000 pages); TRAWL_TEST_KILLS kills more often.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
from pathlib import Path

from frontier.counts import urls_of
from frontier.schedule import HOST_MASK
from tests.rig import ROOT, Rig, crawl_command, needs_rig, serve_rig, wait_until

HOSTS = int(os.environ.get("TRAWL_TEST_KILL_HOSTS", "150"))
KILLS = int(os.environ.get("TRAWL_TEST_KILLS", "5"))


def leased_urls(data: Path) -> int:
    """How many URLs were at most with the killed process: what waits on the hosts it held."""
    with sqlite3.connect(data / "trawl.sqlite3") as database:
        rows = database.execute(
            f"SELECT (SELECT count(*) {urls_of('q.id')}) FROM frontier_queue q"
            f" WHERE q.host_id IN (SELECT id & {HOST_MASK} FROM frontier_leasedhost)"
        ).fetchall()
    return sum(row[0] for row in rows)


def fetched(rig: Rig) -> int:
    return sum(request["u"] != "/robots.txt" for request in rig.requests())


@needs_rig
def test_after_kills_every_page_is_fetched_and_only_leased_ones_twice(tmp_path: Path) -> None:
    data = tmp_path / "data"
    moments = random.Random(HOSTS)
    allowed = 0
    with serve_rig(tmp_path, HOSTS, 10) as rig:
        command = crawl_command(rig, data, "--json")
        pages = HOSTS * 10
        for number in range(KILLS):
            wanted = pages * (number + moments.random()) / (KILLS + 1)
            crawl = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda wanted=wanted: fetched(rig) >= wanted)
            crawl.send_signal(signal.SIGKILL)
            crawl.wait()
            allowed += leased_urls(data)
        last = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
        verdict = rig.judge()
    print(f"kills {KILLS}, leased at the kills {allowed}, fetched again {verdict['refetches']}")
    assert last.returncode == 0, last.stderr
    assert verdict["coverage"] == 1.0
    assert verdict["refetches"] <= allowed
    assert verdict["robots_violations"] == 0
    assert json.loads(last.stdout)["pages"] == verdict["distinct_pages"]
