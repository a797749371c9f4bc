"""The tables of the frontier: which URLs wait, on which host, and when that host may be visited.

All times are milliseconds since 1970 UTC in integers: 8 bytes at most in a row, exact, and the
same in both databases. A campaign is an integer here; what it means is not the frontier's matter.
"""

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from frontier.urls import InvalidURL, canonicalise

PRIORITY_BITS = 4
SEQUENCE_BITS = 28
# A queue id must leave room for priority and sequence in a signed 64-bit row id.
MAX_QUEUE_ID = (1 << 31) - 1
HELD = (1 << PRIORITY_BITS) - 1  # the priority that is never claimed


class Host(models.Model):
    """One unit of politeness: a host name, with its port where that is not the scheme's default.

    `next_at` is when it may be claimed, `due_at` when it may be sent its next request. The two
    differ while a worker holds the host: then `next_at` is the end of the lease, so that the host
    comes back by itself when the worker dies, and `due_at` goes on keeping the politeness clock.
    """

    name = models.CharField(max_length=262)
    next_at = models.BigIntegerField(default=0)
    due_at = models.BigIntegerField(default=0)
    lease = models.BigIntegerField(default=0, help_text="0: free; else the token of the visit that holds it")
    active = models.BooleanField(default=False, help_text="URLs wait on it and nothing forbids a visit")
    blocked = models.BooleanField(default=False)
    gap_ms = models.IntegerField(default=0, help_text="milliseconds kept between requests in the last visit")
    delay_ms = models.IntegerField(null=True, blank=True, help_text="milliseconds between requests, set by hand")
    failures = models.SmallIntegerField(default=0, help_text="visits in a row that failed as a whole")
    reason = models.CharField(max_length=120, default="", blank=True, help_text="why it waits")

    class Meta:
        # A constraint, since `unique=True` makes a second index of all names on PostgreSQL.
        constraints = [models.UniqueConstraint(fields=["name"], name="frontier_host_name")]
        indexes = [
            models.Index(fields=["next_at"], condition=Q(active=True), name="frontier_host_due"),
            models.Index(fields=["lease"], condition=~Q(lease=0), name="frontier_host_leased"),
        ]

    def __str__(self) -> str:
        return self.name


class Queue(models.Model):
    """The back queue of one campaign on one host. Its id leads the key of each of its URLs."""

    host = models.ForeignKey(Host, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False)
    campaign = models.IntegerField()
    next_seq = models.IntegerField(default=0, help_text="sequence number of the next URL")
    pending = models.IntegerField(default=0, help_text="URLs that may be claimed")
    held = models.IntegerField(default=0, help_text="URLs that wait until somebody releases them")

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
    """A domain that is never visited, with all names below it."""

    domain = models.CharField(max_length=253, help_text="with all names below it, for example tracker.example")
    reason = models.CharField(max_length=200, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["domain"], name="frontier_domainblock_domain")]

    def __str__(self) -> str:
        return self.domain

    def clean(self) -> None:
        """Brings the domain into the form that host names have: lower case, punycode, no port."""
        try:
            host = canonicalise(f"https://{self.domain.strip()}/").host
        except InvalidURL as error:
            raise ValidationError({"domain": f"not a domain: {error}"}) from None
        self.domain = host if host.startswith("[") else host.partition(":")[0]
