"""A whole fleet in this process: Celery worker and beat as threads over the in-memory broker."""

import fcntl
import os
import socket
import threading
from pathlib import Path
from typing import IO, Any

from celery import Celery
from celery.beat import EmbeddedService, Scheduler
from celery.worker import state

from crawl.models import Worker
from crawl.store.archive import repair_all
from frontier.claim import free_all_leases
from frontier.politeness import now_ms

ALIVE_MS = 20_000


class Busy(Exception):
    """Another process crawls in this data directory; the message names it."""


class DataLock:
    """Makes sure that one process at a time crawls in a data directory. The kernel lets go at any end."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "crawl.lock"
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Raises Busy when another process has it."""
        file = open(self.path, "a+")  # noqa: SIM115 - held until the process ends
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise Busy(f"another crawl (pid {holder}) uses {self.path.parent}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file


def clean_up_after_a_kill() -> list[str]:
    """Gives back the hosts that a killed process held, at once, if no worker on this database is alive.

    Returns what could not be mended, in sentences.
    """
    machine = socket.gethostname()
    for worker in Worker.objects.all():
        host, _, pid = worker.name.rpartition("-")
        gone = host == machine and not is_alive(int(pid))
        if gone or worker.seen_at < now_ms() - ALIVE_MS:
            worker.delete()
    if Worker.objects.exists():
        return []
    free_all_leases()
    return repair_all()


def is_alive(pid: int) -> bool:
    """Whether another process of this machine has this id and has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid() and not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and its parent has not looked yet, as in a container whose first process never does.
    Always False where there is no /proc."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2]
    except OSError:
        return False
    return after_name.split()[:1] == [b"Z"]


class LocalFleet:
    """Worker and beat of this process."""

    def __init__(self, app: Celery) -> None:
        app.conf.update(
            broker_url="memory://localhost//",
            broker_transport_options={"polling_interval": 0.02},
            worker_enable_remote_control=False,
        )
        self._app = app
        self._worker: Any = app.WorkController(
            hostname=f"local@{socket.gethostname()}",
            loglevel="WARNING",
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        self._beat: Any = EmbeddedService(app, thread=True, scheduler_cls=Scheduler)
        self._thread = threading.Thread(target=self._worker.start, name="worker", daemon=True)

    def start(self) -> None:
        """Starts both."""
        self._thread.start()
        self._beat.start()

    def stop(self) -> None:
        """Stops both; tasks under way end first."""
        # The beat sleeps for up to a second between two ticks and is not waited for: nobody takes what it still sends.
        self._beat.service.stop(wait=False)
        state.should_stop = 0
        for _ in range(2):  # the worker listens for 2 s at a time, and once more after it was told to stop
            self._app.send_task("crawl.tasks.merge", expires=5)
        self._thread.join(30)
        state.should_stop = None
