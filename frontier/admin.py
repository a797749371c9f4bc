"""The frontier in the admin: to look at, and to block domains."""

import time
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from unfold.admin import ModelAdmin

from frontier.blocking import FEW, unblock
from frontier.blocks import covering
from frontier.bounded import MOST, BoundedPaginator
from frontier.claim import wake_host
from frontier.counts import by_level, in_queue
from frontier.models import (
    BlockChange,
    Change,
    DomainBlock,
    DueHost,
    FrontierState,
    Host,
    Inbox,
    Lease,
    LeasedHost,
    Queue,
    QueuedUrl,
    SeenRun,
)
from frontier.moments import moment
from frontier.names import host_of
from frontier.priority import LEVEL_NAMES
from frontier.purge import Extent, extent, purge
from frontier.schedule import Slot, slots
from frontier.urls import from_reference, port_of

# URLs of a queue that a list counts: below a millisecond for each of its rows.
MOST_COUNTED = 10_000

PURGE_WARNING = (
    "This cannot be undone. A deleted URL stays known, so links to it do not bring it back, also after the block is"
    " lifted; after trawl rebuild_seen it is new again, unless it was visited before. Pages that were fetched stay."
)
# Each is a field of the form that asks, and Django takes 1,000.
MOST_LIFTED = 500
# A purge in a request ends after so long; the rest is left to another one.
PURGE_SECONDS = 20


class ReadOnly(ModelAdmin):
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


class WithSlots(ChangeList):
    """A list of hosts that looks all of them up in the schedule at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        hosts = list(self.result_list)
        found = slots(host.pk for host in hosts if host.active)
        for host in hosts:
            host.slot = found.get(host.pk)
        self.result_list = hosts


def _slot(host: Any) -> Slot | None:
    if not hasattr(host, "slot"):
        host.slot = slots([host.pk]).get(host.pk)
    slot: Slot | None = host.slot
    return slot


@admin.register(Host)
class HostAdmin(ReadOnly):
    list_display = ("name", "state", "due", "gap", "failures", "reason")
    # Of one host the same, in words and dates: its row holds milliseconds, and the schedule has the rest.
    readonly_fields = ("name", "state", "due", "reason", "gap", "failures")
    fields = (*readonly_fields, "delay_ms")
    change_form_outer_before_template = "admin/frontier/host/panel.html"
    list_filter = ("active", "blocked", ("parked_until", admin.EmptyFieldListFilter))
    search_fields = ("name__startswith",)
    search_help_text = "the beginning of a host name"
    ordering = ("id",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("frontier.change_host"))

    def save_model(self, request: HttpRequest, obj: Host, form: Any, change: bool) -> None:
        """Only what was edited: the rest of the row is the crawler's, and may have changed meanwhile."""
        Host.objects.filter(pk=obj.pk).update(delay_ms=obj.delay_ms)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        host = Host.objects.filter(pk=object_id).first() if object_id.isdecimal() and len(object_id) < 12 else None
        panel = (
            {
                "host": host,
                "levels": _levels(host),
                "domain": _domain(host),
                "may_wake": self.has_change_permission(request),
            }
            if host
            else {}
        )
        return super().change_view(  # type: ignore[no-any-return]
            request, object_id, form_url, {**(extra_context or {}), **panel}
        )

    def get_urls(self) -> list[URLPattern]:
        one = path("<int:host>/wake/", self.admin_site.admin_view(self.wake), name="frontier_host_wake")
        return [one, *super().get_urls()]

    def wake(self, request: HttpRequest, host: int) -> HttpResponse:
        """Has a host visited that is parked, or that was found idle."""
        row = get_object_or_404(Host, pk=host)
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if wake_host(host):
            self.log_change(request, row, f"{row} is woken")
            self.message_user(request, f"{row} is visited when its delay, and what it asked for, is over.")
        else:
            why = "it is blocked" if row.blocked else "no URL waits on it"
            self.message_user(request, f"{row} cannot be visited: {why}.", messages.WARNING)
        return HttpResponseRedirect(reverse("admin:frontier_host_change", args=[host]))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return WithSlots

    @admin.display(description="state")
    def state(self, host: Host) -> str:
        if host.blocked:
            return "blocked"
        slot = _slot(host)
        if slot is None:
            return "nothing to do" if host.parked_until is None else "parked, it failed again and again"
        return "waiting for its time" if slot.lease_ends_at is None else "being visited"

    @admin.display(description="next visit")
    def due(self, host: Host) -> str:
        slot = _slot(host)
        if slot is None and host.parked_until is not None:
            return moment(host.parked_until)
        return moment(slot.due_at) if slot else "-"

    @admin.display(description="gap")
    def gap(self, host: Host) -> str:
        slot = _slot(host)
        return f"{(slot.gap_ms if slot else host.gap_ms) / 1000:g} s"


