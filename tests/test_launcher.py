"""The `trawl` script, run by a plain sh with a fake Python in a copy of its folder, and the trawl command.

No test here installs anything: the fake Python makes the environments, plays pip and notes what it was
asked to do. FAKE_* variables tell it what to be.
"""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import redis

from trawl_project import cli

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ["sh", "cat", "cksum", "cp", "grep", "mkdir", "mktemp", "readlink", "rm", "sleep", "tail"]
NO_NETWORK = "NewConnectionError: Temporary failure in name resolution\nERROR: No matching distribution found"
FAKE_PYTHON = f"""#!/bin/sh
echo "$*" >>"$FAKE_LOG"
case "$1 $2" in
    '-c '*version_info*) [ -z "${{FAKE_OLD_STYLE:-}}" ] || exit 1; echo "${{FAKE_VERSION:-3.11}} $0" ;;
    '-c '*ensurepip*) exit "${{FAKE_NO_VENV:-0}}" ;;
    '-c '*fcntl*) exec {sys.executable} -c "$2" ;;
    --version*) echo "Python ${{FAKE_VERSION:-3.11}}.2" ;;
    '-m venv') mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    '-m pip')
        [ "$3" = install ] || exit 0
        echo Collecting something
        sleep "${{FAKE_PIP_SECONDS:-0}}"
        echo "${{FAKE_PIP_SAYS:-Installing collected packages: something}}"
        exit "${{FAKE_PIP_EXIT:-0}}"
        ;;
    '-m trawl_project')
        shift 2
        echo "ran in $PWD with $#:$* path $PYTHONPATH safe $PYTHONSAFEPATH"
        ;;
    '-m ruff') exit "${{FAKE_RUFF_EXIT:-0}}" ;;
    '-m pytest') echo "data $TRAWL_DATA"; shift 2; echo "1 passed $*" ;;
    '-m bench.'*) shift; echo "ran in $PWD with $#:$* path $PYTHONPATH safe $PYTHONSAFEPATH" ;;
esac
"""


class Copy:
    """A copy of the script in a folder of its own, a PATH with nothing but the tools it may use."""

    def __init__(self, top: Path) -> None:
        self.home = top / "the copy"  # a space, as in many a home directory
        self.bin = top / "bin"
        self.work = top / "work"
        self.log = top / "asked"
        for folder in (self.home, self.bin, self.work):
            folder.mkdir(parents=True)
        for name in ("trawl", "requirements.txt", "requirements-dev.txt"):
            shutil.copy(ROOT / name, self.home)
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found
            (self.bin / tool).symlink_to(found)
        self.environment = {"PATH": str(self.bin), "HOME": str(top), "FAKE_LOG": str(self.log)}

    def put(self, name: str = "python3", text: str = FAKE_PYTHON) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def start(self, *words: str, script: Path | str | None = None, **fakes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [shutil.which("dash") or "sh", str(script or self.home / "trawl"), *words],
            cwd=self.work,
            env=self.environment | fakes,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def asked(self, what: str) -> int:
        """How often the fake Python was run with arguments that begin with `what`."""
        return sum(line.startswith(what) for line in self.log.read_text().splitlines())


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def assert_refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 1
    assert result.stdout == ""
    assert last.startswith("trawl: ")
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in last


# --- what is missing, in one line -----------------------------------------------------------------


def test_without_python_it_says_how_to_get_one(copy: Copy) -> None:
    result = copy.start("help")
    assert_refused(result, "no python3 found", "apt install python3")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("fakes", [{}, {"FAKE_OLD_STYLE": "1"}], ids=["by probe", "by --version"])
@pytest.mark.parametrize("version", ["2.7", "3.9", "3.10"])
def test_an_old_python_is_named(copy: Copy, version: str, fakes: dict[str, str]) -> None:
    copy.put()
    result = copy.start("help", FAKE_VERSION=version, **fakes)
    assert_refused(result, f"found {version}", "3.11")
    assert result.stderr.count("\n") == 1


def test_a_newer_python_is_found_behind_an_old_one(copy: Copy) -> None:
    copy.put("python3", "#!/bin/sh\necho 3.9 /usr/bin/python3\n")
    copy.put("python3.13")
    assert copy.start("help", FAKE_VERSION="3.13").returncode == 0


def test_a_python_named_by_the_user_must_do(copy: Copy) -> None:
    copy.put()
    copy.put("other", "#!/bin/sh\necho 3.8 /usr/bin/other\n")
    assert_refused(copy.start("help", TRAWL_PYTHON="other"), "TRAWL_PYTHON=other is Python 3.8")
    assert_refused(copy.start("help", TRAWL_PYTHON="/no/such"), "TRAWL_PYTHON=/no/such does not run")


def test_without_the_venv_module_it_names_the_package(copy: Copy) -> None:
    copy.put()
    result = copy.start("help", FAKE_NO_VENV="1")
    assert_refused(result, "venv", "apt install python3-venv")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("maker", ["virtualenv", "uv"])
def test_without_the_venv_module_another_tool_does(copy: Copy, maker: str) -> None:
    copy.put()
    copy.put(maker, '#!/bin/sh\nfor last; do :; done\nmkdir -p "$last/bin"; cp "${0%/*}/python3" "$last/bin/python"\n')
    assert copy.start("help", FAKE_NO_VENV="1").returncode == 0


def test_without_network_it_names_the_log_and_the_next_start_tries_again(copy: Copy) -> None:
    copy.put()
    result = copy.start("help", FAKE_PIP_SAYS=NO_NETWORK, FAKE_PIP_EXIT="1")
    log = copy.home / ".venv/.trawl/install.log"
    assert_refused(result, "network", str(log))
    assert "No matching distribution" in log.read_text()
    assert copy.start("help").returncode == 0


def test_another_failure_of_pip_is_quoted(copy: Copy) -> None:
    copy.put()
    result = copy.start("help", FAKE_PIP_SAYS="ERROR: something does not build", FAKE_PIP_EXIT="1")
    assert_refused(result, "ERROR: something does not build", "install.log")


def test_in_a_read_only_folder_the_environment_goes_to_the_cache() -> None:
    # Root may write anywhere, so root becomes nobody; and pytest's folders are closed to others.
    with tempfile.TemporaryDirectory(prefix="trawl-readonly-") as name:
        top = Path(name)
        top.chmod(0o755)
        copy = Copy(top)
        copy.put()
        copy.log.touch(mode=0o666)
        copy.log.chmod(0o666)
        cache = top / "cache"
        cache.mkdir()
        cache.chmod(0o777)
        copy.home.chmod(0o555)

        def start(cache_home: Path) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["sh", str(copy.home / "trawl"), "help"],
                env=copy.environment | {"XDG_CACHE_HOME": str(cache_home)},
                cwd="/",
                capture_output=True,
                text=True,
                user=65534 if os.getuid() == 0 else None,
            )

        first, second = start(cache), start(cache)
        refused = start(copy.home)
        copy.home.chmod(0o755)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert f"installing into {cache}/trawl/venv-" in first.stderr
    assert second.stderr == ""
    assert_refused(refused, "cannot write to", "XDG_CACHE_HOME")


