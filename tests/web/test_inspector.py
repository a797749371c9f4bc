"""The URL inspector: a URL pasted, and all that is known of it."""

import re
from pathlib import Path

import pytest
from django.test import Client

from crawl import campaigns
from crawl.models import Campaign, Page
from crawl.pages import key_of
from frontier.admission import waiting
from frontier.merge import Merger
from frontier.models import QueuedUrl
from frontier.priority import SEED
from frontier.state import hash_seed
from frontier.urls import canonicalise, url_hash
from tests.cli.test_up import logs_in, up
from tests.crawl.installation import Installation
from tests.scripted import Answer, page, scripted
from tests.web.conftest import Login

pytestmark = pytest.mark.django_db(databases=["default", "inbox"])


def text_of(browser: Client, url: str, **more: str) -> str:
    answer = browser.get("/url/", {"url": url, **more})
    assert answer.status_code == 200
    return " ".join(re.sub(r"<[^>]*>", " ", answer.content.decode()).split())


def test_it_tells_the_canonical_form_the_verdicts_and_where_it_waits(login: Login, campaign: Campaign) -> None:
    campaigns.start(campaign)
    Merger("default").merge()
    told = text_of(login("viewer"), "HTTP://127.0.0.1:8080/./#top")
    assert "canonical http://127.0.0.1:8080/" in told
    assert "scope in (seed" in told
    assert "robots robots.txt is not fetched yet" in told
    assert "state waiting: priority 0 (seed), number 1 of 1 on its host" in told
    assert "Fetch it now" not in told, "a viewer changes nothing"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("example.org", "invalid"),
        ("javascript:alert(1)", "invalid"),
        ("http://a.test/\x00x", "invalid"),
        ("http://<script>alert(1)</script>/", "invalid"),
        ("https://elsewhere.test/x", "scope out (not within reach: host)"),
        ("http://127.0.0.1:8080/x", "state unknown: no link to it has been admitted"),
    ],
)
def test_whatever_is_pasted_gets_an_answer(login: Login, campaign: Campaign, url: str, told: str) -> None:
    assert told in text_of(login("operator"), url)


def test_without_campaigns_or_with_one_that_is_gone_it_still_answers(login: Login) -> None:
    browser = login("viewer")
    assert "There is no campaign yet" in text_of(browser, "http://a.test/")
    for key in ("7", "x", "9" * 40, "-1", "²"):
        assert "URL inspector" in text_of(browser, "http://a.test/", campaign=key)


def test_fetch_now_takes_an_unknown_url_first_and_a_known_page_again(login: Login, campaign: Campaign) -> None:
    browser = login("operator")

    def fetch(url: str) -> str:
        answer = browser.post("/url/", {"url": url, "campaign": str(campaign.pk)}, follow=True)
        return answer.content.decode()

    assert "start it first" in fetch("http://127.0.0.1:8080/new")
    campaigns.start(campaign)
    Merger("default").merge()
    assert "out of the campaign&#x27;s scope" in fetch("https://elsewhere.test/")
    assert "It is on its way" in fetch("http://127.0.0.1:8080/new")
    assert waiting()[0] == 1
    Merger("default").merge()
    assert [row.priority for row in QueuedUrl.objects.order_by("id")] == [SEED, SEED]
    assert not Page.objects.exists()


def test_what_is_kept_is_shown_as_text_and_never_as_a_page(tmp_path: Path) -> None:
    script = "<script>document.title = 'taken'</script>"
    site_pages = {"/": page("/b", head=f"<title>home</title>{script}"), "/b": Answer("b" * 200_000)}
    with scripted(site_pages) as site:
        one = Installation(tmp_path / "data")
        ran = one.run("crawl", f"{site.url}/", "--allow-network", "127.0.0.0/8", "--delay", "0", "--name", "site")
        assert ran.code == 0, ran.err
        with up(one.data, DJANGO_SUPERUSER_PASSWORD="right") as fleet:
            address = fleet.wait_for(r"open (http://\S+) ")[1]
            browser = logs_in(address, "admin", "right")
            assert browser
            shown = browser.open(f"{address}url/?url={site.url}/").read().decode()
            assert "&lt;script&gt;document.title" in shown
            assert script not in shown
            assert "HTTP/1.1 200 OK" in shown
            assert "<dt>title</dt><dd><div>home</div>" in shown
            long = browser.open(f"{address}url/?url={site.url}/b").read().decode()
            assert "There is more; only the beginning is shown." in long
            for file in (one.data / "warc").rglob("*.warc.gz"):
                file.unlink()
            gone = browser.open(f"{address}url/?url={site.url}/").read().decode()
            assert "What is kept" not in gone
            assert fleet.end() == 0


def test_a_known_page_is_due_again_at_once(login: Login, campaign: Campaign) -> None:
    campaigns.start(campaign)
    Merger("default").merge()
    row = QueuedUrl.objects.get()
    url = canonicalise("http://127.0.0.1:8080/")
    key = key_of(row.queue_id, url_hash(url.canonical, hash_seed()))
    QueuedUrl.objects.all().delete()
    Page.objects.create(
        id=(key.queue << 32) | key.first, hash=key.rest, ref=row.ref, depth=0, status=200, fetched_at=1, changed_at=1
    )
    answer = login("operator").post("/url/", {"url": url.fetch, "campaign": str(campaign.pk)}, follow=True)
    assert "It will be asked for again" in answer.content.decode()
    assert campaigns.feed_due() == 1
    assert QueuedUrl.objects.count() == 1