@admin.register(Queue)
class QueueAdmin(ReadOnly):
    list_display = ("id", "host", "campaign", "waiting", "held")
    list_select_related = ("host",)
    search_fields = ("host__name__startswith",)
    ordering = ("id",)

    @admin.display(description="URLs waiting")
    def waiting(self, queue: Queue) -> str:
        return _counted(in_queue(queue.pk, most=MOST_COUNTED).urls)

    @admin.display(description="held")
    def held(self, queue: Queue) -> str:
        return _counted(in_queue(queue.pk, most=MOST_COUNTED).held)


def _domain(host: Host) -> str:
    return host.name.removesuffix(f":{port_of(host.name)}")


def _levels(host: Host) -> list[tuple[str, str]]:
    """The URLs that wait on a host, by level."""
    queues = list(Queue.objects.filter(host=host).values_list("id", flat=True))
    return [(LEVEL_NAMES[level], _counted(urls)) for level, urls in by_level(queues, most=MOST_COUNTED).items()]


def _counted(number: int) -> str:
    return f"{number:,}" if number < MOST_COUNTED else f"{MOST_COUNTED:,} or more"


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
        rows: QuerySet[Inbox] = super().get_queryset(request)
        return rows.defer("names", "name_keys", "name_index", "hashes", "refs")

    @admin.display(description="received")
    def received(self, row: Inbox) -> str:
        return moment(row.received_at)


@admin.register(SeenRun)
class SeenRunAdmin(ReadOnly):
    list_display = ("file", "kind", "entries", "store")


@admin.register(Change)
class ChangeAdmin(ReadOnly):
    list_display = ("id", "campaign", "urls", "held", "hosts")
    ordering = ("id",)


@admin.register(DueHost)
class DueHostAdmin(ReadOnly):
    list_display = ("host", "due")
    ordering = ("id",)  # the order in which they are claimed

    @admin.display(description="host")
    def host(self, row: DueHost | LeasedHost) -> str:
        return str(Host.objects.get(id=row.host_id))

    @admin.display(description="due")
    def due(self, row: DueHost | LeasedHost) -> str:
        return moment(row.due_at)


@admin.register(LeasedHost)
class LeasedHostAdmin(DueHostAdmin):
    pass


@admin.register(Lease)
class LeaseAdmin(ReadOnly):
    list_display = ("id", "ends", "opened")
    ordering = ("id",)

    @admin.display(description="ends")
    def ends(self, row: Lease) -> str:
        return moment(row.ends_at)


@admin.register(FrontierState)
class FrontierStateAdmin(ReadOnly):
    list_display = ("name",)  # the hash seed is a secret of the installation
    fields = ("name",)


class InForce(admin.SimpleListFilter):
    """Blocks by their end."""

    title = "end"
    parameter_name = "end"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("never", "never"), ("later", "in the future"), ("over", "expired")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[DomainBlock]) -> QuerySet[DomainBlock]:
        chosen = {
            "never": Q(expires_at=None),
            "later": Q(expires_at__gt=timezone.now()),
            "over": Q(expires_at__lte=timezone.now()),
        }
        return queryset.filter(chosen.get(self.value() or "", Q()))


