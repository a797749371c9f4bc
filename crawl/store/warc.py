"""The WARC store: appends exchanges to rotated `.warc.gz` files, reads one back, repairs a file after a kill.

Files carry their final name from the start, without an `.open` suffix: database rows name the file of each
page, and a rename would leave them wrong between the two acts. What is whole is told by the size that the
database has committed for a file, not by its name.
"""

import contextlib
import errno
import itertools
import os
import re
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from fastwarc.warc import ArchiveIterator

from .records import Exchange, Members, exchange_members, revisit_members, warcinfo_member

__all__ = ["Exchange", "StoreError", "Stored", "WarcWriter", "read_record", "repair"]

MAX_FILE_BYTES = 1 << 30
# fastwarc stops at 32 KiB of headers unless told otherwise; libcurl lets 300 KB of a response through.
_MAX_HEAD_BYTES = 1 << 20
_NAME_TRIES = 1000
# One count for all writers of the process: names are unique across directories too.
_SERIALS = itertools.count()


class StoreError(OSError):
    """The disk or a stored file refuses; carries errno, the reason and the path as every OSError does."""


class Stored(NamedTuple):
    """Where a response (or revisit) record lies, for the database row and the CDXJ line."""

    file: str
    """Name within the writer's directory."""
    offset: int
    length: int
    """Of the compressed record alone; request and metadata follow it."""
    digest: str
    """`sha1:BASE32` of the body as received, content coding on."""


class WarcWriter:
    """Appends exchanges to files `PREFIX-TIME-SERIAL-PID-HOST.warc.gz` in a directory. One thread owns it.

    Every file is new: none is ever appended to by a second writer, so a crash can only harm what was not
    committed. Raises StoreError when the disk refuses; the exchange is then cut off the file again, and the
    writer can be used on.
    """

    def __init__(
        self,
        directory: Path,
        prefix: str,
        max_bytes: int = MAX_FILE_BYTES,
        info: Mapping[str, str] | None = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", prefix):
            raise ValueError(f"the prefix of WARC names has letters, digits, dot, dash, underscore: {prefix!r}")
        self._directory = directory
        self._prefix = prefix
        self._max_bytes = max_bytes
        self._info = dict(info or {})
        host = re.sub(r"[^A-Za-z0-9.-]+", "_", socket.gethostname())[:40] or "host"
        self._writer_name = f"{os.getpid()}-{host}"
        self._fd: int | None = None
        self._name = ""
        self._size = 0
        self._grown: dict[str, int] = {}
        self._directory_changed = False

    def write(self, exchange: Exchange) -> Stored:
        """Appends the response, request and metadata records of a fetch."""
        return self._append(exchange_members(exchange))

    def write_revisit(
        self, exchange: Exchange, original_digest: str, original_url: str, original_date: datetime
    ) -> Stored:
        """Appends a revisit record without the body: a 304, or a body stored before under the same digest."""
        return self._append(revisit_members(exchange, original_digest, original_url, original_date))

    @property
    def position(self) -> tuple[str, int] | None:
        """Name and size of the file being written, None when none is open."""
        return None if self._fd is None else (self._name, self._size)

    def flush(self, sync: bool = False) -> dict[str, int]:
        """Returns name and size of each file that grew since the last flush: what the database is to commit.

        More than one when a rotation lay between: the size of the closed file must be committed too, or
        `repair` would cut committed records off it. `sync` waits until all of it is on the disk.
        """
        if sync:
            self._sync()
        grown, self._grown = self._grown, {}
        return grown

    def close(self) -> None:
        """Closes the file, synced. The next write opens another."""
        if self._fd is not None:
            self._sync()
            self._abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, members: Members) -> Stored:
        if self._fd is not None and self._size >= self._max_bytes:
            self.close()
        fd = self._open() if self._fd is None else self._fd
        offset = self._size
        self._put(fd, b"".join(members.records))
        return Stored(self._name, offset, len(members.records[0]), members.digest)

    def _open(self) -> int:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            fd, name = self._create()
        except OSError as error:
            raise _store_error(error, self._directory) from error
        self._fd, self._name, self._size = fd, name, 0
        self._directory_changed = True
        try:
            self._put(fd, warcinfo_member(name, {"hostname": socket.gethostname(), **self._info}, _now()))
        except StoreError:
            self._abandon()
            with contextlib.suppress(OSError):
                (self._directory / name).unlink()
            raise
        return fd

    def _create(self) -> tuple[int, str]:
        for _ in range(_NAME_TRIES):
            now = _now()
            stamp = f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}"
            name = f"{self._prefix}-{stamp}-{next(_SERIALS):05d}-{self._writer_name}.warc.gz"
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
                return os.open(self._directory / name, flags, 0o644), name
            except FileExistsError:
                continue
        raise FileExistsError(errno.EEXIST, f"no free WARC name in {_NAME_TRIES} tries")

    def _put(self, fd: int, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError as error:
            self._cut_back(fd)
            raise _store_error(error, self._directory / self._name) from error
        self._size += len(data)
        self._grown[self._name] = self._size

    def _cut_back(self, fd: int) -> None:
        """A file that cannot be cut is left: its committed size is right, and `repair` cuts it later."""
        try:
            os.ftruncate(fd, self._size)
        except OSError:
            self._abandon()

    def _sync(self) -> None:
        """A file whose fsync failed is not written again, nor its size given out.

        The kernel marks the lost pages clean, so a second fsync would succeed without having saved them.
        """
        try:
            if self._fd is not None:
                os.fsync(self._fd)
            if self._directory_changed:
                _sync_directory(self._directory)
                self._directory_changed = False
        except OSError as error:
            self._grown.pop(self._name, None)
            self._abandon()
            raise _store_error(error, self._directory / self._name) from error

    def _abandon(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def repair(path: Path, size: int) -> int:
    """Cuts a file back to its committed size after a kill; returns the number of bytes dropped.

    Raises StoreError when the file is missing, or shorter than `size`: then committed records are lost, and
    cutting would hide it.
    """
    try:
        with path.open("r+b") as file:
            found = os.fstat(file.fileno()).st_size
            if found < size:
                reason = f"{found} bytes found where {size} were committed, records are lost"
                raise StoreError(errno.EIO, reason, str(path))
            if found > size:
                file.truncate(size)
                os.fsync(file.fileno())
            return found - size
    except StoreError:
        raise
    except OSError as error:
        raise _store_error(error, path) from error


def read_record(path: Path, offset: int) -> tuple[bytes, bytes]:
    """Head and body of the record at `offset`; a record that is not HTTP has an empty head.

    The head ends with its empty line; the body has its content coding still on. Raises StoreError when no
    whole record begins there.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            records = ArchiveIterator(file, parse_http=False, max_header_len=_MAX_HEAD_BYTES)
            record = next(records, None)
            block: bytes | None = None if record is None else record.reader.read()
    except (OSError, EOFError, ValueError) as error:
        raise _store_error(error, path) from error
    if record is None or block is None or len(block) != record.content_length:
        raise StoreError(errno.EINVAL, f"no whole WARC record at offset {offset}", str(path))
    if not record.is_http:
        return b"", block
    head, end, body = block.partition(b"\r\n\r\n")
    return head + end, body


def _store_error(error: Exception, path: Path) -> StoreError:
    number = getattr(error, "errno", None) or errno.EIO
    return StoreError(number, getattr(error, "strerror", None) or str(error), str(path))


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _now() -> datetime:
    return datetime.now(UTC)
