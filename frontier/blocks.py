"""Domain blocks: what is never visited. A block covers a domain and every name below it."""

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from frontier.models import DomainBlock, Host, Queue


class Blocks:
    """A set of blocked domains that answers for host names."""

    def __init__(self, domains: Iterable[str] = ()) -> None:
        self._domains = frozenset(domains)

    def covers(self, host: str) -> bool:
        """Whether a host ('name' or 'name:port') is blocked, by itself or by a domain above it."""
        if not self._domains:
            return False
        # An IPv6 address has colons of its own, and brackets around it.
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        while name:
            if name in self._domains:
                return True
            _, _, name = name.partition(".")
        return False


def in_force(using: str = "default") -> Blocks:
    """All blocks that have not expired."""
    rows = DomainBlock.objects.using(using).filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()))
    return Blocks(rows.values_list("domain", flat=True))


def mark_hosts(sender: Any = None, instance: DomainBlock | None = None, using: str = "default", **kwargs: Any) -> None:
    """Brings the `blocked` mark of the hosts below a domain in line after its block was saved or deleted.

    What waits on a blocked host stays where it is; nothing of it is claimed from now on.
    """
    if instance is None:
        return
    domain = instance.domain
    below = Q(name=domain) | Q(name__startswith=f"{domain}:") | Q(name__endswith=f".{domain}")
    below |= Q(name__contains=f".{domain}:")
    with transaction.atomic(using=using):
        # Locked before their queues are looked at, as in frontier.fill.activate.
        hosts = list(Host.objects.using(using).select_for_update().filter(below).order_by("id"))
        blocks = in_force(using)
        waiting = set(
            Queue.objects.using(using)
            .filter(host__in=Host.objects.using(using).filter(below), pending__gt=0)
            .values_list("host", flat=True)
        )
        for host in hosts:
            blocked = blocks.covers(host.name)
            # A visit that met the block before the host was marked has parked it under this reason.
            if blocked == host.blocked and not (host.reason == "blocked" and not blocked):
                continue
            host.blocked = blocked
            host.active = not host.blocked and host.pk in waiting
            host.reason = "blocked" if host.blocked else ""
            host.save(using=using, update_fields=["blocked", "active", "reason"])
