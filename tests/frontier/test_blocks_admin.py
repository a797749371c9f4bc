"""Domain blocks in the admin: adding, lifting and purging, with their effect on hosts."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.utils import timezone

from frontier import admin as pages
from frontier.blocking import FEW, block
from frontier.models import DomainBlock
from tests.frontier.world import World

LIST = "/frontier/domainblock/"

pytestmark = pytest.mark.django_db(databases=["default", "inbox"])


@pytest.fixture
def using(sqlite: str) -> str:
    """The admin works on the default database."""
    return sqlite


def act(client: Client, name: str, *domains: str, **more: str) -> Any:
    ids = list(DomainBlock.objects.filter(domain__in=domains).values_list("id", flat=True))
    return client.post(LIST, {"action": name, "_selected_action": ids, **more}, follow=True)


def said(response: Any) -> str:
    return " ".join(str(message) for message in get_messages(response.wsgi_request))


def add(client: Client, domain: str, **more: str) -> Any:
    form = {"domain": domain, "reason": "", "expires_at_0": "", "expires_at_1": "", **more}
    return client.post(f"{LIST}add/", form, follow=True)


def listed(client: Client, query: str = "") -> list[str]:
    return [row.domain for row in client.get(LIST + query).context["cl"].result_list]


def test_adding_a_block_tells_what_it_concerns(frontier: World, admin_client: Client) -> None:
    frontier.add("https://www.bücher.example/", "https://other.test/")
    answer = add(admin_client, "*.Bücher.example", reason="asked by mail")
    assert "1 hosts with 1 waiting URLs" in answer.content.decode()
    assert frontier.host("www.xn--bcher-kva.example").blocked
    assert DomainBlock.objects.get().domain == "xn--bcher-kva.example"
    assert "not a domain" in add(admin_client, "https://x/").content.decode()
    assert "already exists" in add(admin_client, "bücher.example").content.decode()


def test_changing_a_block_leaves_its_domain(frontier: World, admin_client: Client) -> None:
    add(admin_client, "a.test")
    frontier.add("https://a.test/")
    stored = DomainBlock.objects.get()
    past = timezone.now() - timedelta(1)
    form = {"domain": "b.test", "reason": "new", "expires_at_0": f"{past:%Y-%m-%d}", "expires_at_1": "00:00:00"}
    assert admin_client.post(f"{LIST}{stored.pk}/change/", form, follow=True).status_code == 200
    stored.refresh_from_db()
    assert (stored.domain, stored.reason) == ("a.test", "new")
    assert not frontier.host("a.test").blocked


def test_deleting_a_block_releases_its_hosts(frontier: World, admin_client: Client) -> None:
    frontier.add("https://a.test/")
    block(["a.test", "test"])
    stored = {row.domain: row for row in DomainBlock.objects.all()}
    answer = admin_client.post(f"{LIST}{stored['a.test'].pk}/delete/", {"post": "yes"}, follow=True)
    assert "stays blocked" in answer.content.decode()
    assert frontier.host("a.test").blocked
    admin_client.post(f"{LIST}{stored['test'].pk}/delete/", {"post": "yes"})
    assert [visit.name for visit in frontier.visit()] == ["a.test"]


def test_lifting_asks_first(frontier: World, admin_client: Client) -> None:
    frontier.add("https://a.test/", "https://b.test/")
    block(["a.test", "b.test", "c.test"])
    asked = act(admin_client, "lift", "a.test", "b.test").content.decode()
    assert "Lift 2 blocks?" in asked
    assert DomainBlock.objects.count() == 3
    assert "2 blocks are lifted" in act(admin_client, "lift", "a.test", "b.test", confirmed="yes").content.decode()
    assert [row.domain for row in DomainBlock.objects.all()] == ["c.test"]
    assert sorted(visit.name for visit in frontier.visit()) == ["a.test", "b.test"]


def test_purging_asks_first_and_tells_how_much_is_concerned(frontier: World, admin_client: Client) -> None:
    frontier.add(*(f"https://a.test/{n}" for n in range(5)), "https://www.a.test/", "https://b.test/")
    block(["a.test", "b.test"])
    asked = act(admin_client, "purge", "a.test").content.decode()
    assert "Delete 2 hosts with 6 waiting URLs?" in asked
    assert "cannot be undone" in asked
    assert len(frontier.urls()) == 7
    done = act(admin_client, "purge", "a.test", confirmed="yes").content.decode()
    assert "6 waiting URLs were deleted" in done
    assert frontier.urls() == ["https://b.test/"]


def test_a_long_purge_ends_and_says_so(frontier: World, admin_client: Client, monkeypatch) -> None:
    frontier.add(*(f"https://a.test/{n}" for n in range(5)))
    block(["a.test"])
    monkeypatch.setattr("frontier.purge.URLS", 2)
    monkeypatch.setattr(pages, "PURGE_SECONDS", 0)
    done = act(admin_client, "purge", "a.test", confirmed="yes").content.decode()
    assert "There is more" in done
    assert "2 waiting URLs were deleted" in done


def test_too_many_at_once_are_refused(frontier: World, admin_client: Client, monkeypatch) -> None:
    names = [f"d{n}.test" for n in range(FEW + 1)]
    block(names)
    assert "at most 20 blocks" in act(admin_client, "purge", *names, confirmed="yes").content.decode()
    monkeypatch.setattr(pages, "MOST_LIFTED", 20)
    assert "at most 20 blocks" in act(admin_client, "lift", *names, confirmed="yes").content.decode()
    assert DomainBlock.objects.count() == len(names)


def test_nobody_without_the_right_to_delete_lifts_or_purges(frontier, client: Client, django_user_model) -> None:
    from django.contrib.auth.models import Permission

    viewer = django_user_model.objects.create_user("viewer", password="x", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_domainblock"))
    client.force_login(viewer)
    frontier.add("https://a.test/")
    block(["a.test"])
    assert "Purge" not in client.get(LIST).content.decode()
    for name in ("lift", "purge"):
        act(client, name, "a.test", confirmed="yes")
    assert DomainBlock.objects.count() == len(frontier.urls()) == 1


def test_the_list_filters_by_end_and_counts_only_so_far(frontier: World, admin_client: Client, monkeypatch) -> None:
    now = timezone.now()
    block(["never.test"])
    block(["later.test"], expires_at=now + timedelta(1))
    block(["over.test"], expires_at=now - timedelta(1))
    assert listed(admin_client) == ["over.test", "later.test", "never.test"]
    assert listed(admin_client, "?end=never") == ["never.test"]
    assert listed(admin_client, "?end=later") == ["later.test"]
    assert listed(admin_client, "?end=over") == ["over.test"]
    assert listed(admin_client, "?q=lat") == ["later.test"]
    monkeypatch.setattr("frontier.bounded.MOST", 2)
    assert admin_client.get(LIST).context["cl"].result_count == 2
