"""What people ask for: campaigns, their seeds and scope, and their runs."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from crawl.fetch.request_headers import check_credential, parse_headers, parse_origin
from crawl.ports import parse_ports
from crawl.scope import InvalidScope, compile_pattern
from frontier.priority import MAX_WEIGHT
from frontier.urls import InvalidURL, canonicalise

MAX_BURST = 1000


def validate_headers(text: str) -> None:
    """Raises ValidationError for headers that cannot be sent."""
    try:
        parse_headers(text)
    except ValueError as error:
        raise ValidationError(str(error)) from None


def validate_ports(text: str) -> None:
    """Raises ValidationError for ports that are none."""
    try:
        parse_ports(text)
    except ValueError as error:
        raise ValidationError(str(error)) from None


class Campaign(models.Model):
    """A crawl with a name: seeds, scope, limits and manners."""

    class Status(models.TextChoices):
        NEW = "new", "not started"
        RUNNING = "running", "running"
        PAUSED = "paused", "paused"
        STOPPED = "stopped", "stopped"
        FINISHED = "finished", "finished"

    class Reach(models.TextChoices):
        HOST = "host", "the seeds' hosts"
        DOMAIN = "domain", "the seeds' registered domains"
        PREFIX = "prefix", "below the seeds' folders"
        ANY = "any", "anywhere"

    name = models.CharField(max_length=200, unique=True)
    status = models.CharField(max_length=8, choices=Status, default=Status.NEW)
    reach = models.CharField("scope", max_length=6, choices=Reach, default=Reach.HOST)
    ports = models.CharField(
        "further ports",
        max_length=300,
        blank=True,
        validators=[validate_ports],
        help_text="to which links may lead, with commas between, or 'any'; beside 80, 443, 8080, 8443 and those of the"
        " seeds",
    )
    max_depth = models.PositiveSmallIntegerField(null=True, blank=True, help_text="links from a seed; empty: any")
    max_pages = models.PositiveIntegerField(null=True, blank=True, help_text="pages fetched in a run; empty: any")
    delay_ms = models.PositiveIntegerField("delay", default=1000, help_text="milliseconds between requests to a host")
    burst = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_BURST)],
        help_text="requests that a host may get one right after another, once it was left alone for as many delays",
    )
    address_delay_ms = models.PositiveIntegerField(
        "delay per address",
        null=True,
        blank=True,
        help_text="milliseconds between requests to one server address, whatever the hosts on it; empty: a tenth of"
        " the delay, and none in networks that the operator has allowed",
    )
    adaptive = models.BooleanField(
        "adaptive delay",
        default=True,
        help_text="hosts that answer slowly or with server errors are asked less often; never with a delay of 0",
    )
    contact = models.CharField(
        max_length=200, blank=True, help_text="a mail address or page where site owners can complain"
    )
    store_warc = models.BooleanField("store WARC", default=True)
    arrival_log = models.BooleanField(
        default=False,
        help_text="a line for each request, in files under DATA/arrivals; 'trawl manners' shows by them that every gap"
        " was kept",
    )
    headers = models.TextField(
        blank=True,
        validators=[validate_headers],
        help_text="request headers, one a line as 'Name: value'; they go to every host of the campaign",
    )
    cookies = models.BooleanField(default=False, help_text="kept for each host, and sent to no other")
    url_rules = models.JSONField(
        default=dict, blank=True, help_text="which parts of a URL do not matter, e.g. session_ids"
    )
    reason = models.CharField(max_length=200, blank=True, help_text="why it does not run")
    scope_changed = models.BooleanField(
        default=False, editable=False, help_text="since its pages were read: links left out then may be in scope now"
    )
    seeds_version = models.PositiveIntegerField(
        default=0, editable=False, help_text="raised whenever the seeds change, so that workers need not read them all"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name

    def seeds_have_changed(self) -> None:
        """Tells the workers, wherever they are. Whatever changes seeds without Seed.save or Seed.delete calls it."""
        Campaign.objects.filter(id=self.pk).update(seeds_version=models.F("seeds_version") + 1)
        self.refresh_from_db(fields=["seeds_version"])


class Seed(models.Model):
    """A URL that a campaign starts from."""

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="seeds")
    url = models.TextField()
    weight = models.PositiveSmallIntegerField(
        default=MAX_WEIGHT,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_WEIGHT)],
        help_text="10: taken first; 9 and less: taken like a page one link away, two links away, ...",
    )
    admitted = models.BooleanField(default=False, help_text="handed to the frontier")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["campaign", "url"], name="crawl_seed_once")]

    def __str__(self) -> str:
        return self.url

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Stores the seed."""
        super().save(*args, **kwargs)
        self.campaign.seeds_have_changed()

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Deletes the seed; what was found from it stays."""
        gone = super().delete(*args, **kwargs)
        self.campaign.seeds_have_changed()
        return gone

    def clean(self) -> None:
        """Refuses what is no URL, and keeps the rest as it will be asked for."""
        try:
            self.url = canonicalise(self.url).fetch
        except InvalidURL as error:
            raise ValidationError({"url": f"not a URL: {error}"}) from None


class Credential(models.Model):
    """A user and password for one origin of a campaign; they are sent nowhere else."""

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="credentials")
    origin = models.CharField(
        "host", max_length=280, help_text="a host, asked by https; or http://host[:port] for one asked by http"
    )
    user = models.CharField(max_length=200)
    password = models.CharField(max_length=500, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["campaign", "origin"], name="crawl_credential_once")]

    def __str__(self) -> str:
        return self.origin

    def clean(self) -> None:
        """Refuses what cannot be sent, and keeps the host as an origin."""
        try:
            self.origin = parse_origin(self.origin)
            check_credential(self.user, self.password)
        except ValueError as error:
            raise ValidationError(str(error)) from None


class ScopeRule(models.Model):
    """One pattern of a campaign's scope; how they work together: crawl/scope.py."""

    class Action(models.TextChoices):
        INCLUDE = "include", "include"
        EXCLUDE = "exclude", "exclude"

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="scope_rules")
    position = models.PositiveSmallIntegerField(default=0)
    action = models.CharField(max_length=7, choices=Action)
    pattern = models.CharField(max_length=1000, help_text="a regular expression, searched in the whole URL")

    class Meta:
        ordering = ["position", "id"]

    def __str__(self) -> str:
        return f"{self.action} {self.pattern}"

    def clean(self) -> None:
        """Refuses a pattern that cannot be used."""
        try:
            compile_pattern(self.pattern)
        except InvalidScope as error:
            raise ValidationError({"pattern": str(error)}) from None


