"""The tables of the frontier: which URLs wait, on which host, and when that host may be visited.

All times are milliseconds since 1970 UTC in integers: 8 bytes at most in a row, exact, and the
same in both databases. A campaign is an integer here; what it means is not the frontier's matter.
"""

from typing import Any

from django.core.exceptions import ValidationError
from django.db import models, router, transaction
from django.db.models import Q

from frontier.blocklists import parse_domain
from frontier.priority import HELD
from frontier.urls import InvalidURL

PRIORITY_BITS = 4
SEQUENCE_BITS = 28
# A queue id must leave room for priority and sequence in a signed 64-bit row id.
MAX_QUEUE_ID = (1 << 31) - 1


class Host(models.Model):
    """One unit of politeness: a host name, with its port where that is not the scheme's default.

    When it may be visited is kept apart (DueHost, LeasedHost), so that a visit that changes nothing of what is
    known of a host does not write its row: a thousand hosts lie on almost as many pages of this table.
    """

    name = models.CharField(max_length=262)
    due_at = models.BigIntegerField(
        default=0, db_default=0, help_text="when it may be sent its next request, if it is not active"
    )
    active = models.BooleanField(default=False, db_default=False, help_text="it is due at some time, or leased")
    blocked = models.BooleanField(default=False, db_default=False)
    gap_ms = models.IntegerField(
        default=0, db_default=0, help_text="milliseconds kept between requests in the last visit, if it is not active"
    )
    delay_ms = models.IntegerField(null=True, blank=True, help_text="milliseconds between requests, set by hand")
    failures = models.SmallIntegerField(default=0, db_default=0, help_text="visits in a row that failed as a whole")
    reason = models.CharField(max_length=120, default="", db_default="", blank=True, help_text="why it waits")
    parked_until = models.BigIntegerField(
        null=True, blank=True, help_text="it failed again and again: not visited before, unless a campaign is started"
    )
    booked_until = models.BigIntegerField(
        default=0, db_default=0, help_text="the gap after a request that was sent to it outside its visits"
    )

    class Meta:
        # A constraint, since `unique=True` makes a second index of all names on PostgreSQL.
        constraints = [models.UniqueConstraint(fields=["name"], name="frontier_host_name")]
        indexes = [
            # What may have to be released when a block ends: marked hosts, and those that a visit found blocked.
            models.Index(fields=["id"], condition=Q(blocked=True), name="frontier_host_blocked"),
            models.Index(fields=["id"], condition=Q(reason="blocked"), name="frontier_host_found_blocked"),
            models.Index(fields=["parked_until"], condition=Q(parked_until__isnull=False), name="frontier_host_parked"),
        ]

    def __str__(self) -> str:
        return self.name


class Queue(models.Model):
    """The back queue of one campaign on one host. Its id leads the key of each of its URLs."""

    host = models.ForeignKey(Host, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False)
    campaign = models.IntegerField()
    next_seq = models.IntegerField(default=0, db_default=0, help_text="sequence number of the next URL")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "campaign"], name="frontier_queue_host")]

    def __str__(self) -> str:
        return f"{self.host_id}/{self.campaign}"


class QueuedUrl(models.Model):
    """A URL that waits. The id is queue << 32 | priority << 28 | sequence: the order of taking."""

    depth = models.SmallIntegerField()
    ref = models.TextField()

    class Meta:
        verbose_name = "queued URL"

    def __str__(self) -> str:
        return self.ref

    @property
    def queue_id(self) -> int:
        return self.pk >> (PRIORITY_BITS + SEQUENCE_BITS)

    @property
    def priority(self) -> int:
        return self.pk >> SEQUENCE_BITS & HELD


class Change(models.Model):
    """What one transaction added to the counts of a campaign; see frontier/counts.py."""

    campaign = models.IntegerField()
    urls = models.BigIntegerField(help_text="URLs that may be claimed")
    held = models.BigIntegerField(help_text="URLs that wait until somebody releases them")
    hosts = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.urls:+} URLs of campaign {self.campaign}"


class DueHost(models.Model):
    """An active host that nobody holds. The id is second << 31 | host: the order in which hosts are claimed.

    The second is that of `due_at`, put off a little where nothing urgent waits (see frontier/schedule.py).
    """

    due_at = models.BigIntegerField(help_text="when it may be sent its next request")
    gap_ms = models.IntegerField(help_text="milliseconds kept between requests in the last visit")

    def __str__(self) -> str:
        return f"host {self.host_id}"

    @property
    def host_id(self) -> int:
        return self.pk & MAX_QUEUE_ID