@admin.register(DomainBlock)
class DomainBlockAdmin(ModelAdmin):
    """Blocks, of which there may be millions: nothing here counts or lists them all."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_display = ("domain", "reason", "until", "created_at")
    list_filter = (InForce,)
    search_fields = ("domain__startswith",)
    search_help_text = "the beginning of a domain"
    ordering = ("-id",)
    actions = ("lift", "purge")

    @admin.display(description="until", ordering="expires_at")
    def until(self, block: DomainBlock) -> str:
        if block.expires_at is None:
            return "-"
        over = block.expires_at <= timezone.now()
        return f"{block.expires_at:%Y-%m-%d %H:%M} UTC{', expired' if over else ''}"

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("domain",) if obj else ()  # a block of another domain is another block

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        concerned = extent([obj.domain])
        if concerned.hosts:
            self.message_user(request, f"Blocked now: {told(concerned)}. What waits is kept.")

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        super().delete_model(request, obj)
        if covering([obj.domain]):
            self.message_user(request, f"{obj.domain} stays blocked: so is a domain above it.", messages.WARNING)

    def get_actions(self, request: HttpRequest) -> Any:
        # Django's own loads every selected row, and asks for the hosts of each by itself.
        return {name: act for name, act in super().get_actions(request).items() if name != "delete_selected"}

    @admin.action(description="Lift the selected blocks", permissions=["delete"])
    def lift(self, request: HttpRequest, queryset: QuerySet[DomainBlock]) -> HttpResponse | None:
        chosen = list(queryset[: MOST_LIFTED + 1])
        if len(chosen) > MOST_LIFTED:
            self.message_user(
                request, f"Lift at most {MOST_LIFTED} blocks at a time, or use: trawl block remove", messages.ERROR
            )
            return None
        if not request.POST.get("confirmed"):
            return self._confirm(request, "lift", chosen, f"Lift {len(chosen):,} blocks?", "")
        self.log_deletions(request, chosen)
        lifted = unblock([block.domain for block in chosen])
        self.message_user(request, f"{lifted:,} blocks are lifted; their hosts may be visited again within a minute.")
        return None

    @admin.action(description="Purge waiting URLs of the selected blocks", permissions=["delete"])
    def purge(self, request: HttpRequest, queryset: QuerySet[DomainBlock]) -> HttpResponse | None:
        chosen = list(queryset[: FEW + 1])
        if len(chosen) > FEW:
            self.message_user(
                request, f"Purge at most {FEW} blocks at a time, or use: trawl block purge --all", messages.ERROR
            )
            return None
        domains = [block.domain for block in chosen]
        if not request.POST.get("confirmed"):
            title = f"Delete {told(extent(domains))}?"
            return self._confirm(request, "purge", chosen, title, PURGE_WARNING)
        gone, until = 0, time.monotonic() + PURGE_SECONDS
        for done in purge(domains):
            gone += done.urls
            if time.monotonic() > until:
                self.message_user(request, "There is more: purge again, or use: trawl block purge", messages.WARNING)
                break
        self.message_user(request, f"{gone:,} waiting URLs were deleted.")
        return None

    def _confirm(
        self, request: HttpRequest, act: str, chosen: list[DomainBlock], title: str, warning: str
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "warning": warning,
            "act": act,
            "blocks": chosen,
            "shown": chosen[:FEW],
            "opts": self.opts,
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/frontier/domainblock/confirm.html", context)


@admin.register(BlockChange)
class BlockChangeAdmin(ReadOnly):
    list_display = ("version", "made", "added", "removed")
    ordering = ("-version",)

    @admin.display(description="made")
    def made(self, row: BlockChange) -> str:
        return moment(row.made_at)


def told(concerned: Extent) -> str:
    """'2 hosts with 1,200 waiting URLs', each number with a plus where it was not counted further."""
    hosts, urls = (f"{number:,}{'+' if number >= MOST else ''}" for number in concerned)
    return f"{hosts} hosts with {urls} waiting URLs"
