"""The trawl command: finds the command, brings the database up to date, runs it, says what went wrong.

Django is imported only once a command needs it: `trawl --help` reads the help texts from the source.
Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted; a CommandError brings its own.
"""

import ast
import contextlib
import difflib
import os
import pkgutil
import secrets
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trawl_project.collector import look_less_often
from trawl_project.databases import check_data_directory, prepare_databases
from trawl_project.errors import SettingError, UsageError, report

if TYPE_CHECKING:
    from django.core.management.base import BaseCommand

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


def main() -> None:
    """Runs `trawl ARGS`; always leaves by sys.exit."""
    # A descriptor that the caller closed is None here; what is written goes nowhere, as was asked for.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    look_less_often()
    # numpy's linear algebra, which nothing here uses, else starts a thread a core that spins: 0.1 s of CPU.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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
    if source:  # Django's checks are for who develops, and load every page of the admin: 0.2 s
        options["skip_checks"] = True
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
