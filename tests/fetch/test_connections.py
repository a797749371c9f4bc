"""Connections: one for a visit's requests, and none kept for a host that is asked rarely."""

import gc
import socket
import threading
import weakref
from functools import partial
from pathlib import Path

import pytest

from crawl.fetch.errors import Kind
from crawl.fetch.response import Request, Response
from tests.crawl.running import LOCAL, crawl
from tests.fetch.looping import asking
from tests.scripted import page, scripted


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
