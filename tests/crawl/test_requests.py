"""What the servers of a crawl see of it: headers, credentials, cookies, each where it belongs."""

import base64
import gzip
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.urls import reverse

from crawl.models import Campaign
from tests.crawl.running import LOCAL, crawl, environment
from tests.scripted import Answer, Asked, Script, page, redirect, scripted
from trawl_project.version import AGENT, VERSION

SECRET = base64.b64encode(b"me:hush-hush").decode()


def test_the_bytes_of_a_request(tmp_path: Path) -> None:
    """No client hints, nothing else that was not meant: the whole of it, as a server gets it."""
    seen: list[bytes] = []

    def serve() -> None:
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                seen.append(connection.recv(10_000))
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        crawl(tmp_path, f"http://127.0.0.1:{port}/p?q=1", *LOCAL, "--contact", "https://me.test/bot")
        thread.join(10)
    agent = f"User-Agent: {AGENT}/{VERSION} (+https://me.test/bot)"
    robots, asked = (request.decode().split("\r\n") for request in seen)
    assert robots == [
        "GET /robots.txt HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        *(agent, "Accept: text/plain,*/*;q=0.5", "Accept-Encoding: gzip", "", ""),
    ]
    assert asked == [
        "GET /p?q=1 HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        agent,
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "Accept-Language: en,*;q=0.5",
        *("Accept-Encoding: gzip, deflate, br, zstd", "", ""),
    ]


def test_headers_of_a_campaign_go_with_every_request_and_are_remembered(tmp_path: Path) -> None:
    with scripted({"/": page("/a")}) as site:
        headers = ("--header", "X-Who: me", "--header", "accept-language: de")
        crawl(tmp_path, f"{site.url}/", *LOCAL, *headers)
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--again")
    assert len(site.asked) >= 5
    assert all(asked.headers["x-who"] == "me" for asked in site.asked)
    assert all(asked.headers["accept-language"] == "de" for asked in site.asked)


def test_credentials_go_to_their_own_host_alone_and_are_shown_nowhere(tmp_path: Path) -> None:
    auth = tmp_path / "auth"
    with scripted({"/": page()}) as other, scripted({}) as site:
        site.script = {"/": page("/away", f"{other.url}/link"), "/away": redirect(f"{other.url}/")}
        auth.write_text(f"{site.url}=me:hush-hush\n")
        data = tmp_path / "data"
        ran = crawl(
            data, f"{site.url}/", *LOCAL, "--scope", "any", "--ports", "any", "--auth-file", str(auth), "--cookies"
        )
    assert {asked.headers.get("authorization") for asked in site.asked} == {f"Basic {SECRET}"}
    assert len(other.asked) >= 3
    assert not any("authorization" in asked.headers or "cookie" in asked.headers for asked in other.asked)
    stored = b"".join(gzip.decompress(file.read_bytes()) for file in data.glob("warc/*/*.gz"))
    assert stored.count(b"Authorization: (withheld)") == 2
    assert ran.told["status"]
    log = data / "crawl.log"
    told = ran.out.encode() + ran.err.encode() + stored + (log.read_bytes() if log.exists() else b"")
    assert b"hush-hush" not in told
    assert SECRET.encode() not in told


def test_credentials_on_the_command_line_are_left_out_of_the_command_that_goes_on(tmp_path: Path) -> None:
    with scripted({"/": page()}) as site:
        command = [sys.executable, "-m", "trawl_project", "crawl", "--data", str(tmp_path), "--delay", "0"]
        command += [f"{site.url}/", *LOCAL, "--auth", f"{site.url}=me:hush-hush"]
        for _ in range(2):
            ran = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=90, check=True)
            assert "hush-hush" not in ran.stdout + ran.stderr
    assert site.asked[0].headers["authorization"] == f"Basic {SECRET}"


def test_cookies_are_off_unless_asked_for(tmp_path: Path) -> None:
    with scripted({"/": Answer("<a href=/a>", headers={"Set-Cookie": "id=1"})}) as site:
        crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert [asked.path for asked in site.asked] == ["/robots.txt", "/", "/a"]
    assert not any("cookie" in asked.headers for asked in site.asked)


