"""trawl up: the admin, workers, beat and broker as one command."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import psutil

from tests.crawl.running import environment, prepare
from tests.rig import ROOT, free_port
from tests.scripted import Script, page, scripted

CAMPAIGN = """
import sys
from crawl import campaigns
from crawl.models import Campaign
campaign = Campaign.objects.create(name="site", reach="host", delay_ms=100)
campaigns.add_seeds(campaign, [(sys.argv[1], 10)])
campaigns.start(campaign)
"""
STATUS = "from crawl.models import Campaign; print(Campaign.objects.get().status)"
SETTINGS = {"TRAWL_ALLOW_NETWORKS": "127.0.0.0/8"}


@dataclass
class Up:
    """A `trawl up` that runs, and what it printed."""

    process: subprocess.Popen[str]
    data: Path
    output: Path

    def told(self) -> str:
        return self.output.read_text()

    def wait_for(self, pattern: str, seconds: float = 60) -> re.Match[str]:
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.told())):
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < until, self.told()
            time.sleep(0.05)
        return found

    def children(self) -> dict[str, psutil.Process]:
        """Its children by the name of what they run."""
        names = {"worker": "worker", "beat": "beat", "gunicorn": "web", "unixsocket": "broker"}
        found: dict[str, psutil.Process] = {}
        for child in psutil.Process(self.process.pid).children():
            words = " ".join(child.cmdline())
            found |= {name: child for word, name in names.items() if word in words}
        return found

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def up(data: Path, *arguments: str, **settings: str) -> Iterator[Up]:
    prepare(data)
    output = data.parent / f"up{len(list(data.parent.iterdir()))}.out"
    with open(output, "w") as out:
        process = subprocess.Popen(
            [*(sys.executable, "-m", "trawl_project", "up", "--data", str(data), "--bind", "127.0.0.1:0"), *arguments],
            cwd=ROOT,
            env={name: value for name, value in environment().items() if name != "BROKER_URL"} | SETTINGS | settings,
            stdout=out,
            stderr=out,
            text=True,
        )
    try:
        yield Up(process, data, output)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def refused(data: Path, *arguments: str, **settings: str) -> tuple[int, str]:
    """The exit code and what was said."""
    with up(data, *arguments, **settings) as one:
        code = one.process.wait(60)
        return code, one.told()


def run(data: Path, code: str, *arguments: str) -> str:
    """Runs Python code with Django set up."""
    settings = {"TRAWL_DATA": str(data), "DJANGO_SETTINGS_MODULE": "trawl_project.settings", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", f"import django; django.setup()\n{code}", *arguments],
        env=environment() | settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def logs_in(address: str, name: str, password: str) -> OpenerDirector | None:
    """A browser that is logged in to the admin at an address, or None if that does not take the account."""
    cookies = CookieJar()
    browser = build_opener(HTTPCookieProcessor(cookies))
    browser.open(f"{address}login/").read()
    token = next(cookie.value for cookie in cookies if cookie.name == "csrftoken")
    form = {"username": name, "password": password, "csrfmiddlewaretoken": token, "next": "/"}
    told = browser.open(f"{address}login/", urlencode(form).encode()).read().decode()
    return browser if "Log out" in told else None


def test_it_crawls_comes_back_from_any_death_and_stops_clean(tmp_path: Path) -> None:
    data = tmp_path / "data"
    pages: Script = {"/": page(*(f"/{n}" for n in range(80)))} | {f"/{n}": page() for n in range(80)}
    prepare(data)
    with scripted(pages) as site, up(data, TRAWL_LEASE_SECONDS="10") as one:
        address = one.wait_for(r"open (http://\S+) ")[1]
        password = one.wait_for(r"made the account admin, password (\S+) \(shown only now\)")[1]
        assert logs_in(address, "admin", password)
        assert not logs_in(address, "admin", "guess")
        run(data, CAMPAIGN, f"{site.url}/")
        for name in ("worker", "beat", "web", "broker"):
            asked = len(site.asked)
            one.children()[name].kill()
            one.wait_for(rf"{name}1? was ended by SIGKILL.*; it starts again in 1 s \(.*/logs/{name}1?\.log\)")
            until = time.monotonic() + 60
            while len(site.asked) < asked + 5 or set(one.children()) != {"worker", "beat", "web", "broker"}:
                assert time.monotonic() < until, one.told()
                time.sleep(0.1)
        until = time.monotonic() + 60
        while run(data, STATUS) != "finished":
            assert time.monotonic() < until, one.told()
            time.sleep(0.5)
        assert set(site.paths()) == set(pages)
        children = psutil.Process(one.process.pid).children(recursive=True)
        assert one.end() == 0
        assert one.told().endswith("stopped\n")
        assert not [child for child in children if child.is_running()]
        assert not (data / "broker.sock").exists()
    assert "Traceback" not in one.told()


def test_what_it_started_ends_when_it_is_killed_and_the_next_start_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data) as one:
        one.wait_for("open http://")
        children = psutil.Process(one.process.pid).children(recursive=True)
        one.process.kill()
        one.process.wait()
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive
    with up(data, DJANGO_SUPERUSER_PASSWORD="unused") as one:
        one.wait_for("open http://")
        assert "made the account" not in one.told()
        assert one.end(signal.SIGTERM) == 0


def test_the_account_can_come_from_the_environment_and_a_deep_folder_is_no_hindrance(tmp_path: Path) -> None:
    data = tmp_path / ("deep and # odd " * 8)
    secret = {"DJANGO_SUPERUSER_USERNAME": "kim", "DJANGO_SUPERUSER_PASSWORD": "s3cret-for-kim"}
    with up(data, **secret) as one:
        address = one.wait_for(r"open (http://\S+) ")[1]
        one.wait_for("made the account kim, the password in DJANGO_SUPERUSER_PASSWORD")
        assert "s3cret" not in one.told()
        assert logs_in(address, "kim", "s3cret-for-kim")
        place = next(word for word in one.children()["broker"].cmdline() if "broker.sock" in word)
        socket_folder = Path(place.split(":")[-1]).parent
        assert (socket_folder.stat().st_mode & 0o777) == 0o700
        assert one.end() == 0
        assert not socket_folder.exists()


def test_a_child_that_cannot_start_is_told_with_its_last_words_and_tried_less_and_less(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "redis-server"
    broken.write_text("#!/bin/sh\necho no memory left\nexit 3\n")
    broken.chmod(0o755)
    code, told = refused(tmp_path / "data", PATH=f"{broken.parent}:{os.environ['PATH']}")
    assert code == 1
    assert "trawl: the broker does not start: it ended with exit code 3: no memory left (" in told
    assert "Traceback" not in told


def test_without_a_broker_on_the_path_the_bundled_one_is_used(tmp_path: Path) -> None:
    with up(tmp_path / "data", PATH="/nowhere") as one:
        one.wait_for(r"a broker \(valkey-server\) run")
        assert one.end() == 0


def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, told = refused(data, "--bind", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (code, told.count("\n")) == (1, 1)
    assert "the admin cannot listen at 127.0.0.1:" in told
    assert "--bind 127.0.0.1:8001" in told
    code, told = refused(data, BROKER_URL=f"redis://:hunter2@127.0.0.1:{free_port()}/0")
    assert (code, told.count("\n")) == (2, 1)
    assert "cannot reach the broker redis://127.0.0.1:" in told
    assert "hunter2" not in told
    for words in (["--bind", "8000"], ["--bind", "127.0.0.1:99999"], ["--workers", "0"], ["--workers", "many"]):
        code, told = refused(data, *words)
        assert code == 2, told
        assert "Traceback" not in told
    with up(data) as one:
        one.wait_for("open http://")
        # Another bind, so that it is the data directory that is in the way.
        with up(data) as other:
            assert other.process.wait(60) == 1
        assert f"another crawl (pid {one.process.pid}) uses {data}; stop it first" in other.told()
        assert one.end() == 0
