"""The filter of blocked domains: never wrong, whatever a process has missed and whatever became of its file."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import OperationalError, connections
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontier import blockfilter, blocks
from frontier.blockfilter import DamagedFilter, DomainFilter, Stamp
from frontier.blocking import block, unblock
from frontier.blocks import Blocks, in_force
from frontier.models import BlockChange, DomainBlock
from tests.frontier.world import InThread, World

MANY = [f"d{n}.example" for n in range(30)]


@pytest.fixture
def small_chunks(monkeypatch) -> None:
    """Ten blocks are many: they are read by the loader and kept in a file."""
    monkeypatch.setattr(blocks, "CHUNK", 10)


def process(frontier: World) -> Blocks:
    """The blocks of a new process on this machine, loaded."""
    made = Blocks(frontier.using, directory())
    made.refresh()
    made.wait()
    made.refresh()
    return made


def directory() -> Path:
    return Path(django_settings.DATA_DIR) / "blocks"


class Queries:
    """Counts queries for blocked domains, and rows read to fill a filter."""

    def __init__(self, using: str) -> None:
        self.looked_up = self.read = 0
        self._using = using

    def __call__(self, execute: Any, sql: str, *rest: Any) -> Any:
        self.looked_up += "wanted" in sql
        self.read += "FROM frontier_domainblock WHERE id >" in sql
        return execute(sql, *rest)

    def __enter__(self) -> "Queries":
        self._wrapped = connections[self._using].execute_wrapper(self)
        self._wrapped.__enter__()
        return self

    def __exit__(self, *args: Any) -> None:
        self._wrapped.__exit__(*args)


# --- verdicts ------------------------------------------------------------------------------------------------


def test_an_unblocked_host_needs_no_query(frontier: World) -> None:
    block(MANY, using=frontier.using)
    known = process(frontier)
    with Queries(frontier.using) as queries:
        assert known.blocked([f"host{n}.test" for n in range(5)]) == set()
        assert queries.looked_up == 0
        assert known.blocked(["d1.example", "www.d2.example:81", "x.test"]) == {"d1.example", "www.d2.example:81"}
        assert queries.looked_up == 1
        assert known.covers("d1.example")
        assert queries.looked_up == 1


def test_what_the_filter_takes_for_blocked_is_confirmed(frontier: World, monkeypatch) -> None:
    block(["a.test"], using=frontier.using)
    known = process(frontier)
    monkeypatch.setattr(DomainFilter, "suspects", lambda self, names: list(names))
    with Queries(frontier.using) as queries:
        assert known.blocked(["b.test", "c.b.test", "a.test", "x.a.test"]) == {"a.test", "x.a.test"}
        assert queries.looked_up == 1
        assert not known.covers("b.test")
        assert queries.looked_up == 1


def test_many_verdicts_do_not_fill_the_memory(frontier: World, monkeypatch) -> None:
    monkeypatch.setattr(blocks, "MAX_VERDICTS", 10)
    block(["a.test"], using=frontier.using)
    known = process(frontier)
    for n in range(50):
        assert not known.covers(f"h{n}.test")
        assert known.covers(f"h{n}.a.test")
    assert len(known._verdicts) <= 11


def test_any_thread_may_ask_and_refresh(frontier: World) -> None:
    block(["a.test"], using=frontier.using)
    known = process(frontier)
    block(["b.test"], using=frontier.using)

    def ask() -> list[bool]:
        known.refresh()
        return [known.covers(name) for name in ("a.test", "b.test", "c.test")]

    assert [one.result() for one in [InThread(ask) for _ in range(4)]] == [[True, True, False]] * 4


def test_each_directory_and_process_has_blocks_of_its_own(frontier: World) -> None:
    block(["a.test"], using=frontier.using)
    first = in_force(frontier.using)
    assert in_force(frontier.using) is first
    frontier.move_to("elsewhere")
    assert in_force(frontier.using) is not first
    assert in_force(frontier.using).covers("a.test")


# --- following ------------------------------------------------------------------------------------------------


def test_a_process_that_is_behind_reads_only_what_it_missed(frontier: World) -> None:
    block(MANY, using=frontier.using)
    known = process(frontier)
    block(["new.test"], using=frontier.using)
    unblock(["d1.example"], frontier.using)
    assert not known.covers("new.test")
    with Queries(frontier.using) as queries:
        known.refresh()
        assert queries.read == 1
    assert known.blocked(["new.test", "d1.example", "d2.example"]) == {"new.test", "d2.example"}
    with Queries(frontier.using) as queries:
        known.refresh()
        assert queries.read == 0


def test_a_domain_that_is_removed_and_added_again_is_blocked(frontier: World) -> None:
    known = process(frontier)
    for _ in range(3):
        block(["a.test"], using=frontier.using)
        known.refresh()
        assert known.covers("a.test")
        unblock(["a.test"], frontier.using)
        known.refresh()
        assert not known.covers("a.test")


def test_a_filter_full_of_removed_domains_is_made_anew(frontier: World, small_chunks: None) -> None:
    block(MANY, using=frontier.using)
    known = process(frontier)
    unblock(MANY[:20], frontier.using)
    known.refresh()
    known.wait()
    known.refresh()
    with Queries(frontier.using) as queries:
        assert known.blocked(MANY) == set(MANY[20:])
        assert queries.looked_up == 1
    made = known._filter
    assert made is not None
    assert made.domains == 10


def test_more_domains_than_a_filter_has_room_for_make_a_larger_one(frontier: World, small_chunks, monkeypatch) -> None:
    monkeypatch.setattr(blockfilter, "MIN_CAPACITY", 4)
    known = process(frontier)
    for start in range(0, 30, 3):
        block(MANY[start : start + 3], using=frontier.using)
        known.refresh()
        known.wait()
        known.refresh()
        assert known.blocked(MANY) == set(MANY[: start + 3])
        assert known._filter is not None
        assert known._filter.domains <= known._filter.capacity


def test_verdicts_are_right_while_the_filter_is_being_loaded(frontier: World, small_chunks, monkeypatch) -> None:
    block(MANY, using=frontier.using)
    go = threading.Event()
    load = Blocks._load

    def held(self: Blocks) -> None:
        go.wait(20)
        load(self)

    monkeypatch.setattr(Blocks, "_load", held)
    known = Blocks(frontier.using, directory())
    known.refresh()
    assert known.blocked(["d1.example", "x.test"]) == {"d1.example"}
    block(["x.test"], using=frontier.using)
    known.refresh()
    assert known.blocked(["d1.example", "x.test"]) == {"d1.example", "x.test"}
    go.set()
    known.wait()
    known.refresh()
    assert known._filter is not None
    assert known.blocked(["d1.example", "x.test", "y.test"]) == {"d1.example", "x.test"}


def test_a_block_that_comes_during_the_load_is_not_forgotten_at_its_end(frontier, small_chunks, monkeypatch) -> None:
    block(MANY, using=frontier.using)
    make = Blocks._made

    def interrupted(self: Blocks) -> Any:
        made = make(self)
        block(["late.test"], using=frontier.using)
        self.refresh()
        assert self.covers("late.test")
        return made

    monkeypatch.setattr(Blocks, "_made", interrupted)
    known = Blocks(frontier.using, directory())
    known.refresh()
    known.wait()
    assert known._filter is not None
    assert known.covers("www.late.test")


def test_a_load_that_fails_leaves_verdicts_right_and_is_tried_again(
    frontier, small_chunks, monkeypatch, caplog
) -> None:
    block(MANY, using=frontier.using)
    known = Blocks(frontier.using, directory())
    with monkeypatch.context() as broken:
        broken.setattr(Blocks, "_made", lambda self: (_ for _ in ()).throw(OperationalError("gone away")))
        known.refresh()
        known.wait()
    assert "gone away" in caplog.text
    assert known._filter is None
    assert known.blocked(["d1.example", "x.test"]) == {"d1.example"}
    known.refresh()
    known.wait()
    assert known._filter is not None
    assert known.blocked(["d1.example", "x.test"]) == {"d1.example"}


def test_a_full_disk_costs_only_the_file(frontier: World, small_chunks: None, monkeypatch, caplog) -> None:
    block(MANY, using=frontier.using)
    monkeypatch.setattr(DomainFilter, "save", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left")))
    known = process(frontier)
    assert "No space left" in caplog.text
    assert known._filter is not None
    assert known.blocked(["d1.example", "x.test"]) == {"d1.example"}


def test_a_verdict_that_a_change_overtakes_is_not_kept(frontier: World, monkeypatch) -> None:
    monkeypatch.setattr(blocks, "MAX_VERDICTS", 2)
    block(["other.test"], using=frontier.using)
    known = process(frontier)
    suspects = DomainFilter.suspects

    def overtaken(self: DomainFilter, names: Any) -> list[str]:
        found = suspects(self, names)
        monkeypatch.setattr(DomainFilter, "suspects", suspects)
        block(["a.test"], using=frontier.using)
        known.refresh()
        return found

    monkeypatch.setattr(DomainFilter, "suspects", overtaken)
    assert known.blocked(["a.test", "b.test", "c.test"]) == set()
    assert known.covers("a.test")


# --- files ----------------------------------------------------------------------------------------------------


def test_a_start_reads_the_file_and_not_the_table(frontier: World, small_chunks: None) -> None:
    block(MANY, using=frontier.using)
    process(frontier)
    assert [path.name for path in directory().glob("*.filter")] == [f"{frontier.using}.filter"]
    block(["new.test"], using=frontier.using)
    unblock(["d2.example"], frontier.using)
    second = Blocks(frontier.using, directory())
    with Queries(frontier.using) as queries:
        second.refresh()
        assert queries.read == 1  # what came after the file
    assert second._filter is not None
    assert second.blocked([*MANY, "new.test"]) == {*MANY, "new.test"} - {"d2.example"}


def test_a_start_reads_the_file_and_the_many_that_came_after_it(frontier: World, small_chunks: None) -> None:
    block(MANY[:12], using=frontier.using)
    process(frontier)
    first = DomainFilter.load(directory() / f"{frontier.using}.filter")[1]
    block(MANY, using=frontier.using)
    assert process(frontier).blocked(MANY) == set(MANY)
    second = DomainFilter.load(directory() / f"{frontier.using}.filter")[1]
    assert second.last_id > first.last_id
    assert second.version > first.version


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "no footer", data[:-600]
    yield "cut", data[:-1]
    yield "short", data[:20]
    yield "a bit", data[:200] + bytes([data[200] ^ 1]) + data[201:]
    yield "another file", b"x" * 5000
    yield "footer alone", data[-(blockfilter.FOOTER_BYTES + len(blockfilter.MAGIC)) :]


def test_a_damaged_file_is_read_from_the_database_instead(frontier: World, small_chunks: None, caplog) -> None:
    block(MANY, using=frontier.using)
    process(frontier)
    path = directory() / f"{frontier.using}.filter"
    whole = path.read_bytes()
    for name, data in damaged(whole):
        path.write_bytes(data)
        with pytest.raises(DamagedFilter):
            DomainFilter.load(path)
        caplog.clear()
        assert process(frontier).blocked([*MANY, "x.test"]) == set(MANY), name
        assert "reading them from the database" in caplog.text
        assert DomainFilter.load(path)[0].domains == len(MANY), name


def test_the_file_of_a_newer_database_is_not_believed(frontier: World, small_chunks: None) -> None:
    """The database was put back from a copy: a block that was removed since is in force again."""
    block(MANY, using=frontier.using)
    copy = list(DomainBlock.objects.using(frontier.using))
    journal = list(BlockChange.objects.using(frontier.using))
    unblock(MANY[:20], frontier.using)
    process(frontier)  # its file lacks the twenty
    DomainBlock.objects.using(frontier.using).all()._raw_delete(frontier.using)
    BlockChange.objects.using(frontier.using).all().delete()
    DomainBlock.objects.using(frontier.using).bulk_create(copy)
    BlockChange.objects.using(frontier.using).bulk_create(journal)
    assert process(frontier).blocked(MANY) == set(MANY)


def test_the_file_of_another_database_is_not_believed_though_the_versions_agree(frontier, small_chunks: None) -> None:
    block(MANY[:15], using=frontier.using)
    process(frontier)
    DomainBlock.objects.using(frontier.using).all()._raw_delete(frontier.using)
    BlockChange.objects.using(frontier.using).update(token=7)
    ids = [DomainBlock(id=n + 1, domain=name) for n, name in enumerate(MANY[15:])]
    DomainBlock.objects.using(frontier.using).bulk_create(ids)
    assert process(frontier).blocked(MANY) == set(MANY[15:])


def test_a_filter_survives_its_file(tmp_path: Path) -> None:
    made = DomainFilter(100)
    made.add(MANY)
    stamp = Stamp(3, 1 << 61, 5, 7)
    made.save(tmp_path / "a" / "x.filter", stamp)
    loaded, told = DomainFilter.load(tmp_path / "a" / "x.filter")
    assert told == stamp
    assert (loaded.domains, loaded.capacity) == (made.domains, made.capacity)
    assert sorted(loaded.suspects(MANY)) == sorted(MANY)
    assert len(loaded.suspects([f"x{n}.test" for n in range(1000)])) < 20
    loaded.add(["more.test"])
    assert loaded.suspects(["more.test"]) == ["more.test"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x.filter"]


def test_a_filter_keeps_its_size_while_it_has_room_whatever_the_names() -> None:
    """By the crate's own hash these names make it grow at 0.58 of its slots, and to three times its size."""
    made = DomainFilter(48_000)
    before = made._run(lambda: blockfilter._own.filter.bits())
    made.add([f"a{n}.de" for n in range(made.capacity)])
    assert made.capacity == 60_000
    assert made._run(lambda: blockfilter._own.filter.bits()) < 1.1 * before


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    made = DomainFilter()
    made.save(tmp_path / "x.filter", Stamp(1))
    monkeypatch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space"):
        made.save(tmp_path / "x.filter", Stamp(2))
    assert DomainFilter.load(tmp_path / "x.filter")[1] == Stamp(1)
    assert [path.name for path in tmp_path.iterdir()] == ["x.filter"]