class Lease(models.Model):
    """Some hosts that one worker may visit until `ends_at`; the worker renews it."""

    ends_at = models.BigIntegerField()
    opened = models.BooleanField(default=False, db_default=False, help_text="a worker has taken it up; only one can")

    def __str__(self) -> str:
        return f"lease {self.pk}"


class LeasedHost(models.Model):
    """An active host that a worker may visit. The id is lease << 31 | host."""

    due_at = models.BigIntegerField(help_text="when it may be sent its next request")
    gap_ms = models.IntegerField(help_text="milliseconds kept between requests in the last visit")

    def __str__(self) -> str:
        return f"host {self.host_id}"

    @property
    def host_id(self) -> int:
        return self.pk & MAX_QUEUE_ID


class Inbox(models.Model):
    """Links that workers found and the merge has not seen yet: one row per batch of pages.

    With n links and h host names: `names` h lines, `name_keys` h * 16 bytes, `name_index` n * uint16,
    `hashes` n * 12 bytes, `levels` n * uint8 (priority), `depths` n * uint16, `refs` n lines. All
    numbers are little-endian, except the keys and hashes, which are plain bytes.
    """

    campaign = models.IntegerField()
    links = models.IntegerField()
    received_at = models.BigIntegerField()
    names = models.TextField()
    name_keys = models.BinaryField()
    name_index = models.BinaryField()
    hashes = models.BinaryField()
    levels = models.BinaryField()
    depths = models.BinaryField()
    refs = models.TextField()

    class Meta:
        verbose_name_plural = "inbox"

    def __str__(self) -> str:
        return f"{self.links} links for campaign {self.campaign}"


class SeenRun(models.Model):
    """The manifest of the seen index: the sorted run files that together hold every known key.

    The files are derived data of one data directory (`store`); a row whose file is missing or has
    another size makes the merge rebuild all of them from the database.
    """

    kind = models.CharField(max_length=5, choices=[("url", "URLs"), ("name", "host names")])
    file = models.CharField(max_length=80, unique=True)
    entries = models.BigIntegerField()
    store = models.CharField(max_length=32)

    def __str__(self) -> str:
        return self.file


class FrontierState(models.Model):
    """The few numbers that belong to the whole frontier."""

    name = models.CharField(max_length=40, primary_key=True)
    value = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


class DomainBlock(models.Model):
    """A domain that is never visited, with all names below it.

    Rows are written by `save` and `delete` or by frontier/blocking.py, and by nothing else: each change must be
    in the journal (BlockChange), and ids must be given out in the order of the commits, for processes follow both.
    """

    domain = models.CharField(max_length=253, help_text="with all names below it, for example tracker.example")
    reason = models.CharField(max_length=200, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="the block ends then; empty: never")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["domain"], name="frontier_domainblock_domain")]
        indexes = [
            models.Index(
                fields=["expires_at"], condition=Q(expires_at__isnull=False), name="frontier_domainblock_expires"
            ),
        ]

    def __str__(self) -> str:
        return self.domain

    def save(self, *args: Any, using: str | None = None, **kwargs: Any) -> None:
        """Stores the block with the marks on its hosts and its entry in the journal, or nothing of it."""
        with transaction.atomic(using=using or router.db_for_write(DomainBlock, instance=self)):
            super().save(*args, using=using, **kwargs)

    def clean(self) -> None:
        """Brings the domain into the form that host names have: lower case, punycode, no port."""
        try:
            self.domain = parse_domain(self.domain)
        except InvalidURL as error:
            raise ValidationError({"domain": f"not a domain: {error}"}) from None


class BlockChange(models.Model):
    """The journal of changes to the domain blocks: processes see by it what they have missed.

    The number of the last change is in FrontierState as `blocks_version`; whoever raises it keeps that row locked
    until the commit, so versions are visible in their order.
    """

    version = models.BigIntegerField(primary_key=True)
    token = models.BigIntegerField(help_text="random: tells a database that was restored from one that went on")
    added = models.IntegerField(help_text="domains that were added or renewed")
    removed = models.IntegerField()
    made_at = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.version}: {self.added} added, {self.removed} removed"
