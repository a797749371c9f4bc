"""What is asked before the seen index: it spares work and changes nothing, whatever fails or is put back.

The shared set needs TRAWL_TEST_REDIS_URL, for example redis://127.0.0.1:6379/15; only keys of this run are deleted.
"""

import importlib.util
import os
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry

from frontier import admission
from frontier import merge as merging
from frontier.admission import recent
from frontier.merge import Merger
from frontier.models import FrontierState, Inbox, QueuedUrl
from frontier.priority import HELD, POPULAR, POPULAR_LINKS, SEED
from frontier.router import inbox_alias
from frontier.seen import prechecks, written
from frontier.seen.written import SetOnDisk, SharedSet
from tests.frontier.world import Killed, World, die

REDIS = os.environ.get("TRAWL_TEST_REDIS_URL", "")
ROOT = Path(__file__).parent.parent.parent
A, B, C = "https://a.test/", "https://b.test/", "https://c.test/"
URLS = [f"https://{host}.test/{page}" for host in "ab" for page in range(3)]

needs_redis = pytest.mark.skipif(not REDIS, reason="Redis is not tested: TRAWL_TEST_REDIS_URL is not set")


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: pip install -r requirements-dev.txt")


WRITTEN = [pytest.param("redis", marks=needs_redis), pytest.param("rocksdb", marks=needs("rocksdict"))]
KINDS = [pytest.param("bloom", marks=needs("rbloom")), "cuckoo"]
BOTH = pytest.param("redis,bloom", marks=[needs_redis, needs("rbloom")])
on_sqlite = pytest.mark.parametrize("using", ["sqlite"], indirect=True)


@pytest.fixture
def shared(frontier: World, choose: Callable[[str], None]) -> SharedSet:
    """The shared set of an empty frontier."""
    choose("redis")
    found = prechecks.written(frontier.using)
    assert isinstance(found, SharedSet)
    return found


# --- the same frontier as without ----------------------------------------------------------------------------


class Copy:
    """All that a database and its seen index hold, put back without a word to trawl."""

    def __init__(self, world: World, directory: Path) -> None:
        self._world, self._directory = world, directory
        models = apps.get_app_config("frontier").get_models()
        self._rows = {model: list(self._objects(model).values()) for model in models}
        shutil.copytree(world.directory, directory)

    def _objects(self, model: Any) -> Any:
        return model.objects.using(inbox_alias(self._world.using) if model is Inbox else self._world.using)

    def put_back(self) -> None:
        """While no process runs, as everywhere."""
        for model, rows in self._rows.items():
            self._objects(model).all().delete()
            self._objects(model).bulk_create([model(**row) for row in rows])
        shutil.rmtree(self._world.directory)
        shutil.copytree(self._directory, self._world.directory)
        self._world.restart()


found = st.lists(st.sampled_from(URLS), min_size=1, max_size=2)
admit = st.tuples(st.sampled_from(["admit", "another worker admits"]), found)
steps = st.one_of(admit, st.tuples(st.sampled_from(["merge", "another merges", "restart", "copy", "put back"])))


@on_sqlite
@pytest.mark.parametrize("words", ["cache", *WRITTEN, *KINDS, BOTH])
def test_the_frontier_is_the_same_with_any_of_them(frontier: World, choose, words: str, tmp_path: Path) -> None:
    choose(words)

    @settings(
        max_examples=int(os.environ.get("TRAWL_TEST_EXAMPLES", "40")),
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(st.lists(steps, min_size=12, max_size=30))
    def always(taken: list[tuple[Any, ...]]) -> None:
        frontier.clear()
        admitted: set[str] = set()
        kept: tuple[Copy, set[str]] | None = None
        for number, step in enumerate(taken):
            match step:
                case (("admit" | "another worker admits") as who, urls):
                    frontier.admit(*urls, afresh=who != "admit")
                    admitted |= set(urls)
                case ("merge",):
                    frontier.merge()
                case ("another merges",):
                    Merger(frontier.using).merge()
                case ("restart",):
                    frontier.restart()
                case ("copy",):
                    frontier.merge()  # makes the directory, too
                    directory = tmp_path / f"copies-{frontier.directory.parent.parent.name}" / str(number)
                    kept = Copy(frontier, directory), set(admitted)
                case ("put back",) if kept:
                    kept[0].put_back()
                    admitted = set(kept[1])
        while frontier.merge().links:
            pass
        assert frontier.urls() == sorted(admitted)
        frontier.check()
        frontier.check_nothing_is_stranded()

    always()


@on_sqlite
@needs_redis
def test_a_token_that_outlives_a_process_would_lose_links(frontier: World, choose, tmp_path: Path) -> None:
    """Why every process begins with a new one: the copy brings back whatever mark the database has."""
    choose("redis")
    frontier.add(A)
    copy = Copy(frontier, tmp_path / "copy")
    frontier.add(B)
    token = FrontierState.objects.using(frontier.using).get(name=written.TOKEN).value

    copy.put_back()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedSet, "_stored_token", lambda self: token)
        assert frontier.add(B).new_urls == 0
        assert frontier.urls() == [A]  # lost

    copy.put_back()
    frontier.add(B)
    assert frontier.urls() == [A, B]


