"""Who may do what: roles, and what a page lets through that it should not."""

from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from crawl import campaigns
from crawl.models import Campaign, Page, RobotsFile, Run, Tally, Worker
from crawl.roles import make_roles
from frontier.models import DomainBlock, Host, Queue
from frontier.politeness import now_ms
from tests.web.conftest import Login

pytestmark = pytest.mark.django_db(databases=["default", "inbox"])

# What looking, logging in and logging out write by themselves.
OWN = {"django_session", "axes_accessattempt", "axes_accesslog", "axes_accessfailurelog"}
XSS = "<script>alert('x')</script>"
ZEROS = {"depth": 0, "fetched_at": 0, "changed_at": 0}


def paths(resolver: URLResolver, prefix: str = "/") -> list[str]:
    """Every address of the site, with 1 in the place of each argument."""
    found = []
    for entry in resolver.url_patterns:
        text = str(entry.pattern)
        while "<" in text:
            text = text[: text.index("<")] + "1" + text[text.index(">") + 1 :]
        if isinstance(entry, URLResolver):
            found += paths(entry, prefix + text)
        elif isinstance(entry, URLPattern) and not text.startswith("^"):
            found.append(prefix + text)
    return found


def everything() -> dict[str, list[Any]]:
    """All rows of all tables, but those that browsing writes."""
    rows = {}
    with connection.cursor() as cursor:
        for table in sorted(set(connection.introspection.table_names(cursor)) - OWN):
            cursor.execute(f'SELECT * FROM "{table}"')
            rows[table] = sorted(map(repr, cursor.fetchall()))
    return rows


def fill(campaign: Campaign) -> None:
    """A row of everything that has a page, with the id 1 where it can."""
    run = campaigns.start(campaign)
    host = Host.objects.create(name=f"{XSS}.test", reason=XSS)
    queue = Queue.objects.create(host=host, campaign=campaign.pk)
    Page.objects.create(id=(queue.pk << 32) | 1, hash=1, ref=f"/{XSS}", title=XSS, error="dns", detail=XSS, **ZEROS)
    RobotsFile.objects.create(origin="http://a.test", status=200, body=XSS.encode(), fetched_at=0, expires_at=0)
    Tally.objects.create(run=run, kind="dns", count=1, example=XSS)
    Worker.objects.create(name=XSS, seen_at=now_ms(), capacity=1)
    DomainBlock.objects.create(domain="blocked.test", reason=XSS)


def test_a_viewer_changes_nothing_whatever_is_sent_to_any_page(login: Login, campaign: Campaign) -> None:
    fill(campaign)
    browser = login("viewer")
    Campaign.objects.filter(id=campaign.pk).update(name=XSS)
    before = everything()
    addresses = [path for path in paths(get_resolver()) if path not in ("/logout/", "/login/", "/password_change/")]
    assert len(addresses) > 100
    posts: list[dict[str, str]] = [
        {},
        {"act": "stop"},
        {"action": "stop", "_selected_action": str(campaign.pk)},
        {"action": "lift", "_selected_action": "1", "confirmed": "yes"},
        {"action": "delete_selected", "_selected_action": "1", "post": "yes"},
        {"post": "yes"},
        {"name": "mine", "reach": "any", "delay_ms": "0", "burst": "1", "url_rules": "{}", "domain": "a.test"},
    ]
    for path in addresses:
        for form in posts:
            assert browser.post(path, form).status_code < 500, path
        for method in (browser.put, browser.patch, browser.delete):
            assert method(path).status_code < 500, path
        assert browser.get(path).status_code < 500, path
    assert everything() == before


