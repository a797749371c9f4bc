"""Proxies: a host keeps to one while it works, and what fails at a proxy is not the site's fault."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from crawl.fetch import proxies as module
from crawl.fetch.dial import Dialling
from crawl.fetch.proxies import Proxies, name_of, parse_proxy
from crawl.fetch.resolver import is_private
from crawl.fetch.response import Request, Response
from frontier.urls import canonicalise
from tests.crawl.running import LOCAL, Ran, crawl
from tests.fetch.looping import asking
from tests.scripted import ScriptedSite, page, redirect, scripted
from tests.tlsserver import free_port

URLS = [f"http://p{n}.test:3128" for n in range(4)]
ABROAD = ("--contact", "https://me.test/bot")


@contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """A server that takes a connection at a time, and gives these answers to what comes over it; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    for answer in answers:
                        if not connection.recv(10_000):
                            break
                        connection.sendall(answer)
                    else:
                        connection.recv(10_000) if not answers else None

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize("text", ["http://p:1", "socks5h://u:secret@p:1", "http://[::1]:3128", " http://p:1/ "])
def test_proxies_that_are_taken(text: str) -> None:
    assert parse_proxy(text) == text.strip()
    assert "secret" not in name_of(text)


@pytest.mark.parametrize(
    "text", ["", "p:1", "socks5://p:1", "https://p:1", "http://u:secret@p", "http://p:x", "http://p:1/x", "http://:1"]
)
def test_proxies_that_are_refused_without_showing_a_password(text: str) -> None:
    with pytest.raises(ValueError, match="a proxy ") as told:
        parse_proxy(text)
    assert "secret" not in str(told.value)


def chosen(proxies: Proxies, host: str) -> str:
    proxy = proxies.choose(host)
    assert proxy
    return proxy.url


def test_a_host_keeps_its_proxy_and_hosts_are_spread() -> None:
    hosts = [f"h{n}.test" for n in range(400)]
    before = {host: chosen(Proxies(URLS), host) for host in hosts}
    assert before == {host: chosen(Proxies(reversed(URLS)), host) for host in hosts}
    assert set(Counter(before.values())) == set(URLS)
    assert min(Counter(before.values()).values()) > 60
    fewer = Proxies(URLS[1:])
    assert all(chosen(fewer, host) == url for host, url in before.items() if url != URLS[0])


def test_a_proxy_that_failed_is_put_aside_for_longer_each_time_and_comes_back(monkeypatch) -> None:
    clock = mock.Mock()
    clock.monotonic.return_value = now = 1000.0
    monkeypatch.setattr(module, "time", clock)
    proxies = Proxies(URLS)
    first = proxies.choose("a.test")
    assert first
    for wait in (5, 10, 20):
        proxies.failed(first, "no connection")
        proxies.failed(first, "no connection")  # another request that was under way
        assert chosen(proxies, "a.test") != first.url
        clock.monotonic.return_value = now = now + wait - 0.1
        assert chosen(proxies, "a.test") != first.url
        clock.monotonic.return_value = now = now + 0.1
        assert proxies.choose("a.test") is first
    proxies.works(first)
    proxies.failed(first, "no connection")
    assert first.until == now + 5


CLOSED = b"HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
UNREACHABLE = b"\x05\x04\x00\x01" + bytes(6)
AT_THE_PROXY = [
    ("http", "http", None, "no connection"),
    ("socks5h", "http", None, "no connection"),
    ("http", "http", [CLOSED % b"407 No"], "it wants another user or password (407)"),
    ("http", "https", [CLOSED % b"407 No"], "it wants another user or password (407)"),
    ("http", "https", [b""], "Proxy CONNECT aborted"),
    ("socks5h", "http", [b""], "Failed to receive SOCKS"),
    ("socks5h", "http", [b"\x05\xff"], "No authentication method was acceptable"),
    ("http", "http", [CLOSED % b"502 No way"], ""),
    ("http", "https", [CLOSED % b"502 No way"], ""),
    ("socks5h", "http", [b"\x05\x00", UNREACHABLE], ""),
]


@pytest.mark.parametrize(("scheme", "site", "answers", "reason"), AT_THE_PROXY, ids=range(len(AT_THE_PROXY)))
def test_what_fails_at_the_proxy_and_what_behind_it(scheme, site, answers, reason) -> None:
    with asking() as ask:
        ask.loop.allow_proxy()
        if answers is None:
            response = ask(f"{site}://a.test/", proxy=f"{scheme}://127.0.0.1:{free_port()}")
        else:
            with answering(*answers) as port:
                response = ask(f"{site}://a.test/", proxy=f"{scheme}://127.0.0.1:{port}")
    assert response.proxy_failure.startswith(reason)
    assert bool(response.proxy_failure) == bool(reason)
    if site == "https" or answers is None:
        assert response.error


def test_a_crawl_goes_on_by_the_proxy_that_works_and_tells_no_password(tmp_path: Path) -> None:
    # An http proxy gets whole URLs as paths.
    pages = {"http://a.test/": page("/x", "http://b.test/"), "http://a.test/x": page(), "http://b.test/": page()}
    with scripted(pages) as proxy:
        both = f"http://u:hush-hush@127.0.0.1:{free_port()},http://u:hush-hush@127.0.0.1:{proxy.port}"
        ran = crawl(tmp_path, "http://a.test/", "--scope", "any", *ABROAD, settings={"TRAWL_PROXY": both})
    assert ran.told["status"] == {"200": 3}
    assert ran.told["errors"] == []
    assert Counter(proxy.paths()) == Counter([*pages, "http://a.test/robots.txt", "http://b.test/robots.txt"])
    assert all(asked.headers["proxy-authorization"].startswith("Basic ") for asked in proxy.asked)
    log = tmp_path / "crawl.log"
    assert "hush-hush" not in ran.out + ran.err + (log.read_text() if log.exists() else "")