class Run(models.Model):
    """One go through a campaign, from a start to its end."""

    class State(models.TextChoices):
        RUNNING = "running", "running"
        FINISHED = "finished", "finished"
        STOPPED = "stopped", "stopped"

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="runs")
    number = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=8, choices=State, default=State.RUNNING)
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    busy_ms = models.BigIntegerField(default=0, help_text="time spent running, pauses and stops left out")
    clocked_at = models.BigIntegerField(default=0, editable=False, help_text="ms since 1970: busy_ms as of then")
    requests = models.BigIntegerField(default=0, help_text="URLs asked for, robots.txt not counted")
    pages = models.BigIntegerField(default=0, help_text="answers with a 2xx status")
    bytes = models.BigIntegerField(default=0, help_text="body bytes as received")
    links = models.BigIntegerField(default=0, help_text="links admitted to the frontier, repeats included")
    taken = models.BigIntegerField(default=0, help_text="URLs handed to workers, against the page limit")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["campaign", "number"], name="crawl_run_number")]

    def __str__(self) -> str:
        return f"{self.campaign} #{self.number}"


class Worker(models.Model):
    """A worker process that is alive, or was when it last wrote here."""

    name = models.CharField(max_length=120, unique=True)
    seen_at = models.BigIntegerField(help_text="ms since 1970")
    capacity = models.PositiveIntegerField(help_text="hosts it can visit at once")
    visiting = models.PositiveIntegerField(default=0, help_text="hosts it is visiting")
    look_ups = models.JSONField(default=dict, blank=True, help_text="of names, in numbers, since it was started")

    def __str__(self) -> str:
        return self.name


class Tally(models.Model):
    """A count of a run: answers by status or errors by kind, with the latest example."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="tallies")
    kind = models.CharField(max_length=24, help_text="a status as 'http-404', or the kind of an error")
    count = models.BigIntegerField(default=0)
    example = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "kind"], name="crawl_tally_kind")]
        verbose_name_plural = "tallies"

    def __str__(self) -> str:
        return f"{self.kind}: {self.count}"


class Sample(models.Model):
    """How far a run was at one moment; all numbers but `waiting` count from its start. See crawl/samples.py."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="samples", db_index=False)
    at = models.BigIntegerField(help_text="ms since 1970")
    pages = models.BigIntegerField()
    bytes = models.BigIntegerField()
    ok = models.BigIntegerField(help_text="answers with a 2xx status")
    moved = models.BigIntegerField(help_text="3xx, not modified included")
    refused = models.BigIntegerField(help_text="4xx")
    broken = models.BigIntegerField(help_text="5xx")
    failed = models.BigIntegerField(help_text="no answer, or none that could be used")
    waiting = models.BigIntegerField(help_text="URLs that waited then")

    class Meta:
        indexes = [models.Index(fields=["run", "at"], name="crawl_sample_run")]

    def __str__(self) -> str:
        return f"{self.run} at {self.at}"
