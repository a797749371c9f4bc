"""The trawl command: finds the command, brings the database up to date, runs it, says what went wrong.

Django is imported only once a command needs it: `trawl --help` reads the help texts from the source.
Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted; a CommandError brings its own.
"""

import ast
import contextlib
import difflib
import errno
import fcntl
import os
import pkgutil
import secrets
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.core.management.base import BaseCommand
    from django.db.backends.base.base import BaseDatabaseWrapper

ROOT = Path(__file__).resolve().parent.parent
APPS = ("crawl", "frontier")
# Of Django's own: what never asks for a table.
NEEDS_NO_DATABASE = {
    *("check", "collectstatic", "compilemessages", "diffsettings", "findstatic", "makemessages"),
    *("optimizemigration", "startapp", "startproject", "test"),
}
# What takes the database as it is: makes the tables, looks which there are, or copies them.
TAKES_DATABASE_AS_IT_IS = {
    *("makemigrations", "migrate", "showmigrations", "snapshot", "sqlmigrate", "squashmigrations"),
}
# pg_advisory_lock takes a number; this one is "trawl" in ASCII.
MIGRATE_LOCK = int.from_bytes(b"trawl", "big")


class UsageError(Exception):
    """Wrong words on the command line; exit code 2."""


class SettingError(Exception):
    """A variable of the environment has a value that cannot be used; exit code 1."""


