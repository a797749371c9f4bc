"""trawl fetch: one URL through the engine of a crawl, shown in full and stored nowhere."""

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_lookup_url import call, environment, records, run
from tests.faults.answers import answer
from tests.faults.server import serve
from tests.faults.table import FAULTS, Fault
from tests.rig import wait_until
from tests.scripted import Answer, Script, ScriptedSite, page, redirect, scripted

LOCAL = ("--allow-network", "127.0.0.1", "--delay", "0")
PINNED = (*LOCAL, "--resolve", "*.test=127.0.0.1")


def keeping_the_cookie(asked) -> Answer:
    if "cookie" in asked.headers:
        return page("/in")
    return Answer(status=302, headers={"Location": "/cookie", "Set-Cookie": "token=s3cret"})


SCRIPT: Script = {
    "/robots.txt": Answer("User-agent: *\nDisallow: /private/\nAllow: /private/open\n"),
    "/": Answer(
        "<!DOCTYPE html><meta charset=utf-8><title>Garden</title><meta name=robots content=noindex>"
        "<a href=/a>a</a><a href=/a#b>b</a><a href=/c rel=nofollow>c</a><a href='http://[x/'>d</a>"
        "<a href=http://other.test/>e</a>",
        headers={"Content-Type": "text/html", "X-Robots-Tag": "noarchive"},
    ),
    "/private/open": page(),
    "/missing": Answer("gone", 410),
    "/old": redirect("/new", 301),
    "/new": redirect("/", 302),
    "/cookie": keeping_the_cookie,
    "/escape": Answer("x", headers={"X-Colour": "\x1b[31mred", "Content-Type": "text/plain"}),
    "/elsewhere": redirect("http://other.test/"),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[ScriptedSite]:
    with scripted(SCRIPT) as site:
        yield site


@pytest.fixture
def site(shared: ScriptedSite) -> ScriptedSite:
    shared.asked.clear()
    return shared


def fetched(*words: str, code: int = 0) -> dict[str, Any]:
    done = call("fetch", *words, "--json")
    assert done.returncode == code, done.stderr
    (record,) = records(done)
    return record


def kind_of(value) -> object:
    """The shape of a JSON value: its keys, and the type of each."""
    if isinstance(value, dict):
        return {key: kind_of(inner) for key, inner in value.items()}
    return [kind_of(value[0])] if isinstance(value, list) and value else type(value).__name__


def test_every_request_is_shown_as_it_went_out_and_what_came_back(site: ScriptedSite) -> None:
    record = fetched(f"{site.url}/", *LOCAL)
    (hop,) = record["hops"]
    robots, asked = hop["requests"]
    assert [robots["for"], asked["for"]] == ["robots", "page"]
    (attempt,) = asked["attempts"]
    assert attempt["request"][:3] == ["GET / HTTP/1.1", f"Host: 127.0.0.1:{site.port}", "User-Agent: trawl/0.1.0"]
    sent = {line.partition(":")[0].lower() for line in attempt["request"][1:]}
    assert sent == set(site.asked[-1].headers)
    assert attempt["response"][0] == "HTTP/1.1 200 OK"
    assert "X-Robots-Tag: noarchive" in attempt["response"]
    assert (attempt["address"], attempt["http_version"], attempt["status"]) == ("127.0.0.1", "1.1", 200)
    assert attempt["ms"]["total"] >= attempt["ms"]["first_byte"] >= 0
    assert site.connections  # and of the two requests the second one went over the first one's connection
    assert [one["attempts"][0]["new_connection"] for one in (robots, asked)] == [True, False]


def test_a_page_is_shown_as_a_crawl_reads_and_would_store_it(site: ScriptedSite) -> None:
    (hop,) = fetched(f"{site.url}/", *LOCAL)["hops"]
    told = hop["page"]
    assert (told["title"], told["encoding"], told["encoding_by"]) == ("Garden", "utf-8", "meta or XML declaration")
    assert (told["noindex"], told["nofollow"]) == (["meta"], [])
    assert told["link_count"] == 5
    assert told["left_out"] == {"repeated": 1, "nofollow": 1, "no URL": 1}
    assert [(link["url"], link["left_out"]) for link in told["links"]] == [
        (f"{site.url}/a", None),
        (f"{site.url}/a", "repeated"),
        (f"{site.url}/c", "nofollow"),
        (None, "no URL"),
        ("http://other.test/", None),
    ]
    stored = hop["stored"]
    assert (stored["warc"], stored["page"], stored["links"]) == ("response", True, 2)
    assert told["digest"].startswith("sha1:")


def test_the_fields_of_the_json_have_fixed_names(site: ScriptedSite) -> None:
    (hop,) = fetched(f"{site.url}/", *LOCAL)["hops"]
    assert kind_of(hop["robots"]) == {
        "allowed": "bool",
        "rule": "NoneType",
        "line": "NoneType",
        "group": "str",
        "crawl_delay": "NoneType",
        "url": "str",
        "status": "int",
        "bytes": "int",
    }
    assert kind_of(hop["requests"][0]["look_up"]) == {
        "name": "str",
        "ms": "float",
        "addresses": [{"address": "str", "refused": "NoneType"}],
    }
    attempt = hop["requests"][0]["attempts"][0]
    assert list(attempt) == [
        *("address", "proxy", "waited_ms", "waited_for", "reader", "forgiven", "new_connection", "tls", "request"),
        *("status", "http_version", "response", "bytes", "truncated", "ms", "error", "detail"),
    ]
    assert list(hop) == [
        *("url", "canonical", "host", "scope", "blocked", "robots", "requests", "status", "error", "page"),
        *("redirect", "stored", "again"),
    ]


def test_what_robots_txt_forbids_is_not_asked_for_and_the_line_is_named(site: ScriptedSite) -> None:
    done = call("fetch", f"{site.url}/private/x", *LOCAL)
    assert done.returncode == 1
    assert "forbidden by line 2: Disallow: /private/ (group *)" in done.stdout
    assert "robots-denied after 1 request\n" in done.stdout
    assert site.paths() == []
    assert fetched(f"{site.url}/private/open", *LOCAL)["hops"][0]["robots"]["line"] == 3


def test_the_delay_is_kept_and_shown(site: ScriptedSite) -> None:
    (hop,) = fetched(f"{site.url}/missing", "--allow-network", "127.0.0.1", "--delay", "0.3", code=1)["hops"]
    robots, asked = (step["attempts"][0] for step in hop["requests"])
    assert robots["waited_ms"] == 0
    assert asked["waited_ms"] > 250
    assert asked["waited_for"] == "delay of 0.3 s"
    assert site.asked[1].time - site.asked[0].time >= 0.3
    assert hop["status"] == 410


def test_a_crawl_delay_is_kept_and_named() -> None:
    with scripted({"/robots.txt": Answer("User-agent: trawl\nCrawl-delay: 0.5\n"), "/": page()}) as site:
        done = call("fetch", f"{site.url}/", *LOCAL)
        assert site.asked[1].time - site.asked[0].time >= 0.5
    assert "(Crawl-delay of 0.5 s)" in done.stdout
    assert "allowed: no rule of the group trawl speaks of it; Crawl-delay 0.5 s" in done.stdout


def test_a_crawl_delay_of_days_is_told_and_not_waited_for() -> None:
    with scripted({"/robots.txt": Answer("User-agent: *\nCrawl-delay: 90000\n"), "/": page()}) as site:
        since = time.monotonic()
        (hop,) = fetched(f"{site.url}/", *LOCAL, code=1)["hops"]
        assert site.paths() == []
    assert time.monotonic() - since < 60
    assert hop["again"]["what"] == "host"
    assert hop["again"]["why"] == "Crawl-delay of 90000 s"


def test_redirects_on_a_host_are_followed_as_a_crawl_follows_them(site: ScriptedSite) -> None:
    record = fetched(f"{site.url}/old", *LOCAL)
    assert [hop["status"] for hop in record["hops"]] == [301, 302, 200]
    assert [hop["redirect"] and hop["redirect"]["crawl"] for hop in record["hops"]] == ["asks next", "asks next", None]
    assert record["hops"][0]["redirect"]["followed"]
    assert site.paths() == ["/old", "/new", "/"]


def test_no_follow_stops_at_the_first_redirect(site: ScriptedSite) -> None:
    record = fetched(f"{site.url}/old", *LOCAL, "--no-follow", code=1)
    (hop,) = record["hops"]
    assert (hop["status"], hop["redirect"]["followed"]) == (301, False)
    assert site.paths() == ["/old"]


def test_a_redirect_to_another_host_is_followed_by_its_own_robots_txt() -> None:
    def robots(asked) -> Answer:
        return Answer("User-agent: *\nDisallow: /" if asked.host.startswith("b.") else "")

    with scripted({"/robots.txt": robots}) as site:
        there = f"http://b.test:{site.port}/"
        site.script["/"] = redirect(there)
        record = fetched(f"http://a.test:{site.port}/", *PINNED, code=1)
        assert [asked.host.partition(".")[0] + asked.path for asked in site.asked] == [
            "a/robots.txt",
            "a/",
            "b/robots.txt",
        ]
    first, second = record["hops"]
    assert (first["redirect"]["url"], first["redirect"]["crawl"], first["redirect"]["followed"]) == (
        there,
        "queues",
        True,
    )
    assert (second["url"], second["robots"]["rule"], second["error"]["kind"]) == (there, "Disallow: /", "robots-denied")


def test_a_redirect_that_leads_nowhere_is_told(site: ScriptedSite) -> None:
    site.script["/nowhere"] = Answer(status=302)
    done = call("fetch", f"{site.url}/nowhere", *LOCAL)
    assert done.returncode == 1
    assert "redirect    nowhere: the answer has no Location\n" in done.stdout


def test_two_hosts_that_redirect_to_each_other_are_asked_once_each() -> None:
    with scripted({}) as site:
        site.script["/"] = lambda asked: redirect(
            f"http://{'b' if asked.host.startswith('a') else 'a'}.test:{site.port}/"
        )
        record = fetched(f"http://a.test:{site.port}/", *PINNED, code=1)
        assert [asked.host[0] for asked in site.asked if asked.path == "/"] == ["a", "b"]
    assert record["hops"][-1]["redirect"]["followed"] is False
    assert [hop["redirect"]["loop"] for hop in record["hops"]] == [False, True]


def test_hosts_without_end_are_left_after_ten() -> None:
    with scripted({}) as site:
        site.script["/"] = lambda asked: redirect(f"http://{int(asked.host.partition('.')[0]) + 1}.test:{site.port}/")
        record = fetched(f"http://1.test:{site.port}/", *PINNED, code=1)
        assert len(site.paths()) == len(record["hops"]) == 10


def test_robots_txt_on_another_host_is_asked_for_there_without_a_frontier() -> None:
    with scripted({"/": page(), "/rules": Answer("User-agent: *\nDisallow: /x\n")}) as site:
        site.script["/robots.txt"] = redirect(f"http://b.test:{site.port}/rules")
        record = fetched(f"http://a.test:{site.port}/x", *PINNED, code=1)
        assert [asked.host[0] + asked.path for asked in site.asked] == ["a/robots.txt", "b/rules"]
    assert record["hops"][0]["robots"]["rule"] == "Disallow: /x"


def test_secrets_are_sent_and_never_shown(site: ScriptedSite) -> None:
    words = (f"{site.url}/cookie", *LOCAL, "--cookies", "--auth", f"{site.url}=me:hunter2")
    for more in ((), ("--json",)):
        site.asked.clear()
        done = call("fetch", *words, *more)
        assert done.returncode == 0
        asked = site.asked[-1].headers
        assert asked["cookie"] == "token=s3cret"
        assert asked["authorization"].startswith("Basic ")
        assert "Cookie: (withheld)" in done.stdout
        assert "Authorization: (withheld)" in done.stdout
        shown = done.stdout.replace("Set-Cookie: token=s3cret", "")  # what a server sends is its own to show
        assert not any(secret in shown for secret in ("s3cret", "hunter2", asked["authorization"][6:]))


def test_a_password_in_the_url_is_not_shown(site: ScriptedSite) -> None:
    done = call("fetch", f"http://me:hunter2@127.0.0.1:{site.port}/", *LOCAL)
    assert "http://USER:PASSWORD@127.0.0.1" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr
    assert "hunter2" not in call("fetch", "http://me:hunter2@[x/").stderr


def test_added_headers_go_out(site: ScriptedSite) -> None:
    done = call("fetch", f"{site.url}/", *LOCAL, "--header", "X-Garden: tulips", "--contact", "me@garden.test")
    assert site.asked[-1].headers["x-garden"] == "tulips"
    assert site.asked[-1].headers["user-agent"] == "trawl/0.1.0 (+me@garden.test)"
    assert "X-Garden: tulips" in done.stdout


@pytest.mark.parametrize(
    ("url", "address", "what"),
    [
        ("http://169.254.169.254/", "169.254.169.254", "a link-local address"),
        ("http://0x7f000001/", "127.0.0.1", "a loopback address"),
        ("http://localhost/", "127.0.0.1", "a loopback address"),
        ("http://10.1/", "10.0.0.1", "a private or reserved address"),
        ("http://[::ffff:10.0.0.1]/", "::ffff:", "a private or reserved address"),
        ("http://224.0.0.1/", "224.0.0.1", "a multicast address"),
    ],
)
def test_a_refused_address_is_explained_with_the_option_that_allows_it(url: str, address: str, what: str) -> None:
    pinned = ("--resolve", "localhost=127.0.0.1")
    done = call("fetch", url, "--contact", "me@garden.test", *pinned)
    assert done.returncode == 1
    assert f"{address}" in done.stdout
    assert what in done.stdout
    assert "--allow-network " in done.stdout
    assert "blocked-address after 0 requests\n" in done.stdout


def test_without_a_contact_a_redirect_does_not_leave_this_machine() -> None:
    with scripted({"/": redirect("http://away.test/")}) as site:
        done = call("fetch", f"{site.url}/", *LOCAL, "--resolve", "away.test=198.41.0.4")
    assert done.returncode == 1
    assert "198.41.0.4: without a contact nothing beyond this machine is asked (--contact MAIL-or-URL)" in done.stdout


def test_the_body_alone_goes_to_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = bytes(range(256)) * 1000 + b"\r\n\x1b[31m"
    odd = Fault("bytes of all kinds", answer("Content-Encoding: gzip", body=gzip.compress(body)))
    monkeypatch.setitem(FAULTS, "all-bytes", odd)
    with serve() as server:
        done = subprocess.run(
            [sys.executable, "-m", "trawl_project", "fetch", f"{server.url}fault/all-bytes", *LOCAL, "--body"],
            env=environment(tmp_path),
            capture_output=True,
            timeout=60,
            check=True,
        )
    assert done.stdout == body
    assert f"{len(body):,} decoded".encode() in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["garden.test"], "write it with http:// or https://"),
        (["ftp://garden.test/"], "cannot be fetched"),
        (["http://garden.test/"], "--contact"),
        (["http://127.0.0.1/", "--again"], "--again needs --campaign"),
        (["http://127.0.0.1/", "--contact", "ü@garden.test"], "plain ASCII"),
        (["http://127.0.0.1/", "--header", "Host: x"], "cannot be set"),
        (["http://127.0.0.1/", "--delay", "-1"], "between 0 and 86400"),
        (["http://127.0.0.1/", "--ignore-robots"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_is_told_with_exit_code_2(words: list[str], says: str) -> None:
    done = call("fetch", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""


def test_control_characters_of_a_server_are_escaped(site: ScriptedSite) -> None:
    done = call("fetch", f"{site.url}/escape", *LOCAL)
    assert "X-Colour: \\x1b[31mred" in done.stdout


def test_nothing_is_left_behind(site: ScriptedSite, tmp_path: Path) -> None:
    done = run(tmp_path, "fetch", f"{site.url}/", *LOCAL)
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_is_no_error(site: ScriptedSite, tmp_path: Path) -> None:
    trawl = f"{sys.executable} -m trawl_project fetch {site.url}/ {' '.join(LOCAL)}"
    shell = ["bash", "-c", f"{trawl} | head -1; {trawl} >&-"]
    done = subprocess.run(shell, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{site.url}/\n"
    assert done.stderr == ""


def test_ctrl_c_ends_it_at_once_with_a_word(tmp_path: Path) -> None:
    asked: list[object] = []

    def hang(one) -> Answer:
        asked.append(one)
        time.sleep(20)
        return page()

    with scripted({"/": hang}) as site:
        words = [sys.executable, "-m", "trawl_project", "fetch", f"{site.url}/", *LOCAL]
        with subprocess.Popen(words, env=environment(tmp_path), stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: asked)
            since = time.monotonic()
            os.kill(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=15)
            assert time.monotonic() - since < 10
    assert process.returncode == 130
    assert said == "trawl: interrupted\n"
