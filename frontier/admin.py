"""The frontier in the admin: to look at, and to block domains."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from frontier.bounded import BoundedPaginator
from frontier.models import DomainBlock, FrontierState, Host, Inbox, Queue, QueuedUrl, SeenRun
from frontier.moments import moment
from frontier.names import host_of
from frontier.urls import from_reference


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows that only the crawler writes."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Host)
class HostAdmin(ReadOnly):
    list_display = ("name", "state", "due", "gap", "failures", "reason")
    list_filter = ("active", "blocked")
    search_fields = ("name__startswith",)
    search_help_text = "the beginning of a host name"
    ordering = ("id",)

    @admin.display(description="state")
    def state(self, host: Host) -> str:
        if host.blocked:
            return "blocked"
        if host.lease:
            return "being visited"
        return "waiting for its time" if host.active else "nothing to do"

    @admin.display(description="next visit", ordering="next_at")
    def due(self, host: Host) -> str:
        return moment(host.next_at) if host.active else "-"

    @admin.display(description="gap")
    def gap(self, host: Host) -> str:
        return f"{host.gap_ms / 1000:g} s"


@admin.register(Queue)
class QueueAdmin(ReadOnly):
    list_display = ("id", "host", "campaign", "pending", "held")
    list_select_related = ("host",)
    search_fields = ("host__name__startswith",)
    ordering = ("id",)


@admin.register(QueuedUrl)
class QueuedUrlAdmin(ReadOnly):
    list_display = ("url", "priority", "depth")
    ordering = ("id",)

    @admin.display(description="URL")
    def url(self, row: QueuedUrl) -> str:
        return from_reference(row.ref, host_of(row.queue_id))


@admin.register(Inbox)
class InboxAdmin(ReadOnly):
    list_display = ("id", "campaign", "links", "received")
    fields = ("campaign", "links", "received_at", "names", "refs")
    ordering = ("id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Inbox]:
        return super().get_queryset(request).defer("names", "name_keys", "name_index", "hashes", "refs")

    @admin.display(description="received")
    def received(self, row: Inbox) -> str:
        return moment(row.received_at)


@admin.register(SeenRun)
class SeenRunAdmin(ReadOnly):
    list_display = ("file", "kind", "entries", "store")


@admin.register(FrontierState)
class FrontierStateAdmin(ReadOnly):
    list_display = ("name",)  # the hash seed is a secret of the installation
    fields = ("name",)


@admin.register(DomainBlock)
class DomainBlockAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("domain", "reason", "expires_at", "created_at")
    search_fields = ("domain",)
