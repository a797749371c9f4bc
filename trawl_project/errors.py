"""What went wrong, in one line that says what to do; and a file for what only a developer can mend.

No class of a library is imported to be compared with: most commands never load it.
"""

import errno
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from trawl_project.version import VERSION

T = TypeVar("T")


class UsageError(Exception):
    """Wrong words on the command line; exit code 2."""


class SettingError(Exception):
    """A variable of the environment has a value that cannot be used; exit code 2, as for wrong words."""


def parsed(variable: str, texts: Iterable[str], parse: Callable[[str], T]) -> list[T]:
    """The values of a list in the environment. Raises SettingError for one that cannot be used."""
    try:
        return [parse(text) for text in texts]
    except ValueError as error:
        raise SettingError(f"{variable}: {error}") from None


def report(error: Exception) -> int:
    """Prints the one line for `error`; returns the exit code."""
    if os.environ.get("TRAWL_DEBUG", "").lower() in ("1", "true", "yes", "on"):
        traceback.print_exception(error)
    if isinstance(error, UsageError):
        return say(str(error), 2)
    if isinstance(error, SettingError):
        return say(f"wrong setting in the environment: {error}; docs/settings.md lists them", 2)
    if "django.CommandError" in kinds(error):
        return say(str(error), getattr(error, "returncode", 1))
    return say(explain(error) or record_bug(error), 1)


def say(text: str, code: int) -> int:
    sys.stdout.flush()
    print(f"trawl: {text}", file=sys.stderr)
    return code


def kinds(error: BaseException) -> set[str]:
    """The classes of `error` as "package.Class", so that none has to be imported to be compared with."""
    return {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}


def explain(error: Exception) -> str | None:
    """The file or address, and what to do, for what a user can mend; None for a bug."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    names = kinds(error)
    if names & {"django.DatabaseError", "sqlite3.DatabaseError", "psycopg.OperationalError"}:
        is_operational = any("OperationalError" in name for name in names)
        return explain_database(reason, database_of(error), is_operational=is_operational)
    if names & {"redis.ConnectionError", "redis.TimeoutError", "kombu.OperationalError"}:
        broker = without_password(os.environ.get("BROKER_URL", ""))
        return f"cannot reach the queue {broker} ({reason}); start it, or correct BROKER_URL"
    return explain_os_error(error) if isinstance(error, OSError) else None


def database_of(error: Exception) -> dict[str, Any]:
    """The settings of the database that raised it, as far as its frames tell, else of the main one."""
    from django.conf import settings
    from django.db.utils import DatabaseErrorWrapper

    databases: dict[str, dict[str, Any]] = settings.DATABASES
    by_file = {database["NAME"]: database for database in databases.values()}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        raiser = frame.f_locals.get("self")
        if isinstance(raiser, DatabaseErrorWrapper):
            return databases[raiser.wrapper.alias]  # type: ignore[attr-defined]
        code = frame.f_code
        if "path" in code.co_varnames[: code.co_argcount]:  # frontier/snapshot.py opens files by itself
            return by_file.get(str(frame.f_locals["path"]), databases["default"])
    return databases["default"]


def explain_database(reason: str, database: dict[str, Any], *, is_operational: bool) -> str | None:
    if "sqlite" not in database["ENGINE"]:
        address = f"{database['HOST'] or 'the local socket'}:{database['PORT'] or 5432}/{database['NAME']}"
        return (
            f"cannot use PostgreSQL at {address} ({reason}); start it, or correct DATABASE_URL"
            if is_operational
            else None
        )
    file = database["NAME"]
    advice = {
        "unable to open": "check that its folder exists and is writable, or name another with --data DIR",
        "readonly": "make it and its folder writable, or name another with --data DIR",
        "full": "the disk is full; free some space and start again",
        "disk I/O error": "the disk may be full or failing",
        "locked": "another program holds it for more than a minute; end that one and start again",
        "not a database": "it is some other file; move it away, or name another folder with --data DIR",
        "malformed": "it is damaged; put a snapshot back with: trawl restore DIR --replace",
        "no such table": "it is not prepared; run: trawl migrate",
    }
    return next((f"database {file}: {reason}; {what}" for key, what in advice.items() if key in reason), None)


def explain_os_error(error: OSError) -> str | None:
    place = str(error.filename or "")
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        if not place:  # what is printed may go to a file as well
            return f"{reason}; free some space, for the data directory or where the output goes"
        return f"{reason}: {place}; free some space, or name another folder with --data DIR"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many open files; raise the limit first: ulimit -n 65536"
    if place and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{place}: {reason}; make it accessible, or name another folder with --data DIR"
    if place:
        return f"{place}: {reason}"
    is_network = isinstance(error, ConnectionError) or error.errno in (errno.EADDRINUSE, errno.EHOSTUNREACH)
    if is_network or "socket.gaierror" in kinds(error):
        return f"network: {error}; is the other side running?"
    return None


def record_bug(error: Exception) -> str:
    """Appends the traceback to DATA/trawl-error.log; returns the line that tells of it."""
    line = f"internal error: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    path = Path(os.environ.get("TRAWL_DATA") or "data").expanduser().resolve() / "trawl-error.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S%z')} trawl {VERSION}\n")
            traceback.print_exception(error, file=file)
    except OSError:
        return f"{line}; start again with TRAWL_DEBUG=1 to see the details"
    return f"{line}; the details are in {path}"


def without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