# --- where it is, where it runs -------------------------------------------------------------------


def test_the_folder_of_the_user_and_the_words_are_kept(copy: Copy) -> None:
    copy.put()
    result = copy.start("crawl", "a b", "")
    assert result.stdout == f"ran in {copy.work} with 3:crawl a b  path {copy.home} safe 1\n"
    assert not list(copy.work.iterdir())


@pytest.mark.parametrize("style", ["absolute", "relative", "chain"])
def test_it_works_through_a_symbolic_link(copy: Copy, style: str) -> None:
    copy.put()
    link = copy.work / "link"
    link.symlink_to({"relative": Path("../the copy/trawl")}.get(style, copy.home / "trawl"))
    if style == "chain":
        link = copy.work / "second"
        link.symlink_to("link")
    result = copy.start("help", script=link.name)
    assert f"path {copy.home} " in result.stdout


# --- what is installed, and when ------------------------------------------------------------------


def test_the_second_start_installs_nothing_and_says_nothing(copy: Copy) -> None:
    copy.put()
    first = copy.start("help")
    copy.log.write_text("")
    second = copy.start("help")
    assert "installing into .venv (once, about a minute) .. done" in first.stderr
    assert (second.returncode, second.stderr) == (0, "")
    assert copy.log.read_text() == "-m trawl_project help\n"


def test_changed_requirements_are_installed_into_the_same_environment(copy: Copy) -> None:
    copy.put()
    copy.start("help")
    with (copy.home / "requirements.txt").open("a") as file:
        file.write("another==1\n")
    copy.start("help")
    assert (copy.asked("-m venv"), copy.asked("-m pip install")) == (1, 2)


def test_an_environment_whose_installation_was_cut_is_made_anew(copy: Copy) -> None:
    copy.put()
    copy.start("help", FAKE_PIP_EXIT="1")  # it had begun to install
    assert (copy.home / ".venv/.trawl/installing").exists()
    left_over = copy.home / ".venv/lib/half"
    left_over.mkdir(parents=True)
    assert copy.start("help").returncode == 0
    assert copy.asked("-m venv") == 2
    assert not left_over.exists()


