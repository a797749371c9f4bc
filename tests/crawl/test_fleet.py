"""Two `celery -A trawl worker` processes and a beat, on Redis and PostgreSQL, crawl one web together.

Needs TRAWL_TEST_DATABASE_URL (a PostgreSQL server where databases may be made) and TRAWL_TEST_REDIS_URL.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.crawl.running import environment
from tests.rig import ROOT, Rig, needs_rig, serve_rig

DATABASE = os.environ.get("TRAWL_TEST_DATABASE_URL", "")

needs_postgresql = pytest.mark.skipif(not DATABASE, reason="set TRAWL_TEST_DATABASE_URL")

START = """
import sys
from crawl import campaigns
from crawl.models import Campaign
campaign = Campaign.objects.create(name="fleet", reach="any", delay_ms=0)
campaigns.add_seeds(campaign, [(url, 10) for url in open(sys.argv[1]).read().split()])
campaigns.start(campaign)
"""


@pytest.fixture
def fleet_environment(tmp_path: Path, broker: str) -> Iterator[dict[str, str]]:
    """A new PostgreSQL database and an empty Redis database."""
    name = f"trawl_fleet_{os.getpid()}"
    with psycopg.connect(DATABASE, autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        server.execute(f"CREATE DATABASE {name}".encode())
        parts = urlsplit(DATABASE)
        yield {
            **environment(),
            "DATABASE_URL": urlunsplit(parts._replace(path=f"/{name}")),
            "BROKER_URL": broker,
            "TRAWL_DATA": str(tmp_path / "data"),
            "TRAWL_RESOLVE": "*.test=127.0.0.1",
            "TRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
            "DJANGO_SETTINGS_MODULE": "trawl_project.settings",
            "PYTHONPATH": str(ROOT),
        }
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


def run(code: str, environment: dict[str, str], *arguments: str) -> str:
    """Runs Python code with Django set up."""
    prelude = "import django; django.setup()\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + code, *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def status(environment: dict[str, str]) -> str:
    return run("from crawl.models import Campaign; print(Campaign.objects.get().status)", environment)


@pytest.fixture
def crawled(tmp_path: Path, fleet_environment: dict[str, str]) -> Iterator[Rig]:
    """A web that two workers and a beat have crawled."""
    run("from django.core.management import call_command; call_command('migrate', verbosity=0)", fleet_environment)
    celery = [sys.executable, "-m", "celery", "-A", "trawl"]
    logs = [open(tmp_path / f"{name}.log", "w") for name in ("one", "two", "beat")]  # noqa: SIM115
    with serve_rig(tmp_path, 200, 10) as rig:
        run(START, fleet_environment, str(rig.seeds))
        processes = [
            subprocess.Popen([*celery, *words], env=fleet_environment, cwd=ROOT, stdout=log, stderr=log)
            for words, log in zip((["worker", "-n", "one"], ["worker", "-n", "two"], ["beat"]), logs, strict=True)
        ]
        try:
            until = time.monotonic() + 120
            while status(fleet_environment) != "finished":
                assert time.monotonic() < until, "the fleet did not finish"
                assert all(process.poll() is None for process in processes)
                time.sleep(0.5)
            yield rig
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)
            for log in logs:
                log.close()
    for name in ("one", "two"):
        assert "Traceback" not in (tmp_path / f"{name}.log").read_text()


@needs_rig
@needs_postgresql
def test_two_workers_fetch_every_page_once(crawled: Rig) -> None:
    verdict = crawled.judge()
    assert verdict["coverage"] == 1.0
    assert verdict["refetches"] == 0
    assert verdict["robots_violations"] == 0
    assert verdict["hosts_fetched_before_robots"] == 0
    assert verdict["max_concurrency_per_host"] == 1
