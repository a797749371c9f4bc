"""trawl url --campaign: where a URL stands, at every stop of its way through the frontier."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections

from crawl.lookup import CampaignLookup
from crawl.models import Campaign, Fetch, Page, RobotsFile, Run, WarcFile
from crawl.pages import key_of
from frontier.admission import Link, admit, recent
from frontier.claim import claim, open_visits
from frontier.complete import Release, finish, settle
from frontier.merge import Merger
from frontier.models import DomainBlock, Queue, QueuedUrl
from frontier.priority import HELD
from frontier.seen.index import SeenIndex
from frontier.seen.runs import DamagedRun
from frontier.state import hash_seed, seen_directory
from frontier.urls import canonicalise, to_reference, url_hash
from tests.cli.test_lookup_url import records, run
from tests.site import serve

pytestmark = pytest.mark.django_db(databases=["default", "inbox"])
NOW = 1_800_000_000_000
URL = "http://a.test/x?b=1&a=2"


@pytest.fixture(autouse=True)
def empty(settings: Any, tmp_path: Path, db: None) -> Iterator[None]:
    settings.DATA_DIR = tmp_path
    hash_seed.cache_clear()
    recent.cache_clear()
    yield
    hash_seed.cache_clear()
    recent.cache_clear()


@pytest.fixture
def campaign() -> Campaign:
    made = Campaign.objects.create(name="c", reach="host", max_depth=3)
    made.seeds.create(url="http://a.test/")
    made.scope_rules.create(action="exclude", pattern="/calendar/")
    return made


def admitted(campaign: Campaign, *urls: str, level: int = 5, depth: int = 1) -> None:
    admit(campaign.pk, [Link(canonicalise(url), level, depth) for url in urls])


def merged(campaign: Campaign, *urls: str, level: int = 5, depth: int = 1) -> None:
    admitted(campaign, *urls, level=level, depth=depth)
    Merger("default").merge()


def visited(url: str, **values: Any) -> Page:
    """The page of a queued URL that was fetched, as the writer stores it."""
    known = canonicalise(url)
    queue = Queue.objects.get(host__name=known.host)
    key = key_of(queue.pk, url_hash(known.canonical, hash_seed()))
    waiting = QueuedUrl.objects.filter(ref=to_reference(known.fetch, known.host))
    finish(queue.campaign, waiting.values_list("id", flat=True))
    fields = {"hash": key.rest, "ref": to_reference(known.fetch, known.host), "depth": 2, "status": 200}
    times = {"fetched_at": NOW, "changed_at": NOW}
    page: Page = Page.objects.create(id=(key.queue << 32) + key.first, **(fields | times | values))
    return page


def asked(url: str, *words: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("url", url, "--campaign", "c", "--json", *words, stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def told(url: str) -> str:
    out = io.StringIO()
    call_command("url", url, "--campaign", "c", stdout=out)
    return out.getvalue()


def test_a_url_nobody_linked_to_is_unknown(campaign: Campaign) -> None:
    found = asked(URL)
    assert (found["state"], found["host_state"], found["robots"]) == ("unknown", None, None)
    assert found["key"] == url_hash("http://a.test/x?a=2&b=1", hash_seed()).hex()
    assert len(found["key"]) == 24
    assert "robots.txt is not fetched yet" in told(URL)
    assert not seen_directory().exists()


def test_a_link_that_waits_for_the_merge_is_on_its_way(campaign: Campaign) -> None:
    other = Campaign.objects.create(name="other")
    admitted(other, URL)
    admitted(campaign, "http://b.test/x?b=1&a=2", *(f"http://a.test/{n}" for n in range(500)))
    assert asked(URL)["state"] == "unknown"
    admitted(campaign, URL, level=6, depth=2)
    found = asked("http://a.test/x?a=2&b=1")
    assert found["state"] == "inbox"
    assert (found["inbox"]["level"], found["inbox"]["depth"]) == (6, 2)
    assert "on its way: in the inbox since" in told(URL)


def test_a_queued_url_has_its_place_in_the_order_of_taking(campaign: Campaign) -> None:
    merged(campaign, "http://a.test/first", "http://a.test/second", URL)
    merged(campaign, "http://a.test/seed", level=0)
    found = asked(URL)
    assert found["state"] == "waiting"
    assert found["waiting"] == {"level": 5, "depth": 1, "fetch": URL, "position": 4, "of": 4}
    assert "number 4 of 4 on its host, depth 1" in told(URL)


def test_a_queued_url_is_found_by_any_of_its_spellings(campaign: Campaign) -> None:
    merged(campaign, "http://A.test/%7ex?b=1&a=%2f")
    found = asked("http://a.test/~x?a=%2F&b=1")
    assert (found["state"], found["asked_for_as"]) == ("waiting", "http://a.test/%7ex?b=1&a=%2f")
    assert "first seen, and asked for, as http://a.test/%7ex?b=1&a=%2f" in told("http://a.test/~x?a=%2F&b=1")


def test_all_spellings_of_a_url_in_one_batch_get_the_same_answer(campaign: Campaign) -> None:
    merged(campaign, "http://a.test/%7ex?b=1&a=2", "http://a.test/y")
    spellings = ["http://a.test/~x?a=2&b=1", "http://a.test/%7ex?b=1&a=2", "http://a.test/y", "http://a.test/z"]
    found = CampaignLookup(campaign).look([canonicalise(url) for url in spellings])
    assert [one.state for one in found] == ["waiting", "waiting", "waiting", "unknown"]
    assert [one.url.fetch for one in found] == spellings


def test_a_held_url_is_told_apart(campaign: Campaign) -> None:
    merged(campaign, URL, level=HELD)
    found = asked(URL)
    assert (found["state"], found["waiting"]["position"], found["host_state"]["held"]) == ("held", None, 1)


def test_a_fetched_page_is_told_with_its_history_and_where_its_bytes_are(campaign: Campaign) -> None:
    merged(campaign, URL)
    page = visited(URL, title="Tulips", digest="sha1:ABC", length=123)
    warc = WarcFile.objects.create(name="c-00000.warc.gz", directory="/warc/1")
    for number, status in ((1, 500), (2, 200)):
        made = Run.objects.create(campaign=campaign, number=number)
        at = NOW + number
        Fetch.objects.create(
            page=page, run_id=made.pk, at=at, status=status, ms=7, length=123, warc_id=warc.pk, warc_offset=456
        )
    found = asked("http://a.test/x?a=2&b=1")
    assert found["state"] == "fetched"
    assert found["page"]["title"] == "Tulips"
    assert found["page"]["fetched_at"] == "2027-01-15T08:00:00.000Z"
    assert [(row["run"], row["status"]) for row in found["history"]] == [(2, 200), (1, 500)]
    assert (found["history"][0]["warc"], found["history"][0]["offset"]) == ("/warc/1/c-00000.warc.gz", 456)
    assert "/warc/1/c-00000.warc.gz at 456" in told(URL)


def test_a_page_that_was_never_answered_has_failed_and_says_when_it_is_tried_again(campaign: Campaign) -> None:
    merged(campaign, URL)
    visited(URL, status=0, error="timeout", failures=1, due_at=NOW + 5000)
    assert asked(URL)["state"] == "failed"
    assert "not fetched: timeout" in told(URL)
    assert "2027-01-15T08:00:05.000Z" in told(URL)


def test_a_page_that_is_queued_again_waits_and_keeps_its_history(campaign: Campaign) -> None:
    merged(campaign, URL)
    page = visited(URL)
    assert asked(URL)["state"] == "fetched"
    QueuedUrl.objects.create(id=(page.queue_id << 32) | (3 << 28) | 7, depth=1, ref=page.ref)
    Page.objects.update(queued=True)
    found = asked(URL)
    assert (found["state"], found["page"]["status"], found["waiting"]["level"]) == ("waiting", 200, 3)


def test_a_redirect_target_is_found_though_the_seen_index_has_no_entry(campaign: Campaign) -> None:
    merged(campaign, "http://a.test/other")
    visited(URL)
    assert asked(URL)["state"] == "fetched"


def test_a_key_without_a_place_is_known_and_the_repair_is_named(campaign: Campaign) -> None:
    merged(campaign, URL)
    QueuedUrl.objects.all().delete()
    found = asked(URL)
    assert found["state"] == "known"
    assert "trawl rebuild_seen" in found["note"]


def test_a_damaged_seen_index_is_told_and_the_queues_still_answer(campaign: Campaign) -> None:
    merged(campaign, URL)
    for run_file in seen_directory().glob("url-*.run"):
        run_file.unlink()
    found = asked(URL)
    assert found["state"] == "waiting"
    assert "trawl rebuild_seen" in found["note"]
    assert asked("http://a.test/never")["state"] == "unknown"


@pytest.mark.parametrize("error", [DamagedRun("gone"), FileNotFoundError("gone")])
def test_a_merge_that_replaces_files_in_this_moment_is_no_damage(campaign, monkeypatch, error) -> None:
    merged(campaign, URL)
    true_refresh, failures = SeenIndex.refresh, [error, error]

    def refresh(index: SeenIndex, verify: bool = True) -> None:
        if failures:
            raise failures.pop()
        true_refresh(index, verify)

    monkeypatch.setattr(SeenIndex, "refresh", refresh)
    found = asked(URL)
    assert (found["state"], found["note"], failures) == ("waiting", "", [])


def test_looking_leaves_the_seen_index_as_it_is(campaign: Campaign) -> None:
    merged(campaign, URL)
    stray = seen_directory() / "url-0.run"  # as a merge in another process has just written it
    stray.write_bytes(b"new")
    asked(URL)
    assert stray.exists()
    (seen_directory() / "store").unlink()
    assert "seen index is damaged" in asked(URL)["note"]
    assert not (seen_directory() / "store").exists()


@pytest.mark.parametrize(
    ("url", "allowed", "rule"),
    [
        ("http://a.test/", True, "seed"),
        ("http://a.test/x", True, "reach: host"),
        ("http://b.test/x", False, "not within reach: host"),
        ("http://a.test/calendar/1", False, "exclude /calendar/"),
    ],
)
def test_the_scope_names_the_rule_that_decides(campaign: Campaign, url: str, allowed: bool, rule: str) -> None:
    assert asked(url)["scope"] == {"allowed": allowed, "rule": rule, "depth": None}


def test_the_depth_at_which_a_url_was_found_counts_for_its_scope(campaign: Campaign) -> None:
    merged(campaign, URL, depth=4)
    assert asked(URL)["scope"] == {"allowed": False, "rule": "depth 4 is beyond 3", "depth": 4}


def test_the_stored_robots_txt_gives_its_verdict_on_the_form_that_is_asked_for(campaign: Campaign) -> None:
    merged(campaign, URL)
    body = b"User-agent: trawl\nDisallow: /x?b\nCrawl-delay: 3\n"
    RobotsFile.objects.create(origin="http://a.test", status=200, body=body, fetched_at=NOW, expires_at=1)
    assert asked("http://a.test/x?a=2&b=1")["robots"] == {
        "allowed": False,
        "rule": "Disallow: /x?b",
        "line": 2,
        "group": "trawl",
        "crawl_delay": 3.0,
        "status": 200,
        "fetched_at": "2027-01-15T08:00:00.000Z",
        "expired": True,
    }
    assert "disallowed (line 2: Disallow: /x?b, group trawl; fetched 2027-01-15T08:00:00.000Z, to be" in told(URL)


def test_a_host_tells_its_lease_its_clock_and_why_it_waits(campaign: Campaign) -> None:
    merged(campaign, URL)
    assert asked(URL)["host_state"]["active"]
    [taken] = claim(1, lease_ms=60_000)
    open_visits(taken, [campaign.pk], lambda gap, delay: 1, lease_ms=60_000)
    assert asked(URL)["host_state"]["leased_until"] > "2026"
    assert "leased to a worker, the lease ends" in told(URL)
    [host] = taken.hosts
    parked = Release(host, taken.token, NOW, 1_000, 3, "connect: refused", parked=True, parked_until=NOW)
    settle([], [parked])
    assert "parked until 2027-01-15T08:00:00.000Z, or the next start of a campaign; 1 waiting" in told(URL)
    assert "connect: refused (3 visits failed in a row)" in told(URL)
    DomainBlock.objects.create(domain="test")
    assert asked("http://new.test/")["blocked"]
    assert "blocked" in told(URL)


def test_the_site_rules_of_the_campaign_are_applied(campaign: Campaign) -> None:
    Campaign.objects.update(url_rules={"tracking": True})
    assert asked("http://a.test/?utm_source=x")["canonical"] == "http://a.test/"
    with pytest.raises(CommandError, match="brings its own site rules"):
        asked(URL, "--rules", "www")


def test_a_campaign_that_is_not_there_is_told_with_those_that_are(campaign: Campaign) -> None:
    for name in ("d", "\udcff", "a\0b", ""):
        with pytest.raises(CommandError, match="there are 'c'") as caught:
            call_command("url", URL, "--campaign", name)
        assert caught.value.returncode == 2


@pytest.mark.parametrize("broken", [{"reach": "host", "pattern": "("}, {"url_rules": {"nonsense": True}}])
def test_a_campaign_that_cannot_be_used_is_told(campaign: Campaign, broken: dict[str, Any]) -> None:
    if "pattern" in broken:
        campaign.scope_rules.create(action="include", pattern="(")
    else:
        Campaign.objects.update(**broken)
    with pytest.raises(CommandError, match="campaign 'c' cannot be used"):
        asked(URL)


def test_a_batch_of_lines_needs_few_queries(campaign: Campaign) -> None:
    merged(campaign, *(f"http://h{n % 20}.test/{n}" for n in range(200)))
    lookup = CampaignLookup(campaign)
    urls = [canonicalise(f"http://h{n % 20}.test/{n}") for n in range(400)]
    with connections["default"].execute_wrapper(count := Counting()):
        states = [found.state for found in lookup.look(urls, details=False)]
    assert states == ["waiting"] * 200 + ["unknown"] * 200
    assert count.queries <= 8 + 2 * 20


class Counting:
    def __init__(self) -> None:
        self.queries = 0

    def __call__(self, execute: Any, *arguments: Any) -> Any:
        self.queries += 1
        return execute(*arguments)


def test_after_a_real_crawl_every_url_is_where_it_should_be(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "robots.txt").write_text("User-agent: *\nDisallow: /private\n")
    (folder / "index.html").write_text("<title>Home</title><a href='a.html?b=1&a=2'>a</a><a href=private>p</a>")
    (folder / "a.html").write_text("<a href=/missing>m</a>")
    with serve(folder) as site:
        words = ("--name", "real", "--allow-network", "127.0.0.0/8", "--delay", "0")
        assert run(tmp_path, "crawl", site.url, *words).returncode == 0
    lines = "".join(f"{site.url}{path}\n" for path in ("", "a.html?a=2&b=1", "private", "missing", "never"))
    done = run(tmp_path, "url", "-", "--campaign", "real", "--json", stdin=lines.encode())
    home, page, private, missing, never = records(done)
    assert [found["state"] for found in (home, page, private, missing, never)] == [
        *("fetched", "fetched", "failed", "fetched", "unknown")
    ]
    assert home["scope"] == {"allowed": True, "rule": "seed", "depth": 0}
    assert home["page"]["title"] == "Home"
    assert Path(home["history"][0]["warc"]).stat().st_size > home["history"][0]["offset"] > 0
    assert page["asked_for_as"] == f"{site.url}a.html?b=1&a=2"
    assert (private["page"]["error"], private["robots"]["line"]) == ("robots-denied", 2)
    assert missing["page"]["status"] == 404
    plain = run(tmp_path, "url", "-", "--campaign", "real", stdin=lines.encode()).stdout.splitlines()
    assert plain[2].split("\t")[4:] == ["failed", "in", "disallowed"]
