"""What differs between SQLite and PostgreSQL, behind one small set of functions.

Many rows go in and out by *one* statement and *one* result row wherever the fetch loop runs beside:
`sqlite3` lets go of the interpreter lock at every row it steps over, and taking it back from a busy
loop costs up to the 5 ms switch interval each time. Measured with a busy thread beside, 200,000
rows: executemany 190 s, one INSERT over json_each 0.45 s.
"""

from importlib import import_module
from types import ModuleType

from django.db import connections


def dialect(using: str) -> ModuleType:
    """The module for the database behind `using`; both have the same functions. Only the one is loaded: to load psycopg
    takes 50 ms."""
    vendor = connections[using].vendor
    if vendor not in ("sqlite", "postgresql"):
        raise RuntimeError(f"trawl runs on SQLite and PostgreSQL, not on {vendor}")
    return _modules.get(vendor) or _modules.setdefault(vendor, import_module(f"frontier.sql.{vendor}"))


_modules: dict[str, ModuleType] = {}
