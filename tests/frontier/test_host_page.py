"""A host's page: its delay, its queue by level, and the acts."""

import pytest
from django.test import Client

from frontier.models import Host
from tests.frontier.world import NOW, World
from tests.web.people import in_role

pytestmark = pytest.mark.django_db(databases=["default", "inbox"])


@pytest.fixture
def using(sqlite: str) -> str:
    return sqlite


@pytest.fixture
def host(frontier: World) -> Host:
    """A host that is parked, with two URLs of a level."""
    frontier.add("https://a.test:8443/1", "https://a.test:8443/2", "https://a.test:8443/3")
    [visit] = frontier.visit(quota=1)
    frontier.leave(visit, parked=True, parked_until=NOW + 3_600_000, failures=3, reason="connect: refused")
    return Host.objects.get()


def change(browser: Client, host: Host, **fields: str) -> str:
    return browser.post(f"/frontier/host/{host.pk}/change/", fields, follow=True).content.decode()


def test_it_shows_what_waits_by_level_and_a_parked_host_can_be_visited_now(host: Host) -> None:
    browser = in_role("operator")
    page = browser.get(f"/frontier/host/{host.pk}/change/").content.decode()
    assert "links from a seed" in page
    assert 'href="/frontier/domainblock/add/?domain=a.test"' in page
    assert "Visit now" in page
    woken = browser.post(f"/frontier/host/{host.pk}/wake/", follow=True).content.decode()
    host.refresh_from_db()
    assert (host.active, host.parked_until) == (True, None)
    assert "is visited when its delay, and what it asked for, is over" in woken
    assert "Visit now" not in woken
    assert browser.get(f"/frontier/host/{host.pk}/wake/").status_code == 405


def test_a_blocked_host_stays_where_it_is(host: Host) -> None:
    Host.objects.update(blocked=True)
    told = in_role("operator").post(f"/frontier/host/{host.pk}/wake/", follow=True).content.decode()
    assert "cannot be visited: it is blocked" in told
    assert not Host.objects.get().active


def test_its_delay_is_set_and_the_rest_of_the_row_is_left_to_the_crawler(host: Host) -> None:
    change(in_role("operator"), host, delay_ms="7000", reason="mine", failures="0")
    host.refresh_from_db()
    assert (host.delay_ms, host.reason, host.failures) == (7000, "connect: refused", 3)
    assert "Enter a whole number" in change(in_role("administrator"), host, delay_ms="much")


def test_a_viewer_sees_it_and_has_no_button(host: Host) -> None:
    browser = in_role("viewer")
    page = browser.get(f"/frontier/host/{host.pk}/change/").content.decode()
    assert "connect: refused" in page
    assert "Visit now" not in page
    assert browser.post(f"/frontier/host/{host.pk}/wake/").status_code == 403
