"""Addresses that are not allowed are not dialled, however a seed, link, base, redirect or name server spells them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crawl.fetch.errors import Kind
from crawl.fetch.guard import Guard
from crawl.fetch.resolver import Resolved
from frontier.urls import InvalidURL, canonicalise
from tests.crawl.running import crawl
from tests.faults.visiting import visiting
from tests.fetch.looping import asking
from tests.scripted import Answer, Asked, ScriptedSite, page, redirect, scripted

ALLOWED = "127.0.0.2"
# All lead to 127.0.0.1, 127.66.6.6 or ::1, where something listens. inside.test has the first by --resolve.
SPELLINGS = [
    *("127.0.0.1", "0x7f000001", "0x7F.0.0.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "2130706433", "0"),
    *("127.66.6.6", "0x7f420606", "0177.0102.06.06", "127.4326918", "127.66.1542", "0.0.0.0", "0x0", "00"),
    *("[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f42:606]", "[::127.0.0.1]", "[::]"),
    *("127.0.0.1.", "127.1.", "0x7f000001.", "127%2E0%2E0%2E1", "%31%32%37.0.0.1", "127%2e1", "u:p@127.0.0.1"),
    *("１２７.0.0.1", "127。0。0。1", "127．66．6．6", "①②⑦.0.0.1", "127.0.0｡1", "１２７．１", "127\u00ad.0.0.1"),
    *("127.0.0.\t1", "localhost", "LocalHost.", "inside.test", "ｌocalhost"),
]


@contextmanager
def listening() -> Iterator[list[ScriptedSite]]:
    """Servers at the three addresses, all at one port."""
    with (
        scripted({"/": page(), "/x": page()}, ("127.0.0.1", 0)) as first,
        scripted(first.script, ("127.66.6.6", first.port)) as second,
        scripted(first.script, ("::1", first.port)) as third,
    ):
        yield [first, second, third]


def pages(port: int) -> dict[str, Any]:
    """A site that leads to each spelling in each way."""
    urls = [f"http://{spelling}:{port}" for spelling in SPELLINGS]
    bases = {f"/base/{n}": Answer(f"<base href='{url}/'><a href='x'>x</a>") for n, url in enumerate(urls)}
    # A header is Latin-1 to Python's server; these bytes are UTF-8.
    moved = {f"/moved/{n}": redirect(f"{url}/moved".encode().decode("latin-1")) for n, url in enumerate(urls)}
    refresh = {
        f"/refresh/{n}": page(head=f"<meta http-equiv=refresh content='0;{url}/'>") for n, url in enumerate(urls)
    }
    robots_hosts = [f"http://r{n}.test:{{port}}/" for n in range(len(urls))]

    def robots(asked: Asked) -> Answer:
        name = asked.host.partition(".")[0]
        if not name.startswith("r"):
            return Answer(status=404)
        return redirect(f"{urls[int(name[1:])]}/robots.txt".encode().decode("latin-1"))

    def start(asked: Asked) -> Answer:
        own = asked.host.partition(":")[2]
        links = [*(f"{url}/" for url in urls), *bases, *moved, *refresh]
        links += [url.format(port=own) for url in robots_hosts]
        return Answer("".join(f"<a href='{link}'>x</a>" for link in links))

    return {"/": start, "/robots.txt": robots, **bases, **moved, **refresh}


def seeds(port: int) -> Iterator[str]:
    """The spellings that can be a URL at all."""
    for spelling in SPELLINGS:
        try:
            yield canonicalise(f"http://{spelling}:{port}/seed").fetch
        except InvalidURL:
            continue


@pytest.mark.parametrize("opened", [False, True])
def test_no_spelling_leads_to_an_address_that_is_not_allowed(tmp_path: Path, opened: bool) -> None:
    networks = ("127.0.0.0/8", "::1") if opened else (ALLOWED,)
    options = [word for network in networks for word in ("--allow-network", network)]
    options += ["--resolve", "inside.test=127.0.0.1", "--resolve", f"*.test={ALLOWED}", "--scope", "any"]
    with listening() as forbidden:
        with scripted(pages(forbidden[0].port), (ALLOWED, 0)) as site:
            spelled = list(seeds(forbidden[0].port))
            assert len(set(spelled)) >= 9
            ran = crawl(tmp_path, f"http://a.test:{site.port}/", *spelled, *options, "--contact", "https://me.test/bot")
            assert len(site.paths()) >= 3 * len(SPELLINGS)
        connections = [server.connections for server in forbidden]
    if opened:  # what was listening can be reached, so that none of it was reached says something
        assert all(connections)
        return
    assert connections == [0, 0, 0]
    kinds = {error["kind"] for error in ran.told["errors"]}
    assert kinds == {"blocked-address", "robots-unreachable"}


@pytest.mark.parametrize("first", ["127.66.6.6", "::1", "10.0.0.1", "0.0.0.0"])
def test_of_a_mixed_answer_only_what_is_allowed_is_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    with listening() as forbidden, scripted({"/": page()}, (ALLOWED, forbidden[0].port)) as site:
        with visiting(tmp_path, allow_networks=(ALLOWED,)) as engine:
            monkeypatch.setattr(engine.resolver, "resolve", lambda name, done: done(Resolved([first, ALLOWED, "::1"])))
            engine.begin([f"http://mixed.example:{site.port}/"])
            engine.kept.wait(1)
            (record,) = engine.kept.records
        assert record.outcome.response
        assert (record.outcome.error, record.outcome.response.address) == (None, ALLOWED)
        assert [server.connections for server in forbidden] == [0, 0, 0]
        assert site.connections == 1


@pytest.mark.parametrize("later", ["127.0.0.1", "127.66.6.6", "::1", "0.0.0.0", "::ffff:127.0.0.1"])
def test_a_name_that_changes_its_address_after_robots_txt_is_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    answers = [[ALLOWED], [later]]  # 0.0.0.0: case 20
    with listening() as forbidden, scripted({"/": page()}, (ALLOWED, forbidden[0].port)) as site:
        with visiting(tmp_path, allow_networks=(ALLOWED,)) as engine:
            monkeypatch.setattr(engine.resolver, "resolve", lambda name, done: done(Resolved(answers.pop(0))))
            engine.begin([f"http://rebound.example:{site.port}/"])
            engine.kept.wait(1)
            (record,) = engine.kept.records
        assert record.outcome.error is Kind.BLOCKED_ADDRESS
        assert [asked.path for asked in site.asked] == ["/robots.txt"]
        assert [server.connections for server in forbidden] == [0, 0, 0]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.66.6.6", "::1"])
@pytest.mark.parametrize("lenient", [False, True])
def test_the_loop_itself_looks_at_each_address_before_it_dials(address: str, lenient: bool) -> None:
    with listening() as forbidden, asking(guard=Guard([ALLOWED])) as ask:
        response = ask(f"http://a.example:{forbidden[0].port}/", address, lenient=lenient)
        assert response.error is (Kind.BLOCKED_ADDRESS if lenient else Kind.CONNECT)
        assert [server.connections for server in forbidden] == [0, 0, 0]
