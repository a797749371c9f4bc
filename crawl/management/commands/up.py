"""trawl up: the admin, workers, the beat and, if none is named, a broker, as one command."""

import http.client
import os
import secrets
import signal
import socket
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawl.local import Busy, DataLock, clean_up_after_a_kill
from crawl.progress import counted
from crawl.request_options import checked
from trawl_project import broker
from trawl_project.children import Child, Children

ROOT = Path(__file__).resolve().parents[3]
MOST_WORKERS = 64
LOOK_SECONDS = 0.2
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Bind(NamedTuple):
    """Where the admin listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Command(BaseCommand):
    """Starts all that a crawl from the browser needs, keeps it alive, and stops it."""

    help = "start the admin, workers, beat and a broker in one command; Ctrl-C stops them all"

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add(
            "--workers",
            type=checked(_workers),
            default=1,
            metavar="N",
            help="worker processes (default: 1; more than one per core gain nothing)",
        )
        add(
            "--bind",
            type=checked(_bind),
            default=Bind("127.0.0.1", 8000),
            metavar="ADDRESS:PORT",
            help="where the admin listens (default: 127.0.0.1:8000); other machines reach it only at an address of this"
            " one, and by names in TRAWL_ALLOWED_HOSTS",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        data = Path(settings.DATA_DIR)
        bind = _free(options["bind"])
        try:
            lock = DataLock(data)
            lock.take()
        except Busy as error:
            raise CommandError(f"{error}; stop it first, or use another folder with --data DIR") from None
        own_broker = None
        if broker.is_named(settings.BROKER_URL):
            broker.check(settings.BROKER_URL)
        else:
            own_broker = broker.server()
        for sentence in clean_up_after_a_kill():
            self._say(sentence)
        self._make_account()
        _Up(data, bind, options["workers"], own_broker, self._say).run()

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _make_account(self) -> None:
        """An administrator, if there is none."""
        users = get_user_model().objects
        if users.filter(is_superuser=True, is_active=True).exists():
            return
        name = os.environ.get("DJANGO_SUPERUSER_USERNAME") or "admin"
        given = os.environ.get("DJANGO_SUPERUSER_PASSWORD")
        password = given or secrets.token_urlsafe(12)
        if users.filter(username=name).exists():
            raise CommandError(
                f"there is no active administrator, and the account '{name}' is somebody else's; name another with"
                " DJANGO_SUPERUSER_USERNAME, or run: trawl createsuperuser"
            )
        try:
            user = get_user_model()(username=name, is_staff=True, is_superuser=True)
            user.set_password(password)
            user.full_clean()
        except ValidationError as error:
            raise CommandError(f"DJANGO_SUPERUSER_USERNAME: {' '.join(error.messages)}") from None
        user.save()
        shown = "the password in DJANGO_SUPERUSER_PASSWORD" if given else f"password {password} (shown only now)"
        self._say(f"made the account {name}, {shown}")


class _Up:
    """The processes of one `trawl up`."""

    def __init__(
        self, data: Path, bind: Bind, workers: int, own_broker: str | None, say: Callable[[str], None]
    ) -> None:
        self._bind, self._workers, self._own_broker, self._say = bind, workers, own_broker, say
        self._socket = broker.socket_path(data) if own_broker else None
        logs = data / "logs"
        logs.mkdir(exist_ok=True)
        self._children = Children(self._environment(data), logs, say)
        self._broker: Child | None = None
        self._signals = 0

    def _environment(self, data: Path) -> dict[str, str]:
        url = broker.url(self._socket) if self._socket else settings.BROKER_URL
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        return {**os.environ, "TRAWL_DATA": str(data), "BROKER_URL": url, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}

    def run(self) -> None:
        """Starts them, watches them until a signal comes, stops them."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._take_signal)
        try:
            self._start()
            while not self._signals:
                self._children.look()
                time.sleep(LOOK_SECONDS)
        finally:
            self._stop()

    def _take_signal(self, number: int, frame: Any) -> None:
        self._signals += 1

    def _start(self) -> None:
        """The broker first, which the others need, and the admin last, when what people start there can run."""
        if self._socket and self._own_broker:
            self._broker = self._children.start("broker", broker.command(self._own_broker, self._socket))
            if not broker.wait(self._socket):
                raise CommandError(f"the broker does not start: it {self._broker.why()} ({self._broker.log})")
        python = [sys.executable, "-m"]
        for number in range(1, self._workers + 1):
            name = f"worker{number}"
            self._children.start(name, [*python, "celery", "-A", "trawl", "worker", "-n", f"{name}@%h"])
        # Without a file for its process id, which a killed beat would leave, and the next would refuse to start.
        self._children.start("beat", [*python, "celery", "-A", "trawl", "beat", "--pidfile", ""])
        self._children.start(
            "web",
            [
                *python,
                "gunicorn",
                "trawl_project.wsgi",
                "--bind",
                str(self._bind),
                "--threads",
                "4",
                "--no-control-socket",
            ],
        )
        while not self._signals and not _answers(self._bind):
            self._children.look()
            time.sleep(LOOK_SECONDS)
        if not self._signals:
            parts = ["the admin", counted(self._workers, "worker"), "the beat"]
            if self._socket:
                parts.append(f"a broker ({Path(self._own_broker or '').name})")
            host = ANY_ADDRESS.get(self._bind.host, self._bind.host)
            self._say(f"{', '.join(parts)} run; what they say is in {Path(settings.DATA_DIR) / 'logs'}")
            self._say(f"open http://{Bind(host, self._bind.port)}/ in a browser; Ctrl-C stops all")

    def _stop(self) -> None:
        asked = max(self._signals, 1)
        self._say("stopping: what is in flight is finished first; Ctrl-C again kills at once")
        self._children.stop(lambda: self._signals > asked, broker_last=self._broker)
        if self._socket:
            broker.put_away(self._socket)
        self._say("stopped")


def _answers(bind: Bind) -> bool:
    """Whether the admin answers."""
    host = ANY_ADDRESS.get(bind.host, bind.host)
    connection = http.client.HTTPConnection(host, bind.port, timeout=5)
    try:
        connection.request("HEAD", "/", headers={"Host": "localhost"})
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def _free(bind: Bind) -> Bind:
    """The address, with a port in place of 0. Raises CommandError when it cannot be listened at."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return Bind(bind.host, probe.getsockname()[1])
    except OSError as error:
        raise CommandError(
            f"the admin cannot listen at {bind} ({error.strerror}); choose another address: --bind 127.0.0.1:8001"
        ) from None


def _workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_WORKERS:
        raise ArgumentTypeError(f"it must be a whole number from 1 to {MOST_WORKERS}")
    return int(text)


def _bind(text: str) -> Bind:
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ArgumentTypeError("it must be an address and a port, as in 127.0.0.1:8000 or [::1]:8000")
    return Bind(host, int(port))
