"""Ports: links and redirects lead to those of web servers, those that a seed names, and those that are added."""

from pathlib import Path

import pytest

from crawl.fetch.errors import Kind
from crawl.ports import MAX_PORTS, parse_ports
from crawl.scope import InvalidScope, Scope
from frontier.urls import InvalidURL, canonicalise
from frontier.urls.ports import BAD_PORTS
from tests.cli.test_lookup_url import run
from tests.crawl.running import LOCAL, Ran, crawl
from tests.scripted import page, redirect, scripted

EVERYWHERE = ("--scope", "any", "--resolve", "*.test=127.0.0.1", *LOCAL)


def errors(ran: Ran) -> dict[str, int]:
    return {error["kind"]: error["count"] for error in ran.told["errors"]}


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://b.test/", True),
        ("https://b.test/", True),
        ("http://b.test:443/", True),
        ("https://b.test:80/", True),
        ("http://b.test:8080/", True),
        ("https://b.test:8443/", True),
        ("http://b.test:18090/", True),  # a seed names it, on another host
        ("http://[2606:4700::1111]/", True),
        ("http://[2606:4700::1111]:18090/", True),
        ("http://b.test:81/", False),
        ("http://b.test:6379/", False),
        ("http://b.test:9200/", False),
        ("http://[2606:4700::1111]:9200/", False),
    ],
)
def test_ports_that_belong_to_a_campaign(url: str, allowed: bool) -> None:
    scope = Scope("any", [canonicalise("http://a.test:18090/"), canonicalise("http://c.test/")])
    verdict = scope.verdict(canonicalise(url))
    assert verdict.allowed is allowed
    if not allowed:
        port = url.rstrip("/").rpartition(":")[2]
        assert (verdict.kind, verdict.rule) == (Kind.BLOCKED_PORT, f"port {port} is not one of the campaign's")


def test_what_is_out_of_scope_anyway_is_told_as_that() -> None:
    scope = Scope("host", [canonicalise("http://a.test/")], exclude=["/private/"])
    assert scope.verdict(canonicalise("http://a.test:9200/")).kind is Kind.OUT_OF_SCOPE
    everywhere = Scope("any", [canonicalise("http://a.test/")], exclude=["/private/"])
    assert everywhere.verdict(canonicalise("http://a.test:9200/private/")).kind is Kind.OUT_OF_SCOPE


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("", ()),
        ("8000", ("8000",)),
        (" 8000, 0009200,8000", ("8000", "9200")),
        ("any", ("any",)),
        ("65535", ("65535",)),
    ],
)
def test_ports_that_may_be_added(text: str, ports: tuple[str, ...]) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0", "'0' is not a port"),
        ("65536", "'65536' is not a port"),
        ("9" * 5000, "is not a port"),
        ("http", "'http' is not a port"),
        ("-1", "'-1' is not a port"),
        ("٨٠", "is not a port"),
        ("any,80", "'any' is not a port"),
        ("8000,25", "port 25 is not a web port"),
        (",".join(map(str, range(20_000, 20_001 + MAX_PORTS))), f"more than {MAX_PORTS} ports"),
    ],
)
def test_what_is_no_port_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_ports(text)
    with pytest.raises(InvalidScope, match=says):
        Scope("any", [], ports=text)


@pytest.mark.parametrize("port", sorted(BAD_PORTS))
def test_a_port_of_another_protocol_is_in_no_url(port: str) -> None:
    for origin in ("http://a.test", "https://[::1]", "http://127.0.0.1"):
        with pytest.raises(InvalidURL, match=f"^port {port} is not a web port$"):
            canonicalise(f"{origin}:{port}/")


def test_links_and_redirects_to_other_ports_are_not_followed_and_are_told(tmp_path: Path) -> None:
    with scripted({}) as other, scripted({}) as site:
        away = f"http://b.test:{other.port}"
        site.script = {"/": page(f"{away}/1", f"{away}/1#again", f"{away}/2", "/moved"), "/moved": redirect(away)}
        ran = crawl(tmp_path, f"{site.url}/", *EVERYWHERE)
        asked = run(tmp_path, "url", f"{away}/1", "--campaign", f"127.0.0.1:{site.port}", "--data", str(tmp_path))
        assert other.connections == 0
    assert errors(ran) == {"blocked-port": 3}
    assert ran.told["status"] == {"200": 1}
    assert f"scope       out (port {other.port} is not one of the campaign's)" in asked.stdout
    assert "unknown: no link to it has been admitted" in asked.stdout


@pytest.mark.parametrize("ports", ["any", "8000,{}"])
def test_ports_can_be_added(tmp_path: Path, ports: str) -> None:
    with scripted({"/1": page(), "/2": page()}) as other, scripted({}) as site:
        away = f"http://b.test:{other.port}"
        site.script = {"/": page(f"{away}/1", "/moved"), "/moved": redirect(f"{away}/2")}
        ran = crawl(tmp_path, f"{site.url}/", *EVERYWHERE, "--ports", ports.format(other.port))
        assert sorted(other.paths()) == ["/1", "/2"]
    assert errors(ran) == {}


def test_a_seed_that_comes_later_opens_its_port_and_the_links_are_found_again(tmp_path: Path) -> None:
    with scripted({"/": page(), "/1": page()}) as other, scripted({}) as site:
        site.script = {"/": page(f"http://b.test:{other.port}/1")}
        named = ("--name", "c", *EVERYWHERE)
        crawl(tmp_path, f"{site.url}/", *named)
        assert other.connections == 0
        crawl(tmp_path, f"http://c.test:{other.port}/", *named)
        assert other.paths() == ["/"]
        told = crawl(tmp_path, *named, "--again")
        assert sorted(other.paths()) == ["/", "/", "/1"]
    assert told.code == 0


def test_a_changed_port_is_a_changed_scope(tmp_path: Path) -> None:
    with scripted({"/": page()}) as site:
        crawl(tmp_path, f"{site.url}/", *EVERYWHERE)
        ran = crawl(tmp_path, f"{site.url}/", *EVERYWHERE, "--ports", "8000")
    assert "its scope has changed" in ran.err


def test_a_robots_txt_on_another_port_is_not_asked_for_and_closes_the_host(tmp_path: Path) -> None:
    with scripted({"/robots.txt": page()}) as other, scripted({"/": page()}) as site:
        site.script["/robots.txt"] = redirect(f"http://127.0.0.1:{other.port}/robots.txt")
        ran = crawl(tmp_path, f"{site.url}/", *EVERYWHERE, timeout=120)
        assert other.connections == 0
        assert site.paths() == []
    (error,) = ran.told["errors"]
    assert error["kind"] == "robots-unreachable"
    assert f"port {other.port} is not one of the campaign's" in error["example"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("http://a.test:25/",), "'http://a.test:25/' cannot be crawled: port 25 is not a web port"),
        (("http://a.test/", "--ports", "25"), "port 25 is not a web port"),
        (("http://a.test/", "--ports", "x"), "'x' is not a port"),
    ],
)
def test_ports_of_no_web_server_are_told_at_once(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    ran = crawl(tmp_path, *words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
