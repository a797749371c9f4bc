"""The numbers that are shown while a campaign runs."""

import pytest

from crawl.live import line
from crawl.models import Campaign, Run
from crawl.progress import standing

pytestmark = pytest.mark.django_db(databases=["default", "inbox"])


def test_what_was_not_to_be_asked_for_is_no_error() -> None:
    campaign = Campaign.objects.create(name="one", status=Campaign.Status.RUNNING)
    run = Run.objects.create(campaign=campaign)
    assert "forbidden" not in line(standing(campaign), 1.5)
    for kind, count in (("robots-denied", 5), ("blocked-domain", 2), ("dns", 1), ("http-404", 9)):
        run.tallies.create(kind=kind, count=count)
    now = standing(campaign)
    assert (now.errors, now.forbidden) == (1, 7)
    assert ", 1 error, 7 forbidden" in line(now, 1.5)
