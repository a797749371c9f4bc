"""The number of fetch queues is changed while visits wait in them. Needs TRAWL_TEST_REDIS_URL."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.crawl.running import environment
from tests.crawl.test_fleet import run, status
from tests.rig import ROOT
from tests.scripted import page, scripted

HOSTS = 24
SECONDS = 120  # within which everything must be over on a busy machine

SEND = """
import sys
from django.core.management import call_command
from crawl import campaigns, tasks
from crawl.models import Campaign, Worker
from frontier.merge import Merger
from frontier.politeness import now_ms
call_command("migrate", verbosity=0)
call_command("migrate", database="inbox", verbosity=0)
campaign = Campaign.objects.create(name="fleet", delay_ms=0)
campaigns.add_seeds(campaign, [(url, 10) for url in sys.argv[1:]])
campaigns.start(campaign)
Merger("default").merge()
Worker.objects.create(name="gone-1", capacity=1000, seen_at=now_ms())
tasks.dispatch()
"""


@contextmanager
def workers(settings: dict[str, str], log: Path) -> Iterator[None]:
    """A worker and a beat."""
    celery = [sys.executable, "-m", "celery", "-A", "trawl"]
    with log.open("w") as out:
        started = [
            subprocess.Popen([*celery, *words], env=settings, cwd=ROOT, stdout=out, stderr=out)
            for words in (["worker", "-n", "one"], ["beat"])
        ]
        try:
            yield
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(60)
    assert "Traceback" not in log.read_text()


def wait_until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.5)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_visits_that_wait_while_the_number_of_queues_changes_still_run(
    tmp_path: Path, broker: str, before: int, after: int
) -> None:
    settings = {
        **environment(),
        "BROKER_URL": broker,
        "TRAWL_DATA": str(tmp_path / "data"),
        "TRAWL_RESOLVE": "*.test=127.0.0.1",
        "TRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
        "TRAWL_LEASE_SECONDS": "10",
        "DJANGO_SETTINGS_MODULE": "trawl_project.settings",
        "PYTHONPATH": str(ROOT),
    }
    old, new = ({**settings, "TRAWL_FETCH_QUEUES": str(number)} for number in (before, after))
    queues = redis.Redis.from_url(broker)

    def waiting() -> list[int]:
        return [int(str(queues.llen(f"fetch.{number}"))) for number in range(before)]

    with scripted({"/": page()}) as site:
        hosts = {f"h{number}.test:{site.port}" for number in range(HOSTS)}
        run(SEND, old, *(f"http://{host}/" for host in hosts))
        assert min(waiting()) > 0
        with workers(new, tmp_path / "new.log"):
            wait_until(lambda: status(new) == "finished")
        assert {asked.host for asked in site.asked if asked.path == "/"} == hosts
        asked = len(site.asked)
        with workers(old, tmp_path / "old.log"):  # what was left behind is taken for what it is
            wait_until(lambda: not sum(waiting()))
        assert len(site.asked) == asked