# --- of the worker -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", WRITTEN)
def test_what_was_written_is_not_written_again(frontier: World, choose, words: str) -> None:
    choose(words)
    assert frontier.admit(A, B) == 2
    assert frontier.admit(A, B, C) == 1
    assert frontier.admit(A, campaign=2) == 1
    assert frontier.merge().links == 4


@pytest.mark.parametrize("words", WRITTEN)
def test_what_tells_something_new_is_written_all_the_same(frontier: World, choose, words: str) -> None:
    choose(words)
    frontier.add(A)
    assert frontier.admit(A, level=SEED) == 1
    assert frontier.admit(A, level=HELD) == 1
    recent.cache_clear()
    written_again = [frontier.admit(A, afresh=False) for _ in range(POPULAR_LINKS)]
    assert written_again == [0] * (POPULAR_LINKS - 1) + [1]
    frontier.merge()
    assert [one.level for one in frontier.waiting()] == [SEED]


@pytest.mark.parametrize("words", WRITTEN)
def test_what_is_held_does_not_hide_a_link_to_it(frontier: World, choose, words: str) -> None:
    choose(words)
    frontier.admit(A, level=HELD)
    assert frontier.admit(A, level=POPULAR + 1) == 1
    frontier.merge()
    assert [one.level for one in frontier.waiting()] == [POPULAR + 1]


@pytest.mark.parametrize("words", WRITTEN)
@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after it"])
def test_a_worker_that_dies_about_the_commit_loses_nothing(frontier: World, choose, words: str, after: bool) -> None:
    choose(words)
    prechecks.written(frontier.using)
    with pytest.MonkeyPatch.context() as patch:
        die(patch, admission, "write_down", after=after)
        with pytest.raises(Killed):
            frontier.admit(A)
    frontier.admit(A)  # by another worker, which shares the set
    assert frontier.inbox_rows() == (2 if after else 1)
    frontier.merge()
    assert frontier.urls() == [A]


@pytest.mark.parametrize("words", WRITTEN)
def test_links_of_a_transaction_that_is_rolled_back_are_not_taken_as_written(frontier: World, choose, words) -> None:
    choose(words)
    frontier.admit(B)
    with transaction.atomic(using=inbox_alias(frontier.using)):
        frontier.admit(A)
        transaction.set_rollback(True, using=inbox_alias(frontier.using))
    assert frontier.admit(A) == 1
    frontier.merge()
    assert frontier.urls() == [A, B]


@needs_redis
def test_a_set_is_not_begun_in_a_transaction(frontier: World, shared: SharedSet) -> None:
    """Its token might be rolled back, and one from before the start of the process be believed."""
    with transaction.atomic(using=frontier.using):
        assert frontier.admit(A) == 1
        assert shared._token is None
    assert frontier.admit(A) == 1
    assert shared._token is not None
    assert frontier.admit(A) == 0


@needs_redis
def test_a_database_that_was_emptied_gets_its_links_again(frontier: World, shared: SharedSet) -> None:
    frontier.add(A)
    frontier.clear()
    assert frontier.add(A).new_urls == 1
    assert frontier.urls() == [A]


@needs_redis
def test_another_process_that_starts_makes_all_begin_anew(frontier: World, shared: SharedSet) -> None:
    frontier.admit(A)
    other = SharedSet(REDIS, frontier.using)
    assert other.known([b"x"]) == [False]
    shared._look_at = 0.0  # LOOK_SECONDS later
    assert frontier.admit(A) == 1
    assert shared._token == other._token
    assert frontier.admit(A) == 0


@needs_redis
def test_a_rebuild_of_the_index_begins_a_new_set(frontier: World, shared: SharedSet) -> None:
    """A purged URL is new again after a rebuild, so who remembers that it was written must forget it."""
    frontier.add(A, B)
    queues = frontier.queues()
    [purged] = [row for row in QueuedUrl.objects.using(frontier.using) if queues[row.queue_id] == "a.test"]
    purged.delete(using=frontier.using)
    next(frontier.directory.glob("url*.run")).unlink()
    merging.merger.cache_clear()
    frontier.merge()
    shared._look_at = 0.0  # LOOK_SECONDS later
    assert frontier.add(A).new_urls == 1


