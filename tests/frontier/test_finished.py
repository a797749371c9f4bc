"""A campaign is not taken for finished while a URL of it moves between its queue, a visit and the pages that are tried
again: on a busy machine a crawl was once over between a page's first failure and its second try."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from django.db import transaction

from crawl import campaigns
from crawl.campaigns import feed_due, nothing_left
from crawl.models import Campaign, Page
from frontier.claim import Visit
from tests.frontier.world import LEASE_MS, World, interleave


@pytest.fixture
def using(sqlite: str) -> str:
    return sqlite


@pytest.fixture
def campaign(frontier: World) -> Iterator[Campaign]:
    one = Campaign.objects.create(name="one", status=Campaign.Status.RUNNING)
    yield one
    one.delete()
    Page.objects.all().delete()


def fails(frontier: World, visit: Visit) -> None:
    """The visit's URL fails in a way that may pass."""
    page = visit.urls[0].row
    with transaction.atomic():
        Page.objects.update_or_create(
            id=page,
            defaults={"hash": 1, "ref": visit.urls[0].ref, "depth": 0, "due_at": 1, "fetched_at": 1, "changed_at": 1},
        )
        frontier.leave(visit)


def is_claimed(frontier: World, campaign: Campaign) -> Callable[[], object]:
    return lambda: frontier.visit(campaign.pk)


def is_given_back(frontier: World, campaign: Campaign) -> Callable[[], object]:
    [visit] = frontier.visit(campaign.pk)
    return lambda: frontier.leave(visit, rows=[])


def loses_its_lease(frontier: World, campaign: Campaign) -> Callable[[], object]:
    frontier.visit(campaign.pk)

    def later() -> None:
        frontier.now += LEASE_MS + 1
        frontier.claim(limit=0)

    return later


def fails_for_now(frontier: World, campaign: Campaign) -> Callable[[], object]:
    [visit] = frontier.visit(campaign.pk)
    return lambda: fails(frontier, visit)


def is_tried_again(frontier: World, campaign: Campaign) -> Callable[[], object]:
    [visit] = frontier.visit(campaign.pk)
    fails(frontier, visit)
    return feed_due


def leads_to_another(frontier: World, campaign: Campaign) -> Callable[[], object]:
    [visit] = frontier.visit(campaign.pk)

    def answered() -> None:
        frontier.admit("https://a.test/next", campaign=campaign.pk)
        frontier.leave(visit)

    return answered


@pytest.mark.parametrize(
    "happens", [is_claimed, is_given_back, loses_its_lease, fails_for_now, is_tried_again, leads_to_another]
)
def test_nothing_is_over_while_a_url(frontier: World, campaign: Campaign, happens) -> None:
    for step in count(1):
        frontier.clear()
        Page.objects.all().delete()
        frontier.add("https://a.test/", campaign=campaign.pk)
        second = happens(frontier, campaign)
        said: list[bool] = []

        def ask(said: list[bool] = said) -> None:
            said.append(nothing_left(campaign))

        stopped = interleave(frontier.using, ask, step, second)
        assert said == [False], f"stopped before statement {step}"
        if not stopped:
            break
    assert step > 1


def test_a_campaign_is_over_when_its_last_url_is_done(frontier: World, campaign: Campaign) -> None:
    frontier.add("https://a.test/", campaign=campaign.pk)
    assert not nothing_left(campaign)
    [visit] = frontier.visit(campaign.pk)
    assert not nothing_left(campaign)
    frontier.leave(visit)
    assert nothing_left(campaign)


def test_pages_of_a_campaign_that_is_paused_keep_nobodys_from_being_tried_again(
    frontier: World, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Campaign.objects.create(name="other", status=Campaign.Status.PAUSED)
    frontier.add("https://a.test/1", "https://a.test/2", campaign=other.pk)
    frontier.add("https://b.test/1", campaign=campaign.pk)
    for visit in frontier.visit(campaign.pk, other.pk):
        for url in visit.urls:
            fails(frontier, visit._replace(urls=[url]))
    monkeypatch.setattr(campaigns, "FEED", 2)
    assert [feed_due(), feed_due()] == [1, 0]
    Campaign.objects.filter(id=other.pk).update(status=Campaign.Status.RUNNING)
    assert [feed_due(), feed_due()] == [2, 0]
    other.delete()