# --- the property ---------------------------------------------------------------------------------------------

LABELS = st.sampled_from(["a", "b", "nota", "xn--bcher-kva"])
NAMES = st.lists(LABELS, min_size=1, max_size=3).map(lambda labels: ".".join([*labels, "test"]))
DOMAINS = st.lists(NAMES, min_size=1, max_size=6)
WORKERS = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), DOMAINS),
        st.tuples(st.just("remove"), DOMAINS),
        st.tuples(st.just("expire"), DOMAINS),
        st.tuples(st.just("import"), st.lists(NAMES, min_size=15, max_size=40)),
        st.tuples(st.just("refresh"), st.integers(0, WORKERS - 1)),
        st.tuples(st.just("restart"), st.integers(0, WORKERS - 1)),
        st.tuples(st.just("damage"), st.integers(0, 300)),
    ),
    min_size=1,
    max_size=14,
)
HOSTS = sorted(
    {f"{host}{port}" for host in ("a.test", "b.a.test", "nota.test", "a.b.nota.test", "test") for port in ("", ":81")}
    | {"b.test", "b.b.test", "xn--bcher-kva.a.test", "a.xn--bcher-kva.test", "c.b.a.test", "nota.a.test"}
)


def is_covered(host: str, domains: set[str]) -> bool:
    """The same in other words, for a name with dots: it ends with a domain, at a dot."""
    name = host.removesuffix(":81")
    return any(f".{name}".endswith(f".{domain}") for domain in domains)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_filter_with_its_confirmation_is_the_plain_set(frontier: World, monkeypatch, steps: list[Any]) -> None:
    """With several processes that are out of step, tiny filters that are often wrong, and files that are damaged."""
    frontier.clear()
    monkeypatch.setattr(blocks, "CHUNK", 8)
    monkeypatch.setattr(blockfilter, "MIN_CAPACITY", 4)
    monkeypatch.setattr(blockfilter, "FALSE_POSITIVES", 0.9)
    using = frontier.using
    wanted: set[str] = set()
    workers = [process(frontier) for _ in range(WORKERS)]
    for step, what in steps:
        if step in ("add", "import"):
            block(what, using=using)
            wanted |= set(what)
        elif step == "remove":
            assert unblock(what, using) <= len(set(what))
            wanted -= set(what)
        elif step == "expire":
            for row in DomainBlock.objects.using(using).filter(domain__in=what):
                row.expires_at = timezone.now() - timedelta(seconds=1)
                row.save()
            wanted -= set(what)
        elif step == "restart":
            workers[what] = process(frontier)
        elif step == "damage" and (files := list(directory().glob("*.filter"))):
            data = bytearray(files[0].read_bytes())
            data[what % len(data)] ^= 1
            files[0].write_bytes(data)
        if step in ("refresh", "restart"):
            workers[what].refresh()
            assert workers[what].blocked(HOSTS) == {host for host in HOSTS if is_covered(host, wanted)}
    for worker in workers:
        worker.refresh()
        expected = {host for host in HOSTS if is_covered(host, wanted)}
        assert worker.blocked(HOSTS) == expected
        worker.wait()
        worker.refresh()
        assert worker.blocked(HOSTS) == expected
        assert {host for host in HOSTS if worker.covers(host)} == expected
    assert blocks.covering(HOSTS, using).keys() == expected