def test_an_environment_whose_python_is_gone_is_made_anew(copy: Copy) -> None:
    copy.put()
    copy.start("help")
    python = copy.home / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/no/such/python")
    assert copy.start("help").returncode == 0
    assert copy.asked("-m venv") == 2


def test_two_first_starts_at_once_install_once(copy: Copy) -> None:
    copy.put()
    started = [
        subprocess.Popen(
            ["sh", str(copy.home / "trawl"), "help"],
            env=copy.environment | {"FAKE_PIP_SECONDS": "0.5"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert all(output.startswith(b"ran in") for output in outputs)
    assert (copy.asked("-m venv"), copy.asked("-m pip install")) == (1, 1)


# --- ./trawl test ---------------------------------------------------------------------------------


def test_the_checks_run_in_order_with_pytest_last(copy: Copy) -> None:
    copy.put()
    result = copy.start("test", FAKE_RUFF_EXIT="1")
    asked = copy.log.read_text().splitlines()[-4:]
    assert asked == ["-m ruff check .", "-m ruff format --check .", "-m mypy .", "-m pytest -n 4 --dist worksteal"]
    assert result.stdout.splitlines()[-1].startswith("1 passed ")
    assert result.returncode == 1


def test_with_arguments_only_pytest_runs_on_data_of_its_own(copy: Copy) -> None:
    copy.put()
    result = copy.start("test", "-k", "a or b", TRAWL_DATA="/precious")
    assert result.returncode == 0
    assert copy.asked("-m ruff") == 0
    data, summary = result.stdout.splitlines()
    assert summary == "1 passed -k a or b"
    assert data.startswith("data /tmp")
    assert not Path(data.removeprefix("data ")).exists()


def test_a_start_after_the_tests_installs_nothing(copy: Copy) -> None:
    copy.put()
    copy.start("test", "x")
    copy.start("help")
    assert copy.asked("-m pip install") == 1


# --- ./trawl bench --------------------------------------------------------------------------------


@pytest.fixture
def benches(copy: Copy) -> Copy:
    """A copy with a bench and a module that helps it."""
    copy.put()
    (copy.home / "bench").mkdir()
    (copy.home / "bench/speed.py").write_text('"""How fast it is.\n\n    ./trawl bench speed [--fast]\n"""\n')
    (copy.home / "bench/helper.py").write_text('"""Helps.\n\n    ./trawl bench speed [--fast]\n"""\n')
    return copy


def test_a_bench_runs_where_the_user_is_with_the_development_set(benches: Copy) -> None:
    result = benches.start("bench", "speed", "--fast", "a b")
    assert result.stdout == f"ran in {benches.work} with 3:bench.speed --fast a b path {benches.home} safe 1\n"
    assert (benches.home / ".venv/.trawl/requirements-dev.txt.stamp").exists()
    assert not list(benches.work.iterdir())


@pytest.mark.parametrize("words", [[], ["--help"], ["help"]])
def test_without_a_name_the_benches_are_listed_and_nothing_is_installed(benches: Copy, words: list[str]) -> None:
    result = benches.start("bench", *words)
    usage, line = result.stdout.splitlines()
    assert (result.returncode, result.stderr) == (0, "")
    assert usage.startswith("usage: trawl bench NAME")
    assert line.split(maxsplit=1) == ["speed", "How fast it is."]
    assert not (benches.home / ".venv").exists()


@pytest.mark.parametrize("name", ["helper", "sped", "../speed", "speed.py", "s.*d"])
def test_an_unknown_bench_is_answered_with_the_list(benches: Copy, name: str) -> None:
    result = benches.start("bench", name)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"trawl: there is no bench '{name}'\n")
    assert "How fast it is." in result.stderr
    assert not (benches.home / ".venv").exists()


@pytest.mark.parametrize("name", ["frontier", "fleet", "seen", "blocks", "warc"])
def test_our_benches_are_listed_with_what_they_measure(name: str) -> None:
    result = subprocess.run(["sh", str(ROOT / "trawl"), "bench"], capture_output=True, text=True, timeout=60)
    first = (ROOT / f"bench/{name}.py").read_text().splitlines()[0]
    assert f"  {name:10} {first.strip(chr(34))}\n" in result.stdout


# --- the trawl command ----------------------------------------------------------------------------


def trawl(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRAWL_")}
    inherited.pop("DATABASE_URL", None)
    return subprocess.run(
        [sys.executable, "-m", "trawl_project", *words],
        cwd=cwd,
        env=inherited | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("words", [[], ["help"], ["--help"], ["-h"]])
def test_help_lists_our_commands_and_leaves_no_trace(tmp_path: Path, words: list[str]) -> None:
    result = trawl(*words, cwd=tmp_path)
    assert result.returncode == 0
    assert "usage: trawl [--data DIR] COMMAND" in result.stdout
    for name in cli.own_commands():
        assert f"  {name} " in result.stdout
    assert not list(tmp_path.iterdir())


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert trawl("--version", cwd=tmp_path).stdout == f"trawl {cli.version()}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["migrat"], "trawl: unknown command 'migrat'; did you mean 'migrate'?"),
        (["xyzzy"], "trawl: unknown command 'xyzzy'; see: trawl help"),
        (
            ["https://a.test/"],
            "trawl: unknown command 'https://a.test/'; did you mean: trawl crawl https://a.test/",
        ),
        (["--nonsense"], "trawl: unknown option --nonsense; see: trawl help"),
        (["check", "--data"], "trawl: --data needs a folder: --data DIR"),
        (["check", "--nonsense"], "trawl check: error: unrecognized arguments: --nonsense"),
    ],
)
def test_wrong_words_exit_with_2(tmp_path: Path, words: list[str], line: str) -> None:
    result = trawl(*words, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.strip().splitlines()[-1] == line


def test_the_database_is_prepared_once_and_where_asked(tmp_path: Path) -> None:
    first = trawl("clearsessions", "--data", "kept", cwd=tmp_path)
    second = trawl("--data=kept", "clearsessions", cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "trawl: preparing the database ...\n")
    assert (second.returncode, second.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize(
    ("variables", "code", "words"),
    [
        ({"DATABASE_URL": "postgres://u:secret@127.0.0.1:1/db"}, 1, ["PostgreSQL at 127.0.0.1:1/db", "DATABASE_URL"]),
        ({"DATABASE_URL": "sqlite:////no/such/trawl.sqlite3"}, 1, ["/no/such/trawl.sqlite3", "--data DIR"]),
        ({"TRAWL_LEASE_SECONDS": "soon"}, 2, ["TRAWL_LEASE_SECONDS", "docs/settings.md"]),
        ({"TRAWL_DATA": "/dev/null"}, 1, ["/dev/null", "TRAWL_DATA"]),
    ],
    ids=["no server", "no folder", "bad setting", "bad data folder"],
)
def test_what_the_user_can_mend_is_one_line(
    tmp_path: Path, variables: dict[str, str], code: int, words: list[str]
) -> None:
    result = trawl("clearsessions", cwd=tmp_path, **variables)
    assert result.returncode == code
    assert result.stderr.startswith("trawl: ")
    assert result.stderr.count("\n") == 1
    assert "secret" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_a_bug_goes_to_the_log(tmp_path: Path) -> None:
    result = trawl("shell", "-c", "raise KeyError('a bug')", cwd=tmp_path)
    log = tmp_path / "data" / "trawl-error.log"
    assert result.returncode == 1
    assert f"trawl: internal error: KeyError: 'a bug'; the details are in {log}\n" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in log.read_text()
    shown = trawl("shell", "-c", "raise KeyError('a bug')", cwd=tmp_path, TRAWL_DEBUG="1")
    assert "Traceback" in shown.stderr


def test_a_command_error_brings_its_own_code(tmp_path: Path) -> None:
    raised = "from django.core.management import CommandError; raise CommandError('no', returncode=3)"
    result = trawl("shell", "-c", raised, cwd=tmp_path)
    assert (result.returncode, result.stderr.splitlines()[-1]) == (3, "trawl: no")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, ""),
        (OSError(errno.ENOSPC, "No space left on device", "/d/x.warc"), 1, "/d/x.warc; free some space"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device; free some space"),
        (PermissionError(errno.EACCES, "Permission denied", "/d/x"), 1, "/d/x: Permission denied; make it"),
        (OSError(errno.EMFILE, "Too many open files"), 1, "ulimit -n"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), 1, "Connection refused"),
        (redis.ConnectionError("Error 111"), 1, "cannot reach the queue redis://h:1/0 (Error 111)"),
    ],
)
def test_an_error_has_its_code_and_its_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    words: str,
) -> None:
    def fail(argv: list[str]) -> None:
        raise error

    monkeypatch.setenv("BROKER_URL", "redis://:secret@h:1/0")
    monkeypatch.setattr(cli, "dispatch", fail)
    assert cli.run([]) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class Command(B):\n    help = 'x'", "x"),
        ("class Command(B):\n    help = ('x '\n 'y')", "x y"),
        ("class Command(B):\n    help: str = 'x'", "x"),
        ("class Command(B):\n    pass", None),
        ("class Command(B):\n    help = f()", None),
        ("class Other(B):\n    help = 'x'", None),
    ],
)
def test_help_texts_are_read_without_an_import(tmp_path: Path, source: str, expected: str | None) -> None:
    file = tmp_path / "command.py"
    file.write_text(source)
    assert cli.command_constant(file, "help") == expected
