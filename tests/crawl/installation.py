"""An installation of trawl for tests: a data directory with its database, and real commands upon it."""

import hashlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from crawl.store.warc import read_record
from tests.crawl.running import LOCAL, Ran, environment, prepare
from tests.rig import ROOT

# A PostgreSQL server on which databases may be made.
SERVER = os.environ.get("TRAWL_TEST_DATABASE_URL", "")
NO_SERVER = "PostgreSQL is not tested: TRAWL_TEST_DATABASE_URL is not set"


@dataclass
class Installation:
    """A data directory with its database."""

    data: Path
    database_url: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return environment() | ({"DATABASE_URL": self.database_url} if self.database_url else {})

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "trawl_project", "--data", str(self.data), *arguments]

    def run(self, *arguments: str, **options: Any) -> Ran:
        """Runs a trawl command to its end."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **options,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert "internal error" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        """Runs Python with Django set up."""
        variables = {
            **self.environment,
            "TRAWL_DATA": str(self.data),
            "DJANGO_SETTINGS_MODULE": "trawl_project.settings",
        }
        return subprocess.run(
            [sys.executable, "-c", f"import django; django.setup()\n{code}"],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def crawl(self, url: str, *arguments: str) -> list[str]:
        """The command of a crawl of a local site."""
        if not self.database_url:
            prepare(self.data)
        return self.command("crawl", url, *LOCAL, "--delay", "0", "--name", "site", "--json", *arguments)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the main database."""
        if self.database_url:
            with psycopg.connect(self.database_url) as connection:
                return connection.execute(sql.encode()).fetchall()
        with closing(sqlite3.connect(self.data / "trawl.sqlite3")) as database:
            return database.execute(sql).fetchall()

    def pages(self) -> list[str]:
        """The path of every page row."""
        return [urlsplit(ref).path for (ref,) in self.rows("SELECT ref FROM crawl_page WHERE status = 200")]

    def unreadable(self) -> int:
        """Requests whose answer is not where their rows say."""
        records = self.rows(
            "SELECT w.directory, w.name, f.warc_offset FROM crawl_fetch f JOIN crawl_warcfile w ON w.id = f.warc_id"
        )
        assert records
        return sum(
            not read_record(Path(folder) / name, offset)[0].startswith(b"HTTP/") for folder, name, offset in records
        )


@contextmanager
def database(name: str) -> Iterator[str]:
    """The URL of a new PostgreSQL database."""
    name = f"trawl_snapshot_{name}_{os.getpid()}"
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        server.execute(f"CREATE DATABASE {name}".encode())
        yield urlunsplit(urlsplit(SERVER)._replace(path=f"/{name}"))
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 by path."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
