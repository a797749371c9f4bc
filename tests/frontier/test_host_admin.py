"""Why a host waits, and until when, in the admin's list of hosts."""

import pytest
from django.test import Client

from tests.frontier.world import NOW, World

pytestmark = pytest.mark.django_db(databases=["default", "inbox"])


@pytest.fixture
def using(sqlite: str) -> str:
    return sqlite


def test_the_list_of_hosts_says_why_each_of_them_waits(frontier: World, admin_client: Client) -> None:
    frontier.add(*(f"https://{name}.test/{number}" for name in "abc" for number in (1, 2)))
    slow, asked, dead = frontier.visit(quota=1)
    frontier.leave(slow, gap_ms=7_500, reason="answers slowly")
    frontier.leave(asked, due_at=NOW + 60_000, reason="HTTP 429, asked to wait 30 days, shortened to 1 day")
    frontier.leave(dead, parked=True, parked_until=NOW + 3_600_000, failures=3, reason="connect: refused")
    shown = admin_client.get("/frontier/host/").content.decode()
    for text in ("answers slowly", "7.5 s", "HTTP 429, asked to wait 30 days, shortened to 1 day", "connect: refused"):
        assert text in shown
    assert "parked, it failed again and again" in shown
    assert "2027-01-15 09:00" in shown, "an hour after 1,800,000,000"
    [host] = admin_client.get("/frontier/host/?parked_until__isempty=0").context["cl"].result_list
    assert host.name == "c.test"
    its_page = admin_client.get(f"/frontier/host/{host.pk}/change/").content.decode()
    for text in ("connect: refused", "parked, it failed again and again", "2027-01-15 09:00"):
        assert text in its_page
