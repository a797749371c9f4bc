"""The arguments of the benches: what cannot work is told in one line before anything is measured."""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import psycopg
import redis

from bench.storage import CONNECT_SECONDS, scratch_database

# URLs, and whatever else is counted: among more hosts than that, names would repeat (url_of in bench/stream.py).
MOST = 2_000_000_000


class Parser(argparse.ArgumentParser):
    """The parser of a bench. Every error ends the program with 2 and is one line, without the usage."""

    def __init__(self, bench: str, description: str | None) -> None:
        super().__init__(
            prog=f"trawl bench {bench}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")

    def check_data(self, folder: Path | None) -> None:
        """Makes the folder for scratch directories if need be, and one such directory; None: the temporary folder."""
        try:
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="trawl-bench-", dir=folder):
                pass
        except OSError as error:
            where = folder or "the temporary folder"
            self.error(f"cannot make files in {where} ({error.strerror}); name another folder with --data")

    def check_plot(self, file: Path) -> None:
        """Opens the file and leaves it as it was: /proc/x.png looks writable until one tries."""
        was_there = os.path.lexists(file)
        try:
            file.open("ab").close()
        except OSError as error:
            self.error(f"cannot write {file} ({error.strerror}); name another file with --plot")
        if not was_there:
            file.unlink()

    def check_postgresql(self, url: str, *statements: str) -> None:
        """Makes a database on the server, runs what the bench needs a privilege for, and drops it again."""
        if not url.startswith(("postgres://", "postgresql://")):
            self.error("--database takes postgres://user:password@host:port/name; without it SQLite is measured")
        try:
            with scratch_database(url) as database, psycopg.connect(database or "", autocommit=True) as connection:
                for statement in statements:
                    connection.execute(statement.encode())
        except (psycopg.Error, ValueError) as error:
            self.error(
                f"cannot use the PostgreSQL server ({_first_line(error)});"
                " name with --database one that runs and lets this user make databases"
            )

    def check_redis(self, url: str) -> None:
        """Asks the server for a sign of life."""
        if not url.startswith(("redis://", "rediss://")):
            self.error("--redis takes redis://host:port/number")
        try:
            redis.Redis.from_url(url, socket_connect_timeout=CONNECT_SECONDS, socket_timeout=CONNECT_SECONDS).ping()
        except (redis.RedisError, ValueError) as error:
            self.error(
                f"cannot use the Redis server ({_first_line(error)});"
                " name one that runs with --redis, or leave redis out of --choices"
            )


def whole(least: int = 1, most: int = MOST) -> Callable[[str], int]:
    """The type of an argument: a whole number between these."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"give a whole number from {least:,} to {most:,}")
        return number

    return read


def absolute(text: str) -> Path:
    """The type of an argument: a path that a process in another folder can use."""
    return Path(text).absolute()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
