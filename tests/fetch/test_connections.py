"""Connections: one for a visit's requests, and none kept for a host that is asked rarely."""

import gc
import socket
import threading
import time
import weakref
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from crawl.fetch.errors import Kind
from crawl.fetch.response import Request, Response
from tests.crawl.running import LOCAL, crawl
from tests.fetch.looping import asking
from tests.scripted import HANG_UP, Answer, Asked, page, scripted


def test_the_requests_of_a_visit_share_one_connection(tmp_path: Path) -> None:
    with scripted({"/": page("/a", "/b", "/c")}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert len(site.asked) == 5
    assert site.connections == 1


def test_the_last_request_of_a_connection_closes_it_and_a_fresh_one_does_not_use_it() -> None:
    with scripted({"/": page()}) as site, asking() as ask:
        ask(f"{site.url}/")
        ask(f"{site.url}/", last=True)
        assert site.connections == 1
        ask(f"{site.url}/")
        assert site.connections == 2
        ask(f"{site.url}/", fresh=True)
        assert site.connections == 3
        ask(f"{site.url}/")
    assert site.connections == 3


def test_a_connection_that_ends_without_an_answer_brings_one_more_request_and_that_in_its_time(tmp_path: Path) -> None:
    # By itself libcurl sends the request again at once.
    def once(asked: Asked) -> Answer:
        return HANG_UP if site.paths().count(asked.path) == 1 else page()

    with scripted({"/": page("/never", "/once"), "/never": HANG_UP, "/once": once}) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL, "--delay", "0.3", "--no-adaptive-delay")
    asked = [one for one in site.asked if one.path != "/robots.txt"]
    gaps = [later.time - one.time for one, later in pairwise(asked)]
    assert min(gaps) > 0.29, [(one.path, gap) for one, gap in zip(asked[1:], gaps, strict=True)]
    assert site.paths().count("/once") == 2
    assert ran.told["pages"] == 2
    # Three tries of the URL; a second request each time that the first went out on a connection that was there.
    assert 3 <= site.paths().count("/never") <= 6
    assert {error["kind"] for error in ran.told["errors"]} == {"disconnect"}


def test_through_a_proxy_too_and_the_proxy_is_not_to_blame() -> None:
    def once(asked: Asked) -> Answer:
        return HANG_UP if site.paths().count(asked.path) == 1 else page()

    with scripted({"http://a.test/": page(), "http://a.test/once": once}) as site, asking() as ask:
        ask("http://a.test/", proxy=site.url)
        cut_off = ask("http://a.test/once", proxy=site.url)
        assert (cut_off.cut_off, cut_off.error, cut_off.proxy_failure) == (True, Kind.DISCONNECT, "")
        assert site.connections == 1, "nothing was sent again"
        assert cut_off.sent_at <= cut_off.arrived_at <= time.time()
        assert ask("http://a.test/once", proxy=site.url, fresh=True).status == 200


@pytest.mark.parametrize(("delay_ms", "last"), [(1_000, False), (60_000, True)])
def test_with_a_long_delay_no_connection_is_kept(delay_ms: int, last: bool) -> None:
    from unittest import mock

    from crawl.fetch.proxies import Proxies
    from crawl.fetch.visit import HostVisit
    from frontier.politeness import Pace

    visit = HostVisit(mock.Mock(), mock.Mock(), mock.Mock(proxies=Proxies(["http://p.test:1"])), pace=Pace(delay_ms))
    visit.around.stopping.return_value = False  # type: ignore[attr-defined]
    visit.around.refusal.return_value = ""  # type: ignore[attr-defined]
    visit.dial("http://a.test/", mock.Mock(fresh=False), [], mock.Mock())
    request = visit.around.loop.fetch.call_args.args[0]  # type: ignore[attr-defined]
    assert request.last is last


def test_a_kept_handle_holds_nothing_of_the_visit_that_used_it() -> None:
    class Visit:
        """What a callback belongs to, with all its URLs."""

        def __init__(self) -> None:
            self.answered = threading.Event()

        def done(self, response: Response) -> None:
            self.answered.set()

    visit = Visit()
    gone = weakref.ref(visit)
    with scripted({"/": page()}) as site, asking() as ask:
        request = Request(f"{site.url}/", "127.0.0.1", "127.0.0.1", [], 1 << 20)
        ask.loop.submit(partial(ask.loop.fetch, request, visit.done))
        assert visit.answered.wait(10)
        del visit
        later = threading.Event()
        ask.loop.submit(later.set)  # the loop has left the callback by then
        assert later.wait(10)
        gc.collect()
        assert gone() is None


def test_a_proxy_that_goes_silent_on_a_kept_connection_is_not_taken_for_one_that_is_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                connection.recv(10_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with asking() as ask:
            ask.loop.allow_proxy()
            proxy = f"http://127.0.0.1:{server.getsockname()[1]}"
            first, second = ask("http://a.test/", proxy=proxy), ask("http://a.test/", proxy=proxy)
        thread.join(10)
    assert (first.status, first.error) == (200, None)
    assert second.error is Kind.TRUNCATED
    assert second.proxy_failure == ""