def test_cookies_are_kept_for_their_host(tmp_path: Path) -> None:
    with scripted({"/": page()}) as other, scripted({}) as site:
        site.script = {"/": Answer(f"<a href=/a></a><a href={other.url}/>", headers={"Set-Cookie": "id=1; Path=/"})}
        crawl(tmp_path, f"{site.url}/", *LOCAL, "--cookies", "--scope", "any", "--ports", "any")
    assert {asked.path: asked.headers.get("cookie") for asked in site.asked} == {
        "/robots.txt": None,
        "/": None,
        "/a": "id=1",
    }
    assert len(other.asked) == 2
    assert not any("cookie" in asked.headers for asked in other.asked)


def gate(asked: Asked) -> Answer:
    if "seen=1" in asked.headers.get("cookie", ""):
        return page()
    return Answer(status=301, headers={"Location": asked.path, "Set-Cookie": "seen=1; Path=/"})


def check(asked: Asked) -> Answer:
    return redirect("/far")


def far(asked: Asked) -> Answer:
    if "far=1" in asked.headers.get("cookie", ""):
        return page()
    return Answer(status=302, headers={"Location": "/check", "Set-Cookie": "far=1; Path=/"})


def ever(asked: Asked) -> Answer:
    return Answer(status=301, headers={"Location": asked.path, "Set-Cookie": f"t={asked.time}; Path=/"})


GATES: Script = {"/": page("/gate", "/far", "/ever"), "/gate": gate, "/far": far, "/check": check, "/ever": ever}


def test_a_redirect_to_itself_that_sets_a_cookie_gets_one_more_try(tmp_path: Path) -> None:
    with scripted(GATES) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL, "--cookies")
    assert site.paths() == ["/", "/gate", "/gate", "/far", "/check", "/far", "/ever", "/ever"]
    assert ran.told["status"]["200"] == 3
    assert {error["kind"]: error["count"] for error in ran.told["errors"]} == {"redirect-loop": 1}


def test_without_cookies_such_a_redirect_is_a_loop_at_once(tmp_path: Path) -> None:
    with scripted(GATES) as site:
        ran = crawl(tmp_path, f"{site.url}/", *LOCAL)
    assert site.paths() == ["/", "/gate", "/far", "/check", "/ever"]
    assert {error["kind"]: error["count"] for error in ran.told["errors"]} == {"redirect-loop": 3}


@pytest.mark.django_db
def test_the_admin_takes_a_password_and_never_shows_it(admin_client) -> None:
    campaign = Campaign.objects.create(name="secrets")
    campaign.credentials.create(origin="https://a.test", user="me", password="hush-hush")
    where = reverse("admin:crawl_campaign_change", args=[campaign.pk])
    shown = admin_client.get(where)
    assert shown.status_code == 200
    assert "https://a.test" in shown.text
    for page_shown in (shown, admin_client.get(reverse("admin:crawl_campaign_changelist"))):
        assert "hush-hush" not in page_shown.text
    form = {name: value for name, value in shown.context["adminform"].form.initial.items() if value is not None}
    form |= {"url_rules": "{}", "headers": "X-Key: 1"}
    form |= {"new_seeds": "http://127.0.0.1:8080/", "scope_rules-TOTAL_FORMS": 0, "scope_rules-INITIAL_FORMS": 0}
    row = campaign.credentials.get()
    form |= {"credentials-TOTAL_FORMS": 1, "credentials-INITIAL_FORMS": 1, "credentials-0-id": row.pk}
    form |= {"credentials-0-campaign": campaign.pk, "credentials-0-origin": "a.test", "credentials-0-user": "you"}
    saved = admin_client.post(where, {**form, "credentials-0-password": ""})
    assert saved.status_code == 302, saved.context["errors"]
    row.refresh_from_db()
    assert (row.origin, row.user, row.password) == ("https://a.test", "you", "hush-hush")
    refused = admin_client.post(where, {**form, "headers": "Host: x", "credentials-0-password": ""})
    assert "the header Host cannot be set" in refused.text
