"""Every test that takes `frontier` runs on SQLite and, where there is one, on PostgreSQL.

TRAWL_TEST_DATABASE_URL names a PostgreSQL server on which databases may be created, for example
postgres://root@127.0.0.1:5432/test; the tests make a database of their own there and drop it.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import environ
import pytest
import redis
from django.conf import settings as django_settings
from django.db import connections

from frontier import merge as merging
from frontier.seen import prechecks, written
from tests.frontier.world import World


@pytest.fixture(scope="session")
def sqlite(django_db_setup) -> str:
    """The alias of the SQLite database."""
    return "default"


@pytest.fixture(scope="session")
def postgresql(django_db_blocker) -> Iterator[str]:
    """The alias of a PostgreSQL database made for this test run."""
    url = os.environ.get("TRAWL_TEST_DATABASE_URL")
    if not url:
        pytest.skip("PostgreSQL is not tested: TRAWL_TEST_DATABASE_URL is not set")
    alias = "postgresql"
    options = {"options": "-c synchronous_commit=off"}  # what the tests kill is trawl, not the database
    connections.settings[alias] = environ.Env.db_url_config(url) | {
        "OPTIONS": options,
        "TEST": {"NAME": f"trawl_test_{os.getpid()}"},
    }
    connections.configure_settings(connections.settings)
    given = connections.settings[alias]["NAME"]
    with django_db_blocker.unblock():
        creation = connections[alias].creation
        creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        yield alias
        creation.destroy_test_db(given, verbosity=0)
        connections[alias].close()
    del connections[alias]
    del django_settings.DATABASES[alias]


@pytest.fixture(params=["sqlite", "postgresql"])
def using(request: pytest.FixtureRequest) -> str:
    """The alias of the database under test."""
    alias: str = request.getfixturevalue(request.param)
    return alias


@pytest.fixture
def frontier(using: str, django_db_blocker, settings, monkeypatch, tmp_path: Path) -> Iterator[World]:
    """An empty frontier, whose clock stands still until a test moves it."""
    settings.FRONTIER_HISTORY = "tests.frontier.world.History"
    world = World(using, settings, tmp_path)
    monkeypatch.setattr("frontier.claim.now_ms", lambda: world.now)
    monkeypatch.setattr("frontier.schedule.now_ms", lambda: world.now)
    monkeypatch.setattr("frontier.sheet.now_ms", lambda: world.now)
    monkeypatch.setattr("frontier.merge.now_ms", lambda: world.now)
    monkeypatch.setattr("frontier.booking.now_ms", lambda: world.now)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    with django_db_blocker.unblock():
        world.clear()
        yield world
        world.close()


@pytest.fixture
def choose(settings, monkeypatch) -> Iterator[Callable[[str], None]]:
    """Sets TRAWL_SEEN_PRECHECK, as a process would find it that starts afterwards; `redis` is the one of the tests,
    TRAWL_TEST_REDIS_URL, where only keys of this run are deleted."""
    url = os.environ.get("TRAWL_TEST_REDIS_URL", "")
    prefix = f"trawl-test-{os.getpid()}:written"
    monkeypatch.setattr(written, "PREFIX", prefix)

    def chosen(words: str) -> None:
        settings.SEEN_PRECHECK = [url if word == "redis" else word for word in words.split(",")]
        prechecks.written.cache_clear()
        merging.merger.cache_clear()

    yield chosen
    prechecks.written.cache_clear()
    merging.merger.cache_clear()
    if url:
        client = redis.Redis.from_url(url)
        for key in client.scan_iter(match=f"{prefix}*"):
            client.delete(key)
        client.close()
