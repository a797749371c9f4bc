"""A campaign in the admin: one form, how it stands, and what can be done with it."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from unfold.admin import ModelAdmin, TabularInline
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminTextareaWidget

from crawl import campaigns
from crawl.models import Campaign, Credential, Run, ScopeRule
from crawl.plan import read_plan
from crawl.progress import counted, standing
from crawl.report import summary
from crawl.scope import InvalidScope
from crawl.seeds import InvalidSeed, parse_seeds

# Seeds shown on the form; the list of seeds has all.
SHOWN_SEEDS = 10
MOST_FILE_BYTES = 50 << 20
# What each status offers: the act, its button, and whether it is what people mostly want then.
ACTS = {
    Campaign.Status.NEW: [("start", "Start", True)],
    Campaign.Status.RUNNING: [("pause", "Pause", True), ("stop", "Stop", False)],
    Campaign.Status.PAUSED: [("resume", "Resume", True), ("stop", "Stop", False)],
    Campaign.Status.STOPPED: [("start", "Go on", True), ("again", "Visit everything again", False)],
    Campaign.Status.FINISHED: [("again", "Visit everything again", True), ("start", "Go on with what is left", False)],
}
DONE = {
    "start": "is started",
    "pause": "is paused; what is in flight is finished",
    "resume": "goes on",
    "stop": "is stopped; what is in flight is finished",
    "again": "is started: every known page is visited again",
}


class CampaignForm(forms.ModelForm):  # type: ignore[type-arg]
    """The campaign's fields, and seeds to add."""

    new_seeds = forms.CharField(
        required=False,
        label="URLs to start from",
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 6, "spellcheck": "false"}),
        help_text="one in each line, with http:// or https://; after a tab a weight from 1 to 10 (10: taken first, the"
        " default); # begins a comment. They are added to those that are there",
    )
    seed_file = forms.FileField(
        required=False,
        label="or a file of them",
        widget=UnfoldAdminFileFieldWidget,
        help_text=f"a UTF-8 text file with the same lines, up to {MOST_FILE_BYTES >> 20} MiB",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk and "new_seeds" in self.fields:
            self.fields["new_seeds"].label = "URLs to add"

    def clean_new_seeds(self) -> list[tuple[str, int]]:
        """The seeds of the field."""
        return _seeds(self.cleaned_data["new_seeds"])

    def clean_seed_file(self) -> list[tuple[str, int]]:
        """The seeds of the file."""
        file = self.cleaned_data["seed_file"]
        if not file:
            return []
        if file.size > MOST_FILE_BYTES:
            raise forms.ValidationError("the file is too large; use: trawl crawl --seeds FILE --name NAME")
        try:
            return _seeds(file.read().decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise forms.ValidationError("it is not a UTF-8 text file") from None

    def clean(self) -> dict[str, Any]:
        """Refuses a campaign without seeds, and one that nobody could complain about."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        seeds = [*cleaned.get("new_seeds", []), *cleaned.get("seed_file", [])]
        known = self.instance.seeds.values_list("url", flat=True) if self.instance.pk else []
        if not seeds and not self.errors and not (self.instance.pk and known.exists()):  # type: ignore[union-attr]
            self.add_error("new_seeds", "a campaign needs at least one URL to start from")
        if not self.errors:
            try:
                campaigns.check_contact_for([url for url, _ in seeds] or known, cleaned["contact"])
            except campaigns.CampaignError as error:
                self.add_error("contact", str(error))
        return cleaned


def _seeds(text: str) -> list[tuple[str, int]]:
    try:
        return [(url.fetch, weight) for url, weight in parse_seeds(text)]
    except InvalidSeed as error:
        raise forms.ValidationError(str(error)) from None


class ScopeRuleInline(TabularInline):
    model = ScopeRule
    extra = 0
    verbose_name_plural = "Patterns: only URLs in which an include is found, if there is one, and no exclude"


class CredentialForm(forms.ModelForm):  # type: ignore[type-arg]
    """A password is written here and never shown; left empty, it stays as it is."""

    password = forms.CharField(
        required=False, strip=False, widget=forms.PasswordInput, max_length=500, help_text="empty: as it was"
    )

    def clean_password(self) -> str:
        return str(self.cleaned_data["password"] or self.instance.password)


class CredentialInline(TabularInline):
    model = Credential
    form = CredentialForm
    extra = 0
    fields = ("origin", "user", "password")


@admin.register(Campaign)
class CampaignAdmin(ModelAdmin):
    form = CampaignForm
    list_display = ("name", "standing", "pages", "reach", "contact", "reason")
    list_filter = ("status",)
    search_fields = ("name",)
    inlines = (ScopeRuleInline, CredentialInline)
    actions = ("start", "pause", "stop", "again")
    change_form_outer_before_template = "admin/crawl/campaign/panel.html"
    fieldsets = (
        (None, {"fields": ("name", "new_seeds", "seed_file")}),
        ("Scope", {"fields": ("reach", "max_depth", "ports")}),
        ("Limits", {"fields": ("max_pages",)}),
        ("Manners", {"fields": ("contact", "delay_ms", "burst", "address_delay_ms", "adaptive")}),
        ("Requests", {"classes": ("collapse",), "fields": ("headers", "cookies", "url_rules")}),
        ("Storage", {"classes": ("collapse",), "fields": ("store_warc", "arrival_log")}),
    )

    @admin.display(description="status", ordering="status")
    def standing(self, campaign: Campaign) -> str:
        return str(campaign.get_status_display())

    @admin.display(description="pages, latest run")
    def pages(self, campaign: Campaign) -> str:
        run = campaign.runs.order_by("number").last()
        return f"{run.pages:,}" if run else "-"

    # --- the form ------------------------------------------------------------------------------------------------

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        added = campaigns.add_seeds(form.instance, [*form.cleaned_data["new_seeds"], *form.cleaned_data["seed_file"]])
        if added and change:
            self.message_user(request, f"{counted(added, 'seed')} added; a start, or Go on, takes them up.")
        rules_changed = any(part.model is ScopeRule and part.has_changed() for part in formsets)
        if change and (rules_changed or {"reach", "max_depth", "ports"} & set(form.changed_data)):
            Campaign.objects.filter(id=form.instance.pk).update(scope_changed=True)

    def response_add(self, request: HttpRequest, obj: Campaign, post_url_continue: str | None = None) -> HttpResponse:
        """A new campaign's page comes next: the button that starts it is there."""
        if "_addanother" in request.POST or "_popup" in request.POST:
            return super().response_add(request, obj, post_url_continue)  # type: ignore[no-any-return]
        self.message_user(request, f"{obj} is made. Start it when you like.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:crawl_campaign_change", args=[obj.pk]))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        campaign = Campaign.objects.filter(pk=object_id).first() if object_id.isdecimal() else None
        panel = self._panel(request, campaign) if campaign else {}
        return super().change_view(  # type: ignore[no-any-return]
            request, object_id, form_url, {**(extra_context or {}), **panel}
        )

    def _panel(self, request: HttpRequest, campaign: Campaign) -> dict[str, Any]:
        seeds = campaign.seeds.order_by("id")
        return {
            "campaign": campaign,
            "acts": ACTS[Campaign.Status(campaign.status)] if self.has_change_permission(request, campaign) else [],
            "run": summary(campaign) if campaign.runs.exists() else None,
            "now": standing(campaign) if campaign.runs.exists() else None,
            "seeds": seeds[:SHOWN_SEEDS],
            "seed_count": seeds.count(),
        }

    # --- acts ----------------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        one = path("<int:campaign>/act/", self.admin_site.admin_view(self.act), name="crawl_campaign_act")
        return [one, *super().get_urls()]

    def act(self, request: HttpRequest, campaign: int) -> HttpResponse:
        """Does what a button of the campaign's page says."""
        one = get_object_or_404(Campaign, pk=campaign)
        if not self.has_change_permission(request, one):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        name = request.POST.get("act", "")
        if name in DONE:
            self._do(request, one, name)
        return HttpResponseRedirect(reverse("admin:crawl_campaign_change", args=[campaign]))

    def _do(self, request: HttpRequest, campaign: Campaign, name: str) -> None:
        acts: dict[str, Callable[[Campaign], object]] = {
            "start": campaigns.start,
            "pause": campaigns.pause,
            "resume": campaigns.resume,
            "stop": campaigns.stop,
            "again": campaigns.again,
        }
        try:
            if name in ("start", "resume", "again"):
                read_plan(campaign, Run(campaign=campaign))
                campaigns.check_contact(campaign)
            acts[name](campaign)
        except (campaigns.CampaignError, InvalidScope) as error:
            self.message_user(request, f"{campaign}: {error}", messages.ERROR)
        else:
            self.log_change(request, campaign, f"{campaign} {DONE[name]}")
            self.message_user(request, f"{campaign} {DONE[name]}.", messages.SUCCESS)

    @admin.action(description="Start, or go on with, the chosen campaigns", permissions=["change"])
    def start(self, request: HttpRequest, chosen: QuerySet[Campaign]) -> None:
        self._each(request, chosen, "start")

    @admin.action(description="Pause the chosen campaigns", permissions=["change"])
    def pause(self, request: HttpRequest, chosen: QuerySet[Campaign]) -> None:
        self._each(request, chosen, "pause")

    @admin.action(description="Stop the chosen campaigns", permissions=["change"])
    def stop(self, request: HttpRequest, chosen: QuerySet[Campaign]) -> None:
        self._each(request, chosen, "stop")

    @admin.action(description="Visit everything of the chosen campaigns again", permissions=["change"])
    def again(self, request: HttpRequest, chosen: QuerySet[Campaign]) -> None:
        self._each(request, chosen, "again")

    def _each(self, request: HttpRequest, chosen: QuerySet[Campaign], name: str) -> None:
        for campaign in chosen:
            self._do(request, campaign, name)
