"""Where the tests keep their data: a temporary directory, and databases in real files under it.

Set before Django reads its settings.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["TRAWL_DATA"] = tempfile.mkdtemp(prefix="trawl-tests-")
os.environ.pop("DATABASE_URL", None)


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker) -> Iterator[None]:
    """The default database and its inbox, in files as in production.

    Django would take SQLite databases in memory, which have no WAL and cannot be shared by threads
    and processes; and pytest-django would leave out the inbox where a test does not name it.
    """
    from django.db import connections
    from django.test.utils import setup_databases, teardown_databases

    aliases = dict.fromkeys(("default", "inbox"))
    for alias in aliases:
        path = Path(os.environ["TRAWL_DATA"]) / f"test-{alias}.sqlite3"
        connections.settings[alias]["TEST"]["NAME"] = str(path)
        # What the tests kill is trawl and not the machine, so a commit need not reach the disk.
        connections.settings[alias]["OPTIONS"]["init_command"] += "PRAGMA synchronous=OFF;"
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False, aliases=aliases, serialized_aliases=[])
    yield
    with django_db_blocker.unblock():
        teardown_databases(made, verbosity=0)
