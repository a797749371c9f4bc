"""The first page: what runs, how fast, and why not faster."""

import time
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from crawl import campaigns, samples
from crawl.models import Campaign, Run, Sample, Tally, Worker
from crawl.web.chart import chart
from frontier.models import DueHost, Host
from frontier.politeness import now_ms
from frontier.schedule import due_key
from tests.web.conftest import Login

pytestmark = pytest.mark.django_db(databases=["default", "inbox"])


def shown(browser: Client, path: str = "/") -> str:
    answer = browser.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def worker(visiting: int = 0, capacity: int = 100) -> None:
    Worker.objects.create(name="one", seen_at=now_ms(), capacity=capacity, visiting=visiting)


def waits(name: str, reason: str = "", in_ms: int = 60_000) -> None:
    host = Host.objects.create(name=name, active=True, reason=reason)
    DueHost.objects.create(id=due_key(host.pk, now_ms() + in_ms, 0), due_at=now_ms() + in_ms, gap_ms=1000)


def test_without_a_campaign_it_says_what_to_do(login: Login) -> None:
    assert "Make the first campaign" in shown(login("operator"))
    assert "Somebody with the right to change campaigns can make one" in shown(login("viewer"))


def test_a_campaign_that_was_not_started_is_not_forgotten(login: Login, campaign: Campaign) -> None:
    assert "None was started yet" in shown(login("viewer"))


def test_without_a_worker_it_says_how_to_start_one(login: Login, campaign: Campaign) -> None:
    campaigns.start(campaign)
    assert "No worker runs." in (page := shown(login("viewer")))
    assert "celery -A trawl worker" in page


def test_a_silent_beat_is_told(login: Login, campaign: Campaign) -> None:
    run = campaigns.start(campaign)
    worker()
    browser = login("viewer")
    assert "The beat is silent" not in shown(browser)
    Run.objects.filter(id=run.pk).update(clocked_at=now_ms() - 30_000)
    assert "The beat is silent" in (page := shown(browser))
    assert "celery -A trawl beat" in page


def test_why_hosts_wait_is_told_in_shares(login: Login, campaign: Campaign) -> None:
    campaigns.start(campaign)
    worker()
    for number in range(6):
        waits(f"polite{number}.test")
    waits("a.test", "HTTP 429, asked to wait 30 s")
    waits("b.test", "HTTP 429, asked to wait 2 hours")
    waits("c.test", "Crawl-delay 10 s")
    waits("d.test", "<script>alert(1)</script>")
    page = shown(login("viewer"), "/dashboard/")
    for share, cause in (
        (60, "their delay: one request at a time"),
        (20, "HTTP 429, asked to wait<"),
        (10, "Crawl-delay<"),
    ):
        assert f"{share} %</span> of the hosts that wait: {cause}" in page
    assert "<script>alert" not in page


def test_full_workers_are_told(login: Login, campaign: Campaign) -> None:
    campaigns.start(campaign)
    worker(capacity=0)
    Worker.objects.update(capacity=1)
    from frontier.models import Lease, LeasedHost

    lease = Lease.objects.create(ends_at=now_ms() + 60_000)
    LeasedHost.objects.create(id=(lease.pk << 31) | 7, due_at=0, gap_ms=0)
    waits("late.test", in_ms=-60_000)
    assert "All workers are full: 1 hosts are being visited, and 1 more are due." in shown(login("viewer"))


def test_the_part_that_refreshes_sends_who_is_logged_out_to_the_login(login: Login) -> None:
    answer = Client().get("/dashboard/")
    assert (answer.status_code, answer["HX-Redirect"]) == (204, "/login/?next=/")
    browser = login("viewer")
    assert "no-store" in browser.get("/dashboard/")["Cache-Control"]


def test_it_costs_the_same_however_many_hosts_wait(login: Login, campaign: Campaign) -> None:
    campaigns.start(campaign)
    waits("first.test")
    browser = login("viewer")
    shown(browser)

    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            shown(browser, "/dashboard/")
        return len(asked)

    before = queries()
    for number in range(50):
        waits(f"h{number}.test", f"reason {number}")
    assert queries() == before


def test_samples_stay_bounded_and_keep_both_ends(campaign: Campaign, tmp_path: Path) -> None:
    run = campaigns.start(campaign)
    made = [
        Sample(run=run, at=at, pages=at, bytes=0, ok=at, moved=0, refused=0, broken=0, failed=0, waiting=0)
        for at in range(samples.MOST + 1)
    ]
    Sample.objects.bulk_create(made)
    samples._thin(run)
    left = list(run.samples.order_by("at").values_list("at", flat=True))
    assert (left[0], left[-1]) == (0, samples.MOST)
    assert len(left) == samples.MOST // 2 + 1


def test_a_run_is_sampled_by_status_and_no_more_often_than_it_should_be(campaign: Campaign) -> None:
    run = campaigns.start(campaign)
    for kind, count in (
        ("http-200", 5),
        ("http-304", 2),
        ("http-404", 1),
        ("http-503", 4),
        ("dns", 3),
        ("robots-denied", 9),
    ):
        Tally.objects.create(run=run, kind=kind, count=count)
    samples.take()
    samples.take()
    one = Sample.objects.get()
    assert (one.ok, one.moved, one.refused, one.broken, one.failed) == (5, 2, 1, 4, 3)
    assert abs(one.at - time.time() * 1000) < 60_000
    Run.objects.update(busy_ms=100 * 3_600_000)
    run.refresh_from_db()
    assert samples.spacing_ms(run) == 1_000_000


def test_a_chart_has_rates_and_fits_its_frame() -> None:
    given = [
        Sample(at=at, pages=pages, ok=0, moved=0, refused=0, broken=0, failed=0)
        for at, pages in ((0, 0), (10_000, 50), (20_000, 150), (20_000, 150))
    ]
    drawn = chart(given, [("pages", "pages"), ("broken", "5xx")])
    assert [line.name for line in drawn.lines] == ["pages"]
    assert (drawn.highest, drawn.lines[0].latest, drawn.span) == (10.0, 10.0, "20 s")
    assert drawn.lines[0].points == "0,60.0 300.0,60.0 600.0,0.0"
    assert not chart(given[:1], [("pages", "pages")]).lines
