"""A campaign's form and its buttons."""

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from crawl import campaigns
from crawl.models import Campaign, Seed
from tests.web.conftest import Login

pytestmark = pytest.mark.django_db(databases=["default", "inbox"])

FORM = {
    "name": "orchard",
    "reach": "host",
    "delay_ms": "1000",
    "burst": "1",
    "url_rules": "{}",
    "contact": "",
    "scope_rules-TOTAL_FORMS": "1",
    "scope_rules-INITIAL_FORMS": "0",
    "scope_rules-0-position": "0",
    "scope_rules-0-action": "exclude",
    "scope_rules-0-pattern": "/calendar/",
    "credentials-TOTAL_FORMS": "0",
    "credentials-INITIAL_FORMS": "0",
}
ADD = "/crawl/campaign/add/"


def errors(browser: Client, **fields: Any) -> dict[str, list[str]]:
    """What the form refuses, by field."""
    answer = browser.post(ADD, FORM | fields)
    assert answer.status_code == 200, "it was taken"
    form = answer.context["adminform"].form
    return {name: [str(one) for one in found] for name, found in form.errors.items()}


def test_three_seeds_make_a_campaign_whose_page_can_start_it(login: Login) -> None:
    browser = login("operator")
    text = "# ours\nhttp://127.0.0.1:8080/\nHTTP://127.0.0.1:8080/b#top\t3\n\nhttp://localhost:8080/\n"
    answer = browser.post(ADD, FORM | {"new_seeds": text}, follow=True)
    made = Campaign.objects.get()
    assert answer.redirect_chain == [(f"/crawl/campaign/{made.pk}/change/", 302)]
    assert list(made.seeds.order_by("id").values_list("url", "weight")) == [
        ("http://127.0.0.1:8080/", 10),
        ("http://127.0.0.1:8080/b", 3),
        ("http://localhost:8080/", 10),
    ]
    page = answer.content.decode()
    assert "3 seeds" in page
    assert 'value="start"' in page
    assert made.scope_rules.get().pattern == "/calendar/"


def test_a_file_of_seeds_is_taken_too(login: Login) -> None:
    browser = login("operator")
    file = SimpleUploadedFile("../../etc/seeds.txt", b"\xef\xbb\xbfhttp://127.0.0.1:8080/x\r\nhttp://127.0.0.1:8080/y")
    browser.post(ADD, FORM | {"new_seeds": "http://127.0.0.1:8080/", "seed_file": file})
    assert Seed.objects.count() == 3


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("new_seeds", "", "a campaign needs at least one URL to start from"),
        ("new_seeds", "http://127.0.0.1:8080/\nexample.org", "line 2: 'example.org' is not a URL"),
        ("new_seeds", "http://127.0.0.1:8080/\tlots", "line 1: 'lots' is not a weight from 1 to 10"),
        ("new_seeds", "http://127.0.0.1:22/", "port 22 is not a web port"),
        ("new_seeds", "javascript://x/%0aalert(1)", "cannot be crawled"),
        ("new_seeds", "file:///etc/passwd", "cannot be crawled"),
        ("seed_file", SimpleUploadedFile("x", b"\xff\xfe\x00"), "it is not a UTF-8 text file"),
        ("ports", "22", "port 22 is not a web port"),
        ("burst", "0", "greater than or equal to 1"),
        ("headers", "no colon", "no colon"),
    ],
)
def test_what_cannot_be_is_told_at_its_field(login: Login, field: str, value: Any, told: str) -> None:
    seeds = {} if field == "new_seeds" else {"new_seeds": "http://127.0.0.1:8080/"}
    found = errors(login("operator"), **seeds, **{field: value})
    assert told in found[field][0]
    assert not Campaign.objects.exists()


def test_seeds_beyond_this_machine_need_a_contact(login: Login) -> None:
    browser = login("operator")
    found = errors(browser, new_seeds="https://example.org/")
    assert "site owners must be able to complain" in found["contact"][0]
    assert "is neither a mail address" in errors(browser, new_seeds="https://example.org/", contact="me")["contact"][0]
    browser.post(ADD, FORM | {"new_seeds": "https://example.org/", "contact": "me@example.org"})
    assert Campaign.objects.get().contact == "me@example.org"


@pytest.mark.parametrize("pattern", ["(", "(?=x)", r"(a)\1", "((a{100}){100}){100}"])
def test_a_pattern_that_cannot_be_used_is_refused_at_its_field(login: Login, pattern: str) -> None:
    answer = login("operator").post(
        ADD, FORM | {"new_seeds": "http://127.0.0.1:8080/", "scope_rules-0-pattern": pattern}
    )
    assert "is not a regular expression of RE2&#x27;s syntax" in answer.content.decode()
    assert not Campaign.objects.exists()


def test_each_state_offers_its_acts_and_they_do_what_they_say(login: Login, campaign: Campaign) -> None:
    browser = login("operator")

    def act(name: str) -> str:
        answer = browser.post(f"/crawl/campaign/{campaign.pk}/act/", {"act": name}, follow=True)
        campaign.refresh_from_db()
        return answer.content.decode()

    assert "garden is started." in act("start")
    assert campaign.status == "running"
    assert "there is nothing to" not in act("pause")
    assert campaign.status == "paused"
    assert "campaign &#x27;garden&#x27; is paused: there is nothing to pause" in act("pause")
    assert "garden goes on." in act("resume")
    assert "campaign &#x27;garden&#x27; is running, and not paused" in act("resume")
    assert 'value="start"' in act("stop")
    assert campaign.status == "stopped"
    act("delete")
    assert campaign.status == "stopped"
    assert campaign.runs.count() == 1
    campaigns.start(campaign)
    assert browser.get(f"/crawl/campaign/{campaign.pk}/act/?act=stop").status_code == 405
    campaign.refresh_from_db()
    assert campaign.status == "running"
    history = browser.get(f"/crawl/campaign/{campaign.pk}/history/").content.decode()
    assert "garden is stopped" in history


def test_seeds_that_are_added_later_keep_those_that_are_there(login: Login, campaign: Campaign) -> None:
    form = FORM | {"name": "garden", "contact": "me@example.org", "new_seeds": "http://127.0.0.1:8080/\nhttp://a.test/"}
    answer = login("operator").post(f"/crawl/campaign/{campaign.pk}/change/", form, follow=True)
    assert "1 seed added" in answer.content.decode()
    assert campaign.seeds.count() == 2
