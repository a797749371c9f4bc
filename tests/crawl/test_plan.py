"""What workers know of a running campaign: read anew when it has changed, and only then."""

from collections.abc import Callable

import pytest
from django.test import Client

from crawl import campaigns
from crawl.models import Campaign, Run
from crawl.plan import Plan, Plans
from frontier.admission import waiting
from frontier.urls import canonicalise

pytestmark = pytest.mark.django_db(databases=["default", "inbox"])


@pytest.fixture
def campaign() -> Campaign:
    one = Campaign.objects.create(name="one", contact="a@b.test", status=Campaign.Status.RUNNING)
    Run.objects.create(campaign=one)
    campaigns.add_seeds(one, [("https://a.test/", 10)])
    return one


def look(plans: Plans, campaign: Campaign) -> Plan:
    plans.forget()
    return plans.running()[campaign.pk]


def test_a_plan_stays_while_nothing_changes(campaign: Campaign, django_assert_max_num_queries) -> None:
    plans = Plans()
    before = look(plans, campaign)
    with django_assert_max_num_queries(3):  # the campaign, its rules, its credentials; not the seeds
        assert look(plans, campaign) is before
    campaigns.add_seeds(campaign, [("https://a.test/", 10)])
    assert look(plans, campaign) is before, "that seed was there already"


CHANGES: dict[str, Callable[[Campaign], object]] = {
    "a seed more": lambda one: campaigns.add_seeds(one, [("https://b.test/", 10)]),
    "a seed less": lambda one: one.seeds.get().delete(),
    "a field": lambda one: Campaign.objects.filter(id=one.pk).update(delay_ms=77),
    "a rule": lambda one: one.scope_rules.create(action="exclude", pattern="x"),
    "a password": lambda one: one.credentials.create(origin="https://a.test", user="u", password="p"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(campaign: Campaign, change: str) -> None:
    plans = Plans()
    before = look(plans, campaign)
    CHANGES[change](campaign)
    assert look(plans, campaign) is not before


def test_a_seed_that_is_deleted_in_the_admin_is_seen(campaign: Campaign, admin_client: Client) -> None:
    campaigns.add_seeds(campaign, [("https://c.test/", 10)])
    plans = Plans()
    assert look(plans, campaign).scope.verdict(canonicalise("https://a.test/x")).allowed
    seed = campaign.seeds.get(url="https://a.test/")
    form = {"action": "delete_selected", "_selected_action": seed.pk, "post": "yes"}
    answer = admin_client.post("/crawl/seed/", form)
    assert answer.status_code == 302, answer.content.decode()
    scope = look(plans, campaign).scope
    assert scope.verdict(canonicalise("https://c.test/x")).allowed
    assert not scope.verdict(canonicalise("https://a.test/x")).allowed


def test_many_seeds_go_to_the_frontier_in_parts(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "SEEDS", 3)
    campaigns.add_seeds(campaign, [(f"https://{number}.test/", 10) for number in range(7)])
    campaigns.start(campaign)
    assert not campaign.seeds.filter(admitted=False).exists()
    assert waiting()[0] == 8