def test_socks5h_hands_the_name_to_the_proxy() -> None:
    seen: list[bytes] = []
    with scripted({"/": page()}) as site, socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, socket.create_connection(("127.0.0.1", site.port)) as behind:
                connection.recv(100)
                connection.sendall(b"\x05\x00")
                seen.append(connection.recv(300))
                connection.sendall(b"\x05\x00\x00\x01" + bytes(6))
                behind.sendall(connection.recv(10_000))
                while data := behind.recv(10_000):
                    connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        with asking() as ask:
            ask.loop.allow_proxy()
            response = ask("http://a.test/", proxy=f"socks5h://127.0.0.1:{server.getsockname()[1]}", last=True)
    assert response.status == 200
    assert seen == [b"\x05\x01\x00\x03\x06a.test\x00\x50"]


def dialling(url: str, proxies: Proxies, refusal: str = ""):
    visit = mock.Mock()
    visit.around.proxies, visit.lease.name = proxies, "a.test"
    visit.around.stopping.return_value = False
    visit.around.refusal.return_value = refusal
    visit.around.loop.fetch.side_effect = lambda request, done: done(Response(url, proxy_failure="no connection"))
    done = mock.Mock()
    name = url.split("/")[2]
    Dialling(visit, mock.Mock(), Request(url, name, "", [], 1), done).begin()
    return visit, done


def test_with_no_proxy_left_the_host_waits_and_nothing_is_said_of_its_pages() -> None:
    visit, done = dialling("http://a.test/", Proxies(URLS))
    assert visit.around.loop.fetch.call_count == len(URLS)
    assert not done.called
    [call] = visit.put_off.call_args_list
    assert call.args[2] == "no proxy answers"


def test_what_a_proxy_may_not_be_asked_for_is_no_public_address() -> None:
    visit, done = dialling("http://169.254.169.254/", Proxies(URLS), refusal="not a public address")
    assert not visit.around.loop.fetch.called
    response = done.call_args.args[0]
    assert (response.error, response.detail) == ("blocked-address", "not a public address")


# Addresses and names that mean something else to a proxy than to us: its own machine, its own network.
INSIDE = [
    *("http://localhost/", "http://LOCALHOST./", "http://a.localhost/", "http://127.1/", "http://0x7f000001/"),
    *("http://0/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://169.254.169.254/latest/", "http://10.0.0.1/"),
    *("http://intranet/", "http://printer.local/", "http://PRINTER.local./", "http://metadata.google.internal/"),
    *("http://router.lan/", "http://nas.home.arpa/", "http://pinned.test/"),
]


def through_proxy(tmp_path: Path, proxy: ScriptedSite, *more: str) -> Ran:
    options = ("--scope", "any", "--proxy", f"http://127.0.0.1:{proxy.port}", "--resolve", "pinned.test=127.0.0.1")
    return crawl(tmp_path, "http://a.test/", *options, *more)


def test_no_link_and_no_redirect_leads_into_the_proxys_own_network(tmp_path: Path) -> None:
    moved = {f"http://a.test/moved{n}": redirect(url) for n, url in enumerate(INSIDE)}
    with scripted({"http://a.test/": page(*INSIDE, *moved, "http://b.test/"), **moved}) as proxy:
        proxy.script["http://b.test/robots.txt"] = redirect("http://localhost/robots.txt")
        ran = through_proxy(tmp_path, proxy, *ABROAD)
        # The robots.txt of b.test cannot be had, and is asked for again.
        assert set(proxy.paths()) == {"http://a.test/", "http://a.test/robots.txt", *moved, "http://b.test/robots.txt"}
    errors = {error["kind"]: error["count"] for error in ran.told["errors"]}
    hosts = {canonicalise(url).host for url in INSIDE}
    assert errors.pop("blocked-address") >= len(hosts)
    assert set(errors) == {"robots-unreachable"}


@pytest.mark.parametrize("url", ["http://intranet/", "http://printer.local/", "http://localhost/"])
def test_what_the_operator_says_the_address_of_and_allows_is_asked_for(tmp_path: Path, url: str) -> None:
    where = ("--resolve", "intranet=10.0.0.1", "--resolve", "*.local=10.0.0.2")
    allowed = ("--allow-network", "10.0.0.0/8", "--allow-network", "127.0.0.0/8")
    with scripted({"http://a.test/": page(url), url: page()}) as proxy:
        through_proxy(tmp_path, proxy, *where, *allowed, *ABROAD)
        assert url in proxy.paths()


def test_without_a_contact_a_proxy_is_asked_for_nothing_that_may_lie_beyond_this_machine(tmp_path: Path) -> None:
    with scripted({"http://localhost/": page("http://a.test/", "/x"), "http://localhost/x": page()}) as proxy:
        through = ("--proxy", f"http://127.0.0.1:{proxy.port}")
        crawl(tmp_path, "http://localhost/", "--scope", "any", *through, *LOCAL)
        assert {url.removesuffix("robots.txt") for url in proxy.paths()} == {"http://localhost/", "http://localhost/x"}


@pytest.mark.parametrize(
    ("name", "private"),
    [("a.test", False), ("local", True), ("xlocal.test", False), ("a.local.", True), ("internal.test", False)],
)
def test_names_of_private_networks(name: str, private: bool) -> None:
    assert is_private(name) is private
