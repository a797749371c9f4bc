"""Look-ups of names, with a real name server on the loopback."""

import queue
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from crawl.fetch import resolver as resolvers
from crawl.fetch.resolver import NOT_ANSWERED, Resolved, Resolver, parse_name_server
from tests.dnsserver import REFUSED, SERVFAIL, NameServer, Says, name_server

NAMES = {
    "one.test": Says(("192.0.2.1",)),
    "both.test": Says(("192.0.2.1", "2001:db8::1")),
    "many.test": Says(tuple(f"192.0.2.{number}" for number in range(1, 101))),
    "short.test": Says(("192.0.2.1",), ttl=0),
    "hour.test": Says(("192.0.2.1",), ttl=1_000),
    "long.test": Says(("192.0.2.1",), ttl=2**31 - 1),
    "alias.test": Says(("192.0.2.7",), alias="target.test"),
    "big.test": Says(("192.0.2.8",), only_tcp=True),
    "none.test": Says(),
    "broken.test": Says(code=SERVFAIL),
    "refused.test": Says(code=REFUSED),
    "mute.test": Says(silent=True),
    "xn--bcher-kva.test": Says(("192.0.2.9",)),
    "under_score.test": Says(("192.0.2.10",)),
    "slow.test": Says(("192.0.2.11",), seconds=0.3),
}


class Loop:
    """A queue in place of the fetch loop."""

    def __init__(self) -> None:
        self.tasks: queue.Queue[Callable[[], None]] = queue.Queue()

    def submit(self, function: Callable[[], None]) -> None:
        self.tasks.put(function)

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        timer = threading.Timer(when - time.time(), self.tasks.put, [function])
        timer.daemon = True
        timer.start()


class Asking:
    """A resolver with a clock that is set by hand."""

    def __init__(self, *name_servers: str) -> None:
        self.now = 1000.0
        self.loop = Loop()
        self.tasks = self.loop.tasks
        overrides = [("*.pinned.test", "127.0.0.5")]
        self.resolver = Resolver(overrides, self.loop, name_servers, clock=lambda: self.now)

    def begin(self, name: str) -> list[Resolved]:
        """Asks; the list gets the answer."""
        answers: list[Resolved] = []
        self.resolver.resolve(name, answers.append)
        return answers

    def wait(self, *pending: list[Resolved]) -> None:
        """Works as the loop until all have their answer."""
        until = time.monotonic() + 30
        while not all(pending):
            self.tasks.get(timeout=max(0.01, until - time.monotonic()))()

    def __call__(self, name: str) -> Resolved:
        answers = self.begin(name)
        self.wait(answers)
        assert len(answers) == 1
        return answers[0]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolvers, "LIMIT_SECONDS", 2.0)
    # A query of hundreds at once may find the server's buffer full: it is sent again within the limit, as in life.
    monkeypatch.setattr(resolvers, "TIMEOUT_SECONDS", 0.4)
    monkeypatch.setattr(resolvers, "PROBE_SECONDS", 1.0)


@pytest.fixture
def server() -> Iterator[NameServer]:
    with name_server(NAMES) as one:
        yield one


@pytest.fixture
def ask(server: NameServer) -> Iterator[Asking]:
    asking = Asking(server.address)
    yield asking
    asking.resolver.close()


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("one.test", ["192.0.2.1"]),
        ("both.test", ["192.0.2.1", "2001:db8::1"]),
        ("alias.test", ["192.0.2.7"]),
        ("big.test", ["192.0.2.8"]),
        ("xn--bcher-kva.test", ["192.0.2.9"]),
        ("under_score.test", ["192.0.2.10"]),
        ("a.pinned.test", ["127.0.0.5"]),
        ("192.0.2.77", ["192.0.2.77"]),
        ("[2001:db8::7]", ["2001:db8::7"]),
    ],
)
def test_a_name_leads_to_its_addresses(ask: Asking, name: str, addresses: list[str]) -> None:
    assert sorted(ask(name).addresses) == addresses


def test_localhost_is_this_machine_and_nobody_is_asked(ask: Asking, server: NameServer) -> None:
    assert "127.0.0.1" in ask("localhost").addresses
    assert "127.0.0.1" in ask("a.localhost").addresses
    assert ask("a.invalid") == Resolved([], "no such name")
    assert not server.asked


def test_a_hundred_addresses_are_all_there(ask: Asking) -> None:
    assert len(set(ask("many.test").addresses)) == 100


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("missing.test", "no such name"),
        ("none.test", "the name has no address"),
        ("broken.test", "the name server could not find out (SERVFAIL)"),
        ("refused.test", "the name server refused to answer (REFUSED)"),
        ("mute.test", NOT_ANSWERED),
        ("a" * 64 + ".test", "not a name that can be looked up"),
        (".".join(["a" * 50] * 6), "not a name that can be looked up"),
        ("a..test", "not a name that can be looked up"),
    ],
)
def test_why_there_is_no_address(ask: Asking, name: str, detail: str) -> None:
    assert ask(name) == Resolved([], detail)
    assert ask.resolver.look_ups.failed == 1
    assert ask.resolver.look_ups.unanswered == (name == "mute.test")