@needs_redis
def test_without_redis_links_are_written(frontier: World, shared: SharedSet, caplog) -> None:
    frontier.admit(A)
    works, shared._redis = shared._redis, redis.Redis(port=1, retry=Retry(NoBackoff(), 0))
    assert frontier.admit(A, B) == 2
    assert frontier.admit(A, B) == 2
    assert caplog.text.count("Redis fails") == 1  # it is left alone for a while
    shared._redis, shared._rest_until = works, 0.0
    assert frontier.admit(A, B) == 1  # B was written while nobody could tell
    assert frontier.admit(A, B) == 0
    frontier.merge()
    assert frontier.urls() == [A, B]


@needs_redis
def test_redis_that_dies_between_the_question_and_the_answer_costs_nothing(
    frontier: World, shared: SharedSet, monkeypatch
) -> None:
    frontier.admit(C)
    add = shared.add

    def dies_first(keys: list[bytes]) -> None:
        shared._redis = redis.Redis(port=1, retry=Retry(NoBackoff(), 0))
        add(keys)

    monkeypatch.setattr(shared, "add", dies_first)
    assert frontier.admit(A) == 1
    assert frontier.admit(A) == 1
    frontier.merge()
    assert frontier.urls() == [A, C]


@needs_redis
def test_redis_that_forgets_costs_only_the_writing(frontier: World, shared: SharedSet) -> None:
    frontier.admit(A)
    assert shared._token is not None
    shared._redis.delete(*written._halves(shared._token))
    assert frontier.admit(A) == 1
    assert frontier.admit(A) == 0


@needs_redis
def test_the_shared_set_is_bounded(frontier: World, shared: SharedSet, monkeypatch) -> None:
    monkeypatch.setattr(written, "SHARED_LINKS", 10)
    for number in range(50):
        frontier.admit(*(f"https://a.test/{number}/{n}" for n in range(3)))
    assert shared._token is not None
    halves = written._halves(shared._token)
    assert sum(shared._redis.scard(half) for half in halves) <= 2 * 12
    assert all(0 < shared._redis.ttl(half) <= written.SHARED_SECONDS for half in halves if shared._redis.exists(half))
    assert frontier.merge().new_urls == 150


@needs("rocksdict")
def test_a_set_on_disk_is_gone_with_its_process(frontier: World, choose) -> None:
    choose("rocksdb")
    frontier.admit(A)
    first = prechecks.written(frontier.using)
    assert isinstance(first, SetOnDisk)
    left = first.directory
    prechecks.written.cache_clear()
    assert frontier.admit(A) == 1
    assert left.exists()  # its process lives
    first.close()
    assert not left.exists()
    left.mkdir()
    (left / "held").touch()  # as after a kill
    prechecks.written.cache_clear()
    prechecks.written(frontier.using)
    assert not left.exists()


@needs("rocksdict")
def test_a_set_on_disk_that_fails_costs_only_the_writing(frontier: World, choose, caplog) -> None:
    choose("rocksdb")
    frontier.admit(A)
    broken: Any = prechecks.written(frontier.using)
    broken._db.close()
    assert frontier.admit(A, B) == 2
    assert frontier.admit(A, B) == 2
    assert caplog.text.count("RocksDB fails") == 1


# --- the setting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["blom"], "'blom' is none of cache, redis, rocksdb, bloom, cuckoo"),
        (["bloom", "cuckoo"], "bloom and cuckoo do the same work"),
        (["redis", "rocksdb"], "redis and rocksdb do the same work"),
        (["redis"], "the broker is no Redis"),
    ],
)
def test_a_wrong_setting_is_one_sentence(settings, words: list[str], said: str) -> None:
    settings.SEEN_PRECHECK, settings.BROKER_URL = words, "memory://"
    with pytest.raises(ImproperlyConfigured, match=re.escape(said)):
        prechecks.check()


def test_words_are_read(settings) -> None:
    settings.BROKER_URL = "redis://broker/0"
    for words, expected in {
        ("cache",): prechecks.Choice(),
        ("",): prechecks.Choice(),
        ("redis", " cuckoo"): prechecks.Choice("redis", "cuckoo", "redis://broker/0"),
        ("redis://other/1",): prechecks.Choice("redis", "", "redis://other/1"),
    }.items():
        settings.SEEN_PRECHECK = list(words)
        assert prechecks.choice() == expected


@pytest.mark.parametrize("word", prechecks.PACKAGES)
def test_a_missing_package_is_said_with_the_command_that_installs_it(settings, monkeypatch, word: str) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(prechecks, "import_module", missing)
    settings.SEEN_PRECHECK = [word]
    name, version = prechecks.PACKAGES[word]
    with pytest.raises(ImproperlyConfigured, match=f"pip install {name}=={version}"):
        prechecks.check()


def test_the_versions_are_the_same_everywhere() -> None:
    pins = [f"{name}=={version}" for name, version in prechecks.PACKAGES.values()]
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["seen"]
    assert extra == pins
    assert set(pins) <= set((ROOT / "requirements-dev.txt").read_text().split())
