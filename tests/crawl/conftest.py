"""Installations for the tests of snapshots."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.crawl.installation import NO_SERVER, SERVER, Installation, database
from tests.rig import ROOT
from tests.site import Site, serve

PAGES = 400


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The snapshot of a finished crawl of three pages. Not to be changed."""
    folder = tmp_path_factory.mktemp("small")
    web = folder / "web"
    web.mkdir()
    (web / "index.html").write_text("<a href=a.html>a</a><a href=b.html>b</a>")
    for name in "ab":
        (web / f"{name}.html").write_text(name)
    one = Installation(folder / "one")
    with serve(web) as site:
        subprocess.run(one.crawl(site.url), cwd=ROOT, env=one.environment, capture_output=True, check=True, timeout=60)
    taken = one.run("snapshot", str(folder / "snapshot"))
    assert taken.code == 0, taken.err
    return folder / "snapshot"


@pytest.fixture
def one(finished: Path, tmp_path: Path) -> Installation:
    """An installation with that crawl."""
    installation = Installation(tmp_path / "one")
    restored = installation.run("restore", str(finished))
    assert restored.code == 0, restored.err
    return installation


@pytest.fixture
def two(tmp_path: Path) -> Installation:
    """An installation with nothing in it."""
    return Installation(tmp_path / "two")


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Installation, Installation]]:
    """Two installations with nothing in them."""
    if request.param == "sqlite":
        yield Installation(tmp_path / "one"), Installation(tmp_path / "two")
        return
    if not SERVER:
        pytest.skip(NO_SERVER)
    with database("one") as one, database("two") as two:
        yield Installation(tmp_path / "one", one), Installation(tmp_path / "two", two)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Site]:
    """PAGES pages: page n links to 2n + 1, 2n + 2, the first and the one before."""
    folder = tmp_path / "web"
    folder.mkdir()
    for number in range(PAGES):
        linked = (2 * number + 1, 2 * number + 2, 0, number - 1)
        links = "".join(f"<a href={n}.html>{n}</a>" for n in linked if 0 <= n < PAGES)
        (folder / f"{number}.html").write_text(f"<title>{number}</title>{links}" + "text " * 200)
    with serve(folder, latency=0.005) as site:
        yield site


@pytest.fixture
def broker() -> Iterator[str]:
    """The URL of an empty Redis database, which nobody else uses: tests may run side by side."""
    url = os.environ.get("TRAWL_TEST_REDIS_URL", "")
    if not url:
        pytest.skip("set TRAWL_TEST_REDIS_URL")
    with open(f"{tempfile.gettempdir()}/trawl-test-redis.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        redis.Redis.from_url(url).flushdb()
        yield url
