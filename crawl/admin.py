"""Campaigns in the admin: made, started and stopped here; what they found is to look at."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminTextInputWidget
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest

from crawl import campaigns
from crawl.models import Campaign, Credential, Fetch, Page, RobotsFile, Run, ScopeRule, Seed, Tally, WarcFile, Worker
from crawl.plan import read_plan
from crawl.progress import size
from crawl.report import names_looked_up
from crawl.scope import InvalidScope
from frontier.admin import ReadOnly
from frontier.moments import moment
from frontier.names import host_of
from frontier.urls import from_reference


class SeedInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Seed
    extra = 1
    fields = ("url", "weight", "admitted")
    # One line: a field for longer texts is so wide that the columns after it leave the page.
    formfield_overrides = {models.TextField: {"widget": AdminTextInputWidget}}
    readonly_fields = ("admitted",)


class ScopeRuleInline(admin.TabularInline):  # type: ignore[type-arg]
    model = ScopeRule
    extra = 0


class CredentialForm(forms.ModelForm):  # type: ignore[type-arg]
    """A password is written here and never shown; left empty, it stays as it is."""

    password = forms.CharField(
        required=False, strip=False, widget=forms.PasswordInput, max_length=500, help_text="empty: as it was"
    )

    def clean_password(self) -> str:
        return str(self.cleaned_data["password"] or self.instance.password)


class CredentialInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Credential
    form = CredentialForm
    extra = 0
    fields = ("origin", "user", "password")


@admin.register(Campaign)
class CampaignAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("name", "status", "reach", "max_depth", "max_pages", "delay_ms", "contact", "reason")
    list_filter = ("status",)
    search_fields = ("name",)
    readonly_fields = ("status", "reason")
    inlines = (SeedInline, ScopeRuleInline, CredentialInline)
    actions = ("start", "pause", "stop", "again")

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        rules_changed = any(part.model is ScopeRule and part.has_changed() for part in formsets)
        if change and (rules_changed or {"reach", "max_depth", "ports"} & set(form.changed_data)):
            Campaign.objects.filter(id=form.instance.pk).update(scope_changed=True)

    @admin.action(description="Start, or go on with, the chosen campaigns", permissions=["change"])
    def start(self, request: HttpRequest, chosen: QuerySet[Campaign]) -> None:
        self._each(request, chosen, self._start, "started")

    def _start(self, campaign: Campaign) -> None:
        read_plan(campaign, Run(campaign=campaign))
        campaigns.check_contact(campaign)
        campaigns.start(campaign)

    @admin.action(description="Pause the chosen campaigns", permissions=["change"])
    def pause(self, request: HttpRequest, chosen: QuerySet[Campaign]) -> None:
        self._each(request, chosen, campaigns.pause, "paused")

    @admin.action(description="Stop the chosen campaigns", permissions=["change"])
    def stop(self, request: HttpRequest, chosen: QuerySet[Campaign]) -> None:
        self._each(request, chosen, campaigns.stop, "stopped")

    @admin.action(description="Visit everything of the chosen campaigns again", permissions=["change"])
    def again(self, request: HttpRequest, chosen: QuerySet[Campaign]) -> None:
        self._each(request, chosen, campaigns.again, "started again")

    def _each(
        self, request: HttpRequest, chosen: QuerySet[Campaign], act: Callable[[Campaign], object], done: str
    ) -> None:
        for campaign in chosen:
            try:
                act(campaign)
            except (campaigns.CampaignError, InvalidScope) as error:
                self.message_user(request, f"{campaign}: {error}", messages.ERROR)
            else:
                self.message_user(request, f"{campaign} is {done}.")


class TallyInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Tally
    extra = 0
    can_delete = False
    readonly_fields = fields = ("kind", "count", "example")

    def has_add_permission(self, request: HttpRequest, obj: Run | None = None) -> bool:
        return False


@admin.register(Run)
class RunAdmin(ReadOnly):
    list_display = ("campaign", "number", "state", "started_at", "ended_at", "requests", "pages", "received")
    list_select_related = ("campaign",)
    list_filter = ("state",)
    inlines = (TallyInline,)

    @admin.display(description="received")
    def received(self, run: Run) -> str:
        return size(run.bytes)


@admin.register(Page)
class PageAdmin(ReadOnly):
    list_display = ("url", "status", "error", "detail", "fetched", "length", "content_type", "title")
    ordering = ("id",)

    @admin.display(description="URL")
    def url(self, page: Page) -> str:
        return from_reference(page.ref, host_of(page.queue_id))

    @admin.display(description="fetched")
    def fetched(self, page: Page) -> str:
        return moment(page.fetched_at)


@admin.register(Fetch)
class FetchAdmin(ReadOnly):
    list_display = ("when", "url", "status", "error", "ms", "length", "address")
    list_select_related = ("page",)
    raw_id_fields = ("page",)
    ordering = ("-id",)

    @admin.display(description="URL")
    def url(self, fetch: Fetch) -> str:
        return from_reference(fetch.page.ref, host_of(fetch.page.queue_id))

    @admin.display(description="at")
    def when(self, fetch: Fetch) -> str:
        return moment(fetch.at)


@admin.register(RobotsFile)
class RobotsFileAdmin(ReadOnly):
    list_display = ("origin", "status", "fetched", "expires")
    search_fields = ("origin__startswith",)
    fields = ("origin", "status", "fetched", "expires", "text")
    readonly_fields = ("fetched", "expires", "text")

    @admin.display(description="fetched")
    def fetched(self, row: RobotsFile) -> str:
        return moment(row.fetched_at)

    @admin.display(description="asked for again")
    def expires(self, row: RobotsFile) -> str:
        return moment(row.expires_at)

    @admin.display(description="robots.txt")
    def text(self, row: RobotsFile) -> str:
        return bytes(row.body).decode("utf-8", "replace")


@admin.register(WarcFile)
class WarcFileAdmin(ReadOnly):
    list_display = ("name", "directory", "stored", "closed")

    @admin.display(description="size")
    def stored(self, row: WarcFile) -> str:
        return size(row.bytes)


@admin.register(Worker)
class WorkerAdmin(ReadOnly):
    list_display = ("name", "seen", "visiting", "capacity", "names")

    @admin.display(description="last sign of life")
    def seen(self, row: Worker) -> str:
        return moment(row.seen_at)

    @admin.display(description="look-ups of names")
    def names(self, row: Worker) -> str:
        return names_looked_up(row.look_ups) if row.look_ups else ""
