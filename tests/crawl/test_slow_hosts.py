"""Hosts that drip a byte a second must not keep the others waiting, and are left alone after a while."""

import signal
import subprocess
import time
from collections import Counter, deque
from pathlib import Path
from unittest import mock

import pytest

from bench.drip import DripServer
from crawl.fetch.errors import Kind
from crawl.fetch.response import Response
from crawl.fetch.robots import Robots
from crawl.fetch.room import OTHER_FILES, SLOW_SECONDS, SLOW_SHARE, Room
from crawl.fetch.target import Target
from crawl.fetch.visit import HostVisit
from crawl.pages import Key
from frontier.claim import Visit
from frontier.urls import canonicalise
from tests.crawl.running import LOCAL, command, environment
from tests.rig import ROOT, wait_until


def test_more_hosts_that_drip_than_there_are_places_do_not_keep_the_others_out(tmp_path: Path) -> None:
    with DripServer() as server:
        urls = [f"http://drip-{n}.test:{server.port}/" for n in range(10)]
        urls += [f"http://good-{n}.test:{server.port}/" for n in range(3)]
        process = subprocess.Popen(
            [*command(tmp_path, *urls, *LOCAL, "--resolve", "*.test=127.0.0.1"), "--delay", "0.2"],
            cwd=ROOT,
            env={**environment(), "TRAWL_VISITS_PER_WORKER": "4"},
            stdout=-1,
            stderr=-1,
        )
        wait_until(lambda: server.dripping)
        began = time.monotonic()
        wait_until(lambda: len(done := Counter(host for _, host in server.pages)) == 3 and min(done.values()) >= 10)
        took = time.monotonic() - began
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=90)
    assert took < 20, "a dripping host is given up after 20 s; four places would be taken for 50 s"
    assert server.most_dripping > 4


@pytest.fixture
def files(monkeypatch) -> mock.Mock:
    limit = mock.Mock(return_value=(65_536, 65_536))
    monkeypatch.setattr("crawl.fetch.room.resource.getrlimit", limit)
    return limit


def test_slow_visits_give_their_places_to_others_as_long_as_there_are_connections(files: mock.Mock) -> None:
    room, slow = Room(100), time.time() - SLOW_SECONDS - 1
    assert not room.changed([0.0] * 50 + [time.time()] * 50)
    assert room.changed([slow] * 40)
    assert room.capacity == 140
    assert room.changed([slow] * 10_000)
    assert room.capacity == 100 + SLOW_SHARE * 100
    files.return_value = (OTHER_FILES + 150, 65_536)
    room.changed([slow] * 10_000)
    assert room.capacity == 150
    assert room.changed([])
    assert room.capacity == 100


def visit(*paths: str, failures: int = 0) -> tuple[HostVisit, mock.Mock]:
    around = mock.Mock(proxy="")
    around.behind.return_value = around.blocked.return_value = around.halted.return_value = False
    around.stopping.return_value = False
    around.robots.return_value = Robots.from_status(404, b"", "trawl")
    lease = Visit(1, "a.test", 1, 0, 0, None, failures, "", [])
    plan = mock.Mock(delay_ms=0, burst=1, adaptive=True, headers=(), credentials={}, cookies=False)
    targets = [Target(canonicalise(f"https://a.test{path}"), Key(1, 2, n), plan, 0) for n, path in enumerate(paths)]
    return HostVisit(lease, deque(targets), around), around


def answered(one: HostVisit, answers: list[dict[str, object]]) -> None:
    """A visit whose requests are answered so, one after another."""
    left = list(answers)

    def dial(self: HostVisit, url: str, target: Target, *args: object) -> None:
        if not left:
            return
        now = time.time()
        response = Response(url, sent_at=now, arrived_at=now, ended_at=now, answered_at=now)
        for name, value in left.pop(0).items():
            setattr(response, name, value)
        self._answered(target, response)

    with mock.patch.object(HostVisit, "dial", dial):
        one.begin()


def test_a_host_that_lets_every_request_hang_is_left_alone_and_parked_in_the_end() -> None:
    one, around = visit("/1", "/2", "/3", failures=5)
    answered(one, [{"error": Kind.TOO_SLOW}, {"error": Kind.TIMEOUT_TOTAL}])
    release = around.finish.call_args.args[1]
    assert release.parked
    assert release.parked_until > time.time() * 1000 + 3_000_000
    assert release.failures == 6
    assert around.record.call_count == 2
    assert all(call.args[1].retry_at for call in around.record.call_args_list), "the URLs have their other tries"


def test_a_host_that_answers_now_and_then_is_not_parked() -> None:
    one, around = visit("/1", "/2", "/3", "/4", "/5", failures=5)
    answered(one, [{"error": Kind.TOO_SLOW}, {"status": 200}, {"error": Kind.TOO_SLOW}])
    assert not around.finish.called
    assert one.failures == 0