@pytest.mark.parametrize(
    ("name", "seconds"), [("short.test", 30), ("hour.test", 1_000), ("long.test", 3_600), ("missing.test", 60)]
)
def test_an_answer_holds_as_long_as_it_says_within_bounds(ask: Asking, name: str, seconds: int) -> None:
    first = ask(name)
    for channel in ask.resolver._channels.values():
        channel.reinit()  # c-ares keeps answers too, by its own clock
    ask.now += seconds - 1
    assert ask(name) == first
    assert (ask.resolver.look_ups.asked, ask.resolver.look_ups.cached) == (1, 1)
    ask.now += 2
    assert ask(name) == first
    assert ask.resolver.look_ups.asked == 2


def test_the_cache_has_an_end_and_the_oldest_go_first(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolvers, "MAX_ENTRIES", 2)
    for name in ("one.test", "both.test", "alias.test", "both.test"):
        ask(name)
    assert (ask.resolver.look_ups.asked, ask.resolver.look_ups.cached) == (3, 1)
    ask("one.test")
    assert ask.resolver.look_ups.asked == 4


def test_one_look_up_is_under_way_for_a_name(ask: Asking, server: NameServer) -> None:
    answers = [ask.begin("slow.test") for _ in range(5)]
    ask.wait(*answers)
    assert answers == [[Resolved(["192.0.2.11"])]] * 5
    assert server.asked["slow.test"] == 1


def test_a_name_that_nobody_answers_for_holds_up_no_other(ask: Asking, server: NameServer) -> None:
    server.names |= {f"{number}.mute.test": Says(silent=True) for number in range(500)}
    dead = [ask.begin(f"{number}.mute.test") for number in range(500)]
    assert ask("one.test").addresses == ["192.0.2.1"]
    assert not any(dead)
    assert ask.resolver.look_ups.under_way == 500
    ask.wait(*dead)
    assert {answer.detail for [answer] in dead} == {NOT_ANSWERED}
    assert not any(answer.deaf for [answer] in dead)


def test_when_no_name_server_answers_no_name_is_blamed(
    ask: Asking, server: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.silent = True
    for name in ("one.test", "both.test"):
        assert ask(name) == Resolved([], "no name server answers", deaf=True)
    assert [record.message for record in caplog.records] == [
        f"no name server answers ({server.address}); hosts wait until one does"
    ]
    server.silent = False
    assert ask("one.test").addresses == ["192.0.2.1"], "it was not remembered as a name without address"
    assert caplog.records[-1].message == "a name server answers again"


def test_a_name_server_that_is_not_there_is_deaf_too() -> None:
    asking = Asking("127.0.0.1:1")
    assert asking("one.test").deaf
    asking.resolver.close()


def test_the_cache_of_the_library_is_emptied_now_and_then(
    ask: Asking, server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolvers, "FLUSH_LOOK_UPS", 3)
    ask("hour.test")
    ask.now += 5_000
    ask("hour.test")
    assert server.asked["hour.test"] == 1, "the library has kept it"
    until = time.monotonic() + 10
    while server.asked["hour.test"] == 1 and time.monotonic() < until:  # it empties its cache in its own time
        ask.now += 5_000
        ask("hour.test")
    assert server.asked["hour.test"] > 1


def test_no_answer_comes_after_the_end(server: NameServer) -> None:
    asking = Asking(server.address)
    answers = asking.begin("slow.test")
    asking.resolver.close()
    time.sleep(0.5)
    assert asking.tasks.empty()
    assert not answers


def test_look_ups_in_numbers(ask: Asking) -> None:
    for name in ("one.test", "one.test", "missing.test"):
        ask(name)
    numbers = {"asked": 2, "cached": 1, "failed": 1, "unanswered": 0, "under_way": 0}
    assert ask.resolver.look_ups.as_dict() == {**numbers, "mean_ms": 0.0, "slowest_ms": 0.0}


def test_a_worker_that_stops_waits_for_no_look_up(ask: Asking) -> None:
    answers = ask.begin("slow.test")
    ask.resolver.give_up()
    assert answers == [Resolved([], "the worker stops", deaf=True)]
    ask.tasks.get(timeout=10)()  # the answer that comes all the same
    assert len(answers) == 1
    assert ask.resolver.look_ups.under_way == 0


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("127.0.0.1", "127.0.0.1:53"),
        (" 127.0.0.1:5353 ", "127.0.0.1:5353"),
        ("::1", "[::1]:53"),
        ("[::1]", "[::1]:53"),
        ("[::1]:5353", "[::1]:5353"),
    ],
)
def test_a_name_server_is_an_address_with_or_without_a_port(text: str, server: str) -> None:
    assert parse_name_server(text) == server


@pytest.mark.parametrize("text", ["", "ns.test", "127.0.0.1:0", "127.0.0.1:65536", "[::1]:x", "1.2.3"])
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a name server"):
        parse_name_server(text)