def test_nothing_that_was_crawled_becomes_a_part_of_a_page(login: Login, campaign: Campaign) -> None:
    fill(campaign)
    Campaign.objects.filter(id=campaign.pk).update(name=XSS, reason=XSS)
    browser = login("superuser")
    seen = 0
    for model in admin.site._registry:
        app, name = model._meta.app_label, model._meta.model_name
        pages = [f"/{app}/{name}/", *(f"/{app}/{name}/{row.pk}/change/" for row in model._default_manager.all()[:3])]
        for path in ["/", *pages]:
            page = browser.get(path, follow=True).content.decode()
            assert XSS not in page, path
            assert "javascript:" not in page, path
            seen += "alert(" in page
    assert seen > 10, "it was never shown"


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_accounts_are_the_administrators(login: Login, role: str) -> None:
    browser = login(role)
    assert browser.get("/auth/user/").status_code == 403
    assert "/auth/user/" not in browser.get("/").content.decode()


def test_an_administrator_makes_accounts_but_no_superuser(login: Login) -> None:
    User.objects.create_superuser("root", password="root")
    browser = login("administrator")
    one = User.objects.create_user("kim")
    form = {
        "username": "kim",
        "is_active": "on",
        "is_staff": "on",
        "is_superuser": "on",
        "groups": [str(Group.objects.get(name="operator").pk)],
        "user_permissions": [str(Permission.objects.order_by("id")[0].pk)],
        "date_joined_0": "2026-01-01",
        "date_joined_1": "00:00:00",
    }
    browser.post(f"/auth/user/{one.pk}/change/", form)
    one.refresh_from_db()
    assert (one.is_staff, one.is_superuser) == (True, False)
    assert not one.user_permissions.exists()
    assert one.groups.get().name == "operator"
    root = User.objects.get(username="root")
    browser.post(f"/auth/user/{root.pk}/password/", {"password1": "abcXYZ123!", "password2": "abcXYZ123!"})
    browser.post(f"/auth/user/{root.pk}/change/", form | {"username": "mine"})
    browser.post(f"/auth/user/{root.pk}/delete/", {"post": "yes"})
    root.refresh_from_db()
    assert (root.username, root.check_password("root")) == ("root", True)


def test_roles_get_what_is_new_and_keep_what_they_were_given() -> None:
    viewer = Group.objects.get(name="viewer")
    viewer.permissions.remove(Permission.objects.get(codename="view_sample"))
    extra = Permission.objects.get(codename="add_campaign")
    viewer.permissions.add(extra)
    make_roles()
    names = set(viewer.permissions.values_list("codename", flat=True))
    models = [m for app in ("crawl", "frontier") for m in apps.get_app_config(app).get_models()]
    assert {f"view_{model._meta.model_name}" for model in models} | {"add_campaign"} == names


def test_a_form_without_its_token_is_refused(campaign: Campaign) -> None:
    run = campaigns.start(campaign)
    User.objects.create_superuser("root", password="root")
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(User.objects.get(), backend="django.contrib.auth.backends.ModelBackend")
    assert browser.post(f"/crawl/campaign/{campaign.pk}/act/", {"act": "stop"}).status_code == 403
    assert Run.objects.get(id=run.pk).state == "running"


def test_pages_let_no_script_but_the_sites_own_run(login: Login) -> None:
    answer = login("viewer").get("/")
    policy = answer["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "script-src 'self' 'unsafe-eval'" in policy.split("; ")
    assert "frame-ancestors 'none'" in policy
    assert answer["X-Content-Type-Options"] == "nosniff"
    page = answer.content.decode()
    assert "<script>" not in page
    for attribute in ('src="http', 'href="http', 'src="//', 'href="//'):
        assert attribute not in page


def test_guessing_passwords_is_slowed_down() -> None:
    User.objects.create_superuser("root", password="root")
    browser = Client()

    def enter(password: str, name: str = "root") -> int:
        return browser.post("/login/", {"username": name, "password": password}).status_code

    assert [enter(f"guess{number}") for number in range(9)] == [200] * 9
    assert enter("guess") == 429
    assert enter("root") == 429
    User.objects.create_superuser("kim", password="kim")
    assert enter("kim", "kim") == 302, "others are not locked out"
