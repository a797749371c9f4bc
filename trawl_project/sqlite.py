"""How trawl opens SQLite: the options that keep a crawl fast and every commit on disk."""

from typing import Any

# secure_delete: Debian's SQLite zeroes deleted pages, which doubles what a crawl writes.
# synchronous=FULL: the inbox and the main file are two files, and only with FULL does the order of
#   their commits survive a power cut (a merge must not delete inbox rows whose queue rows then vanish).
#   Commits are batched, so the price is a few fsyncs a second.
# cache_size is in KiB when negative; the 2 MB default thrashes once the tables outgrow it.
# wal_autocheckpoint is in pages of 4 KiB; the default of 1000 checkpoints inside every merge. What a merge
#   writes is brought to its place by a thread of its own (frontier/sql/sqlite.py heavy_transaction).
PRAGMAS = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=FULL;
PRAGMA secure_delete=0;
PRAGMA cache_size=-{cache_kib};
PRAGMA temp_store=MEMORY;
PRAGMA wal_autocheckpoint={autocheckpoint};
"""

AUTOCHECKPOINT_PAGES = 32_000
MAIN_CACHE_KIB, INBOX_CACHE_KIB = 65_536, 8_192  # the inbox is written at its end and read from its beginning


def options(cache_kib: int) -> dict[str, Any]:
    """The OPTIONS of a SQLite database in Django's settings."""
    return {
        "init_command": PRAGMAS.format(cache_kib=cache_kib, autocheckpoint=AUTOCHECKPOINT_PAGES),
        "transaction_mode": "IMMEDIATE",  # a deferred transaction that turns to writing gets "database is locked"
        "timeout": 60,  # seconds to wait for the write lock
    }