def main() -> None:
    """Runs `trawl ARGS`; always leaves by sys.exit."""
    # A descriptor that the caller closed is None here; what is written goes nowhere, as was asked for.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Runs one command, turns every exception into a line on standard error, returns the exit code."""
    try:
        dispatch(take_data_option(argv))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `trawl ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the interpreter complains when it flushes
        return 141
    except Exception as error:  # noqa: BLE001 - the last stop; nothing is swallowed, see report()
        return report(error)
    return 0


def take_data_option(argv: list[str]) -> list[str]:
    """argv without `--data DIR`; the settings, which load later, read TRAWL_DATA."""
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            return [*rest, word, *words]
        if word != "--data" and not word.startswith("--data="):
            rest.append(word)
            continue
        folder = next(words, "") if word == "--data" else word.removeprefix("--data=")
        if not folder or folder.startswith("-"):
            raise UsageError("--data needs a folder: --data DIR")
        os.environ["TRAWL_DATA"] = str(Path(folder).expanduser().resolve())
    return rest


def dispatch(argv: list[str]) -> None:
    """Runs the command named by the first word."""
    name, arguments = (argv[0], argv[1:]) if argv else ("help", [])
    if name in ("help", "--help", "-h"):
        if not arguments or arguments[0].startswith("-"):
            return print_help()
        name, arguments = arguments[0], ["--help"]
    if name in ("version", "--version"):
        return print(f"trawl {version()}")
    if name.startswith("-"):
        raise UsageError(f"unknown option {name}; see: trawl help")
    run_command(name, arguments)


# --- help -----------------------------------------------------------------------------------------


def own_commands() -> dict[str, Path]:
    """Name -> source file of every command of our apps."""
    return {
        module.name: ROOT / app / "management" / "commands" / f"{module.name}.py"
        for app in APPS
        for module in pkgutil.iter_modules([str(ROOT / app / "management" / "commands")])
        if not module.name.startswith("_")
    }


def command_constant(source: Path, name: str) -> Any:
    """The literal that `class Command` in `source` gives `name`, read without importing; None without one."""
    for node in ast.parse(source.read_bytes()).body:
        if isinstance(node, ast.ClassDef) and node.name == "Command":
            for item in node.body:
                targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
                value = getattr(item, "value", None)
                if isinstance(value, ast.Constant) and any(getattr(t, "id", None) == name for t in targets):
                    return value.value
    return None


def print_help() -> None:
    commands = own_commands()
    width = max(map(len, commands), default=0)
    print("trawl: a polite, restartable web crawler\n")
    print("usage: trawl [--data DIR] COMMAND [...]\n")
    for name, source in sorted(commands.items()):
        text = str(command_constant(source, "help") or "").strip()
        print(f"  {name:{width}}  {text.partition(chr(10))[0]}".rstrip())
    print("\ntrawl COMMAND --help tells more. Everything is kept in DIR (else $TRAWL_DATA, else ./data).")
    print("Django's commands work too: migrate, createsuperuser, shell, ...")


def version() -> str:
    """The version in pyproject.toml beside the code, else of the installed package."""
    import tomllib

    try:
        project: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        if project["name"] == "trawl-crawler":  # and not of whatever lies beside site-packages
            return project["version"]
    except (OSError, KeyError):
        pass
    from importlib import metadata

    return metadata.version("trawl-crawler")


# --- running ----------------------------------------------------------------------------------------


def run_command(name: str, arguments: list[str]) -> None:
    """Runs a management command of ours or of Django, after bringing the database up to date."""
    source = own_commands().get(name)
    asks_help = "--help" in arguments or "-h" in arguments
    if source and (asks_help or command_constant(source, "needs_database") is False):
        # The settings make and keep a secret key, and a look-up should leave no folder behind.
        os.environ.setdefault("TRAWL_SECRET_KEY", secrets.token_urlsafe(50))
    take_settings_option(arguments)
    set_up_django()

    from django.core.management import get_commands, load_command_class
    from django.db import connections

    app = get_commands().get(name)
    if app is None:
        raise UsageError(unknown_command(name, list(get_commands())))
    command = app if not isinstance(app, str) else load_command_class(app, name)
    options = parse_options(command, name, arguments)
    prepares = getattr(command, "needs_database", name not in NEEDS_NO_DATABASE | TAKES_DATABASE_AS_IT_IS)
    try:
        # `url --campaign` prepares it by itself.
        if prepares or name in TAKES_DATABASE_AS_IT_IS or options.get("campaign") is not None:
            check_data_directory()
        if prepares:
            prepare_databases()
        command.execute(*options.pop("args", ()), **options)
    finally:
        connections.close_all()


def take_settings_option(arguments: list[str]) -> None:
    """Heeds Django's --settings and --pythonpath, which must be known before the settings load."""
    from django.core.management.base import CommandError, CommandParser, handle_default_options

    parser = CommandParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    parser.add_argument("rest", nargs="*")
    with contextlib.suppress(CommandError):  # the parser of the command will say what is wrong
        handle_default_options(parser.parse_known_args(arguments)[0])


def set_up_django() -> None:
    """django.setup(), with a line that names the variable when the environment holds a wrong one."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trawl_project.settings")
    import django
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured

    try:
        getattr(settings, "INSTALLED_APPS")  # noqa: B009 - loads the settings
    except ModuleNotFoundError as error:
        module = os.environ["DJANGO_SETTINGS_MODULE"]
        if not f"{module}.".startswith(f"{error.name}."):  # one that the settings import
            raise
        raise UsageError(f"there is no settings module {module!r}") from None
    except (ImproperlyConfigured, ValueError) as error:
        # environ's ValueError does not say which variable; its frames do.
        frames = (frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__))
        variable = next((f"{f['var']}: " for f in frames if isinstance(f.get("var"), str)), "")
        raise SettingError(f"{variable}{error}") from error
    try:
        django.setup()
    except ImproperlyConfigured as error:  # an app looks at a setting of its own, and names it
        raise SettingError(str(error)) from error


def parse_options(command: "BaseCommand", name: str, arguments: list[str]) -> dict[str, Any]:
    """The options as BaseCommand.execute takes them; wrong ones print the usage and exit 2."""
    # Private, but without it CommandParser raises instead (see run_from_argv of Django 5.2).
    command._called_from_command_line = True  # type: ignore[attr-defined]
    options = vars(command.create_parser("trawl", name).parse_args(arguments))
    if options.get("traceback"):
        os.environ["TRAWL_DEBUG"] = "1"
    return options


def unknown_command(name: str, known: list[str]) -> str:
    if "://" in name:
        return f"unknown command {name!r}; did you mean: trawl crawl {name}"
    near = difflib.get_close_matches(name, [*own_commands(), *known, "help", "version"], n=1)
    return f"unknown command {name!r}; " + (f"did you mean {near[0]!r}?" if near else "see: trawl help")


# --- database ---------------------------------------------------------------------------------------


def check_data_directory() -> None:
    """Refuses to begin anew among the files of a crawl: after half a restore, or when its database was lost."""
    from django.conf import settings
    from django.core.management import CommandError

    from crawl.renames import why_closed

    data = Path(settings.DATA_DIR)
    if reason := why_closed(data):
        raise CommandError(reason)
    database = settings.DATABASES["default"]
    main = Path(database["NAME"])
    if "sqlite" not in database["ENGINE"] or (main.exists() and main.stat().st_size):
        return
    inbox = Path(settings.DATABASES["inbox"]["NAME"])
    left = [inbox] if inbox.exists() else []
    left += [data / name for name, files in (("seen", "*/*.run"), ("warc", "*/*")) if any((data / name).glob(files))]
    if left:
        raise CommandError(
            f"{main} is {'empty' if main.exists() else 'missing'}, but {left[0]} is there: put it back, restore a"
            " snapshot (trawl restore DIR --replace), or use another folder with --data DIR"
        )


def prepare_databases() -> None:
    """Applies what is missing of the migrations, one process at a time on all machines."""
    from django.conf import settings
    from django.core.management import call_command

    said = False
    with data_directory_lock(settings.DATA_DIR):
        for alias in settings.DATABASES:
            with plain_connection(alias) as connection:
                if connection.vendor == "postgresql":  # other machines see it, and not our file lock
                    with connection.cursor() as cursor:
                        cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATE_LOCK])
                    # The lock goes with the connection.
                if not is_behind(connection):
                    continue
                if not said:
                    said = True
                    print("trawl: preparing the database ...", file=sys.stderr, flush=True)
                call_command("migrate", database=alias, interactive=False, verbosity=0)


def is_behind(connection: "BaseDatabaseWrapper") -> bool:
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


@contextlib.contextmanager
def plain_connection(alias: str) -> "Iterator[BaseDatabaseWrapper]":
    """A connection of its own, outside the pool, which would wait 30 s for a server that is not there."""
    from django.db import connections

    connection = connections.create_connection(alias)
    options = {key: value for key, value in connection.settings_dict["OPTIONS"].items() if key != "pool"}
    if connection.vendor == "postgresql":
        options.setdefault("connect_timeout", 10)  # seconds
    connection.settings_dict = {**connection.settings_dict, "OPTIONS": options}
    try:
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def data_directory_lock(data: Path) -> Iterator[None]:
    """Holds DATA/migrate.lock; the kernel lets go of it when the process dies."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "migrate.lock").open("a") as file:
        patience = time.monotonic() + 2  # seconds without a word; most waits are a few milliseconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if patience and time.monotonic() > patience:
                    patience = 0
                    print("trawl: waiting for another trawl that prepares the database ...", file=sys.stderr)
                time.sleep(0.02)
        yield


# --- errors -----------------------------------------------------------------------------------------


def report(error: Exception) -> int:
    """Prints the one line for `error`; returns the exit code."""
    if os.environ.get("TRAWL_DEBUG", "").lower() in ("1", "true", "yes", "on"):
        traceback.print_exception(error)
    if isinstance(error, UsageError):
        return say(str(error), 2)
    if isinstance(error, SettingError):
        return say(f"wrong setting in the environment: {error}; docs/settings.md lists them", 1)
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
        return f"{reason}: {place}; free some space, or name another folder with --data DIR".replace(": ;", ";")
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
            file.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S%z')} trawl {version()}\n")
            traceback.print_exception(error, file=file)
    except OSError:
        return f"{line}; start again with TRAWL_DEBUG=1 to see the details"
    return f"{line}; the details are in {path}"


def without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
