"""What campaigns found, to look at; the campaigns themselves: crawl/web/campaign_page.py."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline

from crawl.models import Campaign, Fetch, Page, RobotsFile, Run, Seed, Tally, WarcFile, Worker
from crawl.progress import size
from crawl.report import names_looked_up
from crawl.web import accounts, campaign_page  # noqa: F401 - they register themselves
from frontier.admin import ReadOnly
from frontier.bounded import BoundedPaginator
from frontier.moments import moment
from frontier.names import host_of
from frontier.urls import from_reference


@admin.register(Seed)
class SeedAdmin(ModelAdmin):
    """Seeds are added on their campaign's form; here they are found and deleted."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_display = ("url", "weight", "admitted", "campaign")
    list_select_related = ("campaign",)
    list_filter = ("campaign",)
    search_fields = ("url",)
    ordering = ("id",)
    readonly_fields = ("campaign", "url", "admitted")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Seed]) -> None:
        concerned = list(Campaign.objects.filter(seeds__in=queryset).distinct())
        super().delete_queryset(request, queryset)
        for campaign in concerned:
            campaign.seeds_have_changed()


class TallyInline(TabularInline):
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
