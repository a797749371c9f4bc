"""What was found: pages, each fetch of them, robots.txt files, and the WARC files that hold the bytes.

Page and Fetch grow by millions: their times are milliseconds since 1970 UTC in integers, and their
ids are what the rows are clustered by.
"""

from django.db import models
from django.db.models import Q


class Page(models.Model):
    """A URL that was visited. The id is queue id << 32 | first 32 bits of the URL's hash.

    So a page is found by its URL without an index of its own, and the pages of a host lie together.
    Where two URLs of a queue share those 32 bits, the later one has moved on by `probe` places; the
    other 64 bits of the hash (`hash`, as a signed number) tell them apart.

    Where a body was not sent or not stored again, the WARC record that holds it is an older one: `payload_at` is
    the time of its Fetch, whose row has the offset.
    """

    hash = models.BigIntegerField()
    probe = models.SmallIntegerField(default=0)
    ref = models.TextField()
    depth = models.SmallIntegerField()
    status = models.SmallIntegerField(default=0, help_text="HTTP status of the last fetch; 0: no answer")
    error = models.CharField(max_length=24, default="", blank=True, help_text="kind of failure, see docs/errors.md")
    detail = models.TextField(default="", blank=True, help_text="what was wrong or odd the last time")
    failures = models.SmallIntegerField(default=0, help_text="failed fetches in a row")
    fetched_at = models.BigIntegerField(help_text="ms since 1970")
    changed_at = models.BigIntegerField(help_text="ms since 1970, when the body last was a new one")
    due_at = models.BigIntegerField(null=True, blank=True, help_text="ms since 1970, when it is fetched again")
    queued = models.BooleanField(default=False, help_text="waits in its back queue to be fetched again")
    length = models.IntegerField(default=0, help_text="body bytes as received")
    digest = models.CharField(max_length=40, default="", blank=True)
    content_type = models.CharField(max_length=80, default="", blank=True)
    payload_warc_id = models.IntegerField(null=True, blank=True, help_text="WARC file that holds the body")
    payload_at = models.BigIntegerField(
        null=True, blank=True, help_text="ms since 1970, WARC-Date of the record that holds the body"
    )
    etag = models.TextField(default="", blank=True)
    last_modified = models.CharField(max_length=40, default="", blank=True)
    location = models.TextField(default="", blank=True, help_text="where a redirect leads")
    title = models.TextField(default="", blank=True)
    noindex = models.BooleanField(default=False, help_text="it asks search engines to leave it out")

    class Meta:
        indexes = [models.Index(fields=["due_at"], condition=Q(due_at__isnull=False), name="crawl_page_due")]

    def __str__(self) -> str:
        return self.ref

    @property
    def queue_id(self) -> int:
        return self.pk >> 32


class Fetch(models.Model):
    """One request for a page and what came of it."""

    page = models.ForeignKey(Page, on_delete=models.DO_NOTHING, db_constraint=False, related_name="fetches")
    run_id = models.IntegerField()
    at = models.BigIntegerField(help_text="ms since 1970, when the request was sent")
    status = models.SmallIntegerField()
    error = models.CharField(max_length=24, default="", blank=True)
    ms = models.IntegerField(help_text="milliseconds from request to last byte")
    length = models.IntegerField(help_text="body bytes as received")
    address = models.CharField(max_length=45, default="", blank=True)
    warc_id = models.IntegerField(null=True, blank=True)
    warc_offset = models.BigIntegerField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "fetches"

    def __str__(self) -> str:
        return f"{self.page_id} {self.status or self.error}"


class RobotsFile(models.Model):
    """A robots.txt as it was last fetched, by origin."""

    origin = models.CharField(max_length=280, help_text="scheme://host[:port]")
    status = models.SmallIntegerField(default=0, help_text="HTTP status; 0: no answer")
    body = models.BinaryField(default=b"")
    fetched_at = models.BigIntegerField(help_text="ms since 1970")
    expires_at = models.BigIntegerField(help_text="ms since 1970")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["origin"], name="crawl_robotsfile_origin")]
        verbose_name = "robots.txt"
        verbose_name_plural = "robots.txt files"

    def __str__(self) -> str:
        return self.origin


class WarcFile(models.Model):
    """A WARC file and how much of it is committed; a kill can leave more in it, which is cut off."""

    name = models.CharField(max_length=120, unique=True)
    directory = models.TextField()
    bytes = models.BigIntegerField(default=0)
    closed = models.BooleanField(default=False)

    class Meta:
        verbose_name = "WARC file"

    def __str__(self) -> str:
        return self.name
