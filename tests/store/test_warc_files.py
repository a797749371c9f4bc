"""Files of the WARC store: names, rotation, committed sizes, repair after a kill, disk errors."""

import errno
import os
import re
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from crawl.store import warc
from crawl.store.warc import StoreError, WarcWriter, read_record, repair

from .archive import HEAD, READERS, STARTED, exchange


@contextmanager
def disk_full_at(size):
    """No file may grow beyond `size` bytes: a write is cut short there, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def bodies(path, reader):
    return [seen.payload for seen in reader(path) if seen.type == "response"]


def incompressible(size=50_000):
    return os.urandom(size)


def test_nothing_is_on_the_disk_before_the_first_write(tmp_path):
    with WarcWriter(tmp_path / "a" / "b", "t") as writer:
        assert writer.position is None
        assert writer.flush(sync=True) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_name_has_prefix_time_serial_process_and_host(tmp_path):
    with WarcWriter(tmp_path / "made", "crawl_7.x") as writer:
        stored = writer.write(exchange())
    assert re.fullmatch(rf"crawl_7\.x-\d{{17}}-\d{{5,}}-{os.getpid()}-[A-Za-z0-9._-]+\.warc\.gz", stored.file)
    assert (tmp_path / "made" / stored.file).is_file()


@pytest.mark.parametrize("prefix", ["", "a/b", "../x", "a b", "é"])
def test_a_prefix_that_is_no_file_name_is_refused(tmp_path, prefix):
    with pytest.raises(ValueError, match="prefix"):
        WarcWriter(tmp_path, prefix)


@pytest.mark.parametrize("directories", [("a", "a"), ("a", "b")])
def test_two_writers_of_one_process_never_share_a_name(tmp_path, monkeypatch, directories):
    monkeypatch.setattr(warc, "_now", lambda: STARTED)
    one, two = (WarcWriter(tmp_path / name, "t") for name in directories)
    with one, two:
        assert one.write(exchange()).file != two.write(exchange()).file


def test_an_existing_file_is_never_written_over(tmp_path, monkeypatch):
    monkeypatch.setattr(warc, "_now", lambda: STARTED)
    monkeypatch.setattr(warc, "_SERIALS", iter([0, 0, 1]))
    with WarcWriter(tmp_path, "t") as writer:
        first = writer.write(exchange())
    with WarcWriter(tmp_path, "t") as writer:
        second = writer.write(exchange())
    assert re.search("-00000-", first.file)
    assert re.search("-00001-", second.file)


def test_a_file_is_closed_once_it_has_reached_its_size(tmp_path):
    with WarcWriter(tmp_path, "t", max_bytes=100_000) as writer:
        stored = [writer.write(exchange(body=incompressible())) for _ in range(5)]
        names = [one.file for one in stored]
        assert len(set(names)) == 3
        assert names == sorted(names)
        sizes = writer.flush(sync=True)
    assert sizes == {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    for name in set(names):
        for reader in READERS:
            assert reader(tmp_path / name)[0].type == "warcinfo"


def test_flush_gives_the_files_that_grew_since_the_last_one(tmp_path):
    with WarcWriter(tmp_path, "t", max_bytes=1) as writer:
        first = writer.write(exchange())
        second = writer.write(exchange())
        assert list(writer.flush()) == [first.file, second.file]
        assert writer.flush() == {}
        third = writer.write(exchange())
        assert writer.position == (third.file, (tmp_path / third.file).stat().st_size)
        assert list(writer.flush()) == [third.file]


def test_what_is_written_is_readable_at_once(tmp_path):
    with WarcWriter(tmp_path, "t") as writer:
        stored = writer.write(exchange())
        assert read_record(tmp_path / stored.file, stored.offset) == (HEAD, b"<p>hello")


def test_a_closed_writer_goes_on_in_a_new_file(tmp_path):
    writer = WarcWriter(tmp_path, "t")
    first = writer.write(exchange())
    writer.close()
    writer.close()
    assert writer.position is None
    assert writer.write(exchange()).file != first.file
    writer.close()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("left", [1, 20, 300, 40_000])
def test_a_file_cut_in_mid_member_is_whole_again_after_repair(tmp_path, reader, left):
    writer = WarcWriter(tmp_path, "t")
    stored = writer.write(exchange(body=b"committed"))
    (committed,) = writer.flush().values()
    writer.write(exchange(body=incompressible()))
    writer.close()
    path = tmp_path / stored.file
    os.truncate(path, committed + left)

    assert repair(path, committed) == left
    assert bodies(path, reader) == [b"committed"]
    assert repair(path, committed) == 0


def test_repair_refuses_a_file_that_lost_committed_bytes(tmp_path):
    path = tmp_path / "x.warc.gz"
    path.write_bytes(b"12345")
    with pytest.raises(StoreError, match="5 bytes found where 6 were committed") as caught:
        repair(path, 6)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"12345"


def test_repair_refuses_a_file_that_is_not_there(tmp_path):
    with pytest.raises(StoreError) as caught:
        repair(tmp_path / "x.warc.gz", 6)
    assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize("reader", READERS)
def test_a_full_disk_cuts_the_half_written_exchange_off_and_the_writer_goes_on(tmp_path, reader):
    with WarcWriter(tmp_path, "t") as writer:
        stored = writer.write(exchange(body=b"one"))
        before = writer.position
        with disk_full_at(10_000), pytest.raises(StoreError) as caught:
            writer.write(exchange(body=incompressible()))
        assert caught.value.errno == errno.EFBIG
        assert caught.value.filename == str(tmp_path / stored.file)
        assert writer.position == before
        assert writer.write(exchange(body=b"three")).file == stored.file
    assert bodies(tmp_path / stored.file, reader) == [b"one", b"three"]


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_cannot_be_cut_back_is_left_to_repair(tmp_path, monkeypatch, reader):
    def refuse(fd, size):
        raise OSError(errno.EIO, "no")

    with WarcWriter(tmp_path, "t") as writer:
        first = writer.write(exchange(body=b"one"))
        with monkeypatch.context() as patch, disk_full_at(10_000):
            patch.setattr(os, "ftruncate", refuse)
            with pytest.raises(StoreError):
                writer.write(exchange(body=incompressible()))
        second = writer.write(exchange(body=b"three"))
        sizes = writer.flush()
    assert first.file != second.file
    assert repair(tmp_path / first.file, sizes[first.file]) > 0
    assert bodies(tmp_path / first.file, reader) == [b"one"]
    assert bodies(tmp_path / second.file, reader) == [b"three"]


def test_a_disk_that_is_full_from_the_start_leaves_no_file(tmp_path):
    with WarcWriter(tmp_path, "t") as writer:
        with disk_full_at(10), pytest.raises(StoreError):
            writer.write(exchange())
        assert list(tmp_path.iterdir()) == []
        assert writer.flush() == {}
        writer.write(exchange())


def test_a_directory_that_cannot_be_made_is_a_store_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError) as caught:
        WarcWriter(tmp_path / "file" / "below", "t").write(exchange())
    assert caught.value.errno == errno.ENOTDIR


def test_a_file_whose_fsync_failed_is_given_up_and_its_size_is_not_committed(tmp_path, monkeypatch):
    def refuse(fd):
        raise OSError(errno.EIO, "lost pages")

    with WarcWriter(tmp_path, "t") as writer:
        first = writer.write(exchange())
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refuse)
            with pytest.raises(StoreError, match="lost pages"):
                writer.flush(sync=True)
        second = writer.write(exchange())
        assert first.file != second.file
        assert list(writer.flush(sync=True)) == [second.file]


@pytest.mark.parametrize("shift", [1, 5, -1])
def test_an_offset_beside_a_record_is_a_store_error(tmp_path, shift):
    with WarcWriter(tmp_path, "t") as writer:
        stored = writer.write(exchange())
    with pytest.raises(StoreError):
        read_record(tmp_path / stored.file, stored.offset + shift)


def test_reading_beyond_the_end_and_a_cut_record_and_a_missing_file_are_store_errors(tmp_path):
    with WarcWriter(tmp_path, "t") as writer:
        stored = writer.write(exchange(body=incompressible()))
    path = tmp_path / stored.file
    with pytest.raises(StoreError):
        read_record(path, path.stat().st_size)
    os.truncate(path, stored.offset + stored.length // 2)
    with pytest.raises(StoreError):
        read_record(path, stored.offset)
    with pytest.raises(StoreError):
        read_record(Path(tmp_path / "none"), 0)


def test_the_warcinfo_record_is_read_with_an_empty_head(tmp_path):
    with WarcWriter(tmp_path, "t", info={"software": "trawl/9", "robots": "ignore"}) as writer:
        stored = writer.write(exchange())
    head, block = read_record(tmp_path / stored.file, 0)
    assert head == b""
    assert block.startswith(b"software: trawl/9\r\n")
    assert b"robots: ignore\r\n" in block
