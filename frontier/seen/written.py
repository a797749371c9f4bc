"""Exact sets of links that were written down, beyond what one process remembers: in Redis, or on disk.

A set describes one state of a database. Were it believed beside another one (put back from a copy, emptied), links
would be lost: it says "written", and the row is gone. No mark in the database itself can tell a restore, for a
copy brings the mark back as well. So every process that begins to use a set first makes a new token, commits it
to the database, and believes only what was put into the set under this token or a later one: those rows were
committed while it ran, and a database is not put back under a running process. What it costs: the shared set
begins anew whenever a worker starts.
"""

import fcntl
import logging
import os
import secrets
import shutil
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import redis
from django.conf import settings
from django.db import connections

from frontier.models import FrontierState

log = logging.getLogger(__name__)

TOKEN = "written_token"
PREFIX = "trawl:written"
# Links in each half of the shared set, as in frontier/admission.py Recent: the older half goes when one is full.
SHARED_LINKS = 2_000_000
# Nobody has added to a set for so long: its workers are gone.
SHARED_SECONDS = 24 * 3600
# Members in one Redis command, during which it serves nobody else: 5 ms.
MEMBERS = 5_000
# How often a process looks whether another one has begun a new set.
LOOK_SECONDS = 10.0
# A Redis that fails is left alone for so long, and one that does not answer holds a commit up for so long.
REST_SECONDS, TIMEOUT_SECONDS = 30.0, 1.0


def begin_anew(using: str = "default") -> tuple[int, int | None]:
    """Makes and stores a new token; returns it and the one before. Processes that run follow within LOOK_SECONDS."""
    states, token = FrontierState.objects.using(using), secrets.randbits(62)
    before = states.filter(name=TOKEN).values_list("value", flat=True).first()
    states.update_or_create(name=TOKEN, defaults={"value": token})
    return token, before


class SharedSet:
    """A Redis set that the workers of one database share. Without Redis it knows nothing, and links are written."""

    def __init__(self, url: str, using: str = "default") -> None:
        # One answer or none: a retry would hold the writer up twice as long.
        self._redis = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=None
        )
        self._using = using
        self._lock = threading.Lock()
        self._token: int | None = None
        self._look_at = self._rest_until = 0.0

    def known(self, keys: list[bytes]) -> list[bool]:
        nothing = [False] * len(keys)
        token = self._current()
        if token is None or not keys:
            return nothing
        try:
            pipe = self._redis.pipeline(transaction=False)
            for half in _halves(token):
                for start in range(0, len(keys), MEMBERS):
                    pipe.smismember(half, keys[start : start + MEMBERS])
            answers = [bool(one) for answer in pipe.execute() for one in answer]
        except redis.RedisError as error:
            self._rest(error)
            return nothing
        return [young or old for young, old in zip(answers[: len(keys)], answers[len(keys) :], strict=True)]

    def add(self, keys: list[bytes]) -> None:
        if self._token is None or not keys or time.monotonic() < self._rest_until:
            return
        young, old = _halves(self._token)
        try:
            pipe = self._redis.pipeline(transaction=False)
            for start in range(0, len(keys), MEMBERS):
                pipe.sadd(young, *keys[start : start + MEMBERS])
            pipe.expire(young, SHARED_SECONDS)
            pipe.scard(young)
            if pipe.execute()[-1] >= SHARED_LINKS:
                # Should two workers do this at once, the older half is forgotten too early.
                self._redis.rename(young, old)
        except redis.RedisError as error:
            self._rest(error)

    def _current(self) -> int | None:
        """The token to go by; None while there is none or Redis rests."""
        with self._lock:
            now = time.monotonic()
            if now >= self._look_at:
                self._token = self._stored_token()
                self._look_at = now + LOOK_SECONDS if self._token is not None else 0.0
            return None if now < self._rest_until else self._token

    def _stored_token(self) -> int | None:
        """The token in the database; a new one at the start of this process, or when somebody emptied the table."""
        states = FrontierState.objects.using(self._using).filter(name=TOKEN)
        found = states.values_list("value", flat=True).first() if self._token is not None else None
        if found is not None:
            return int(found)
        if connections[self._using].in_atomic_block:
            return None  # a rollback would bring the token before it back
        token, before = begin_anew(self._using)
        if before is not None:
            self._forget(before)
        return token

    def _forget(self, token: int) -> None:
        try:
            self._redis.unlink(*_halves(token))
        except redis.RedisError as error:
            self._rest(error)

    def _rest(self, error: redis.RedisError) -> None:
        self._rest_until = time.monotonic() + REST_SECONDS
        log.warning("seen pre-check: Redis fails (%s); links are written without asking it for a while", error)


def _halves(token: int) -> tuple[str, str]:
    """The names of the younger and the older half of a set. The token is random, so no other database has it."""
    return f"{PREFIX}:{token:x}", f"{PREFIX}:{token:x}:old"


class SetOnDisk:
    """All links that this process has written, in a RocksDB of its own; the next process begins with an empty one."""

    def __init__(self, rocksdict: Any) -> None:
        self._process = os.getpid()
        base = Path(settings.DATA_DIR) / "written"
        base.mkdir(parents=True, exist_ok=True)
        _remove_left(base)
        self.directory = base / secrets.token_hex(8)
        self.directory.mkdir()
        held = open(self.directory / "held", "w")  # noqa: SIM115 - locked for as long as this lives
        fcntl.flock(held, fcntl.LOCK_EX)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        self._db = rocksdict.Rdict(str(self.directory / "db"), options)
        self._batch = rocksdict.WriteBatch
        self._works = True
        self._end = weakref.finalize(self, _discard, self._process, self._db, held, self.directory)

    def known(self, keys: list[bytes]) -> list[bool]:
        if not self._usable():
            return [False] * len(keys)
        try:
            return [value is not None for value in self._db[keys]]
        except Exception as error:  # noqa: BLE001 - rocksdict raises plain exceptions
            return self._fail(error, len(keys))

    def add(self, keys: list[bytes]) -> None:
        if not self._usable():
            return
        try:
            batch = self._batch(raw_mode=True)
            for key in keys:
                batch.put(key, b"")
            self._db.write(batch)
        except Exception as error:  # noqa: BLE001 - rocksdict raises plain exceptions
            self._fail(error, 0)

    def close(self) -> None:
        """Closes and deletes it, as the end of the process does."""
        self._works = False
        self._end()

    def _usable(self) -> bool:
        return self._works and os.getpid() == self._process  # a fork has its threads no longer

    def _fail(self, error: Exception, keys: int) -> list[bool]:
        self._works = False
        log.warning("seen pre-check: RocksDB fails (%s); links are written without asking it", error)
        return [False] * keys


def _discard(process: int, db: Any, held: TextIO, directory: Path) -> None:
    held.close()
    if os.getpid() == process:
        with suppress(Exception):  # it is deleted whatever its state
            db.close()
        shutil.rmtree(directory, ignore_errors=True)


def _remove_left(base: Path) -> None:
    """Deletes the sets of processes that are gone."""
    for directory in base.iterdir():
        try:
            with open(directory / "held") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue
