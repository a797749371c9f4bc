"""One URL in the web: what it is, where it stands and why, what was fetched, and what is kept of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.http import urlencode

from crawl import campaigns
from crawl.fetch.decode import decode_body
from crawl.fetch.response import Response
from crawl.lookup import CampaignLookup
from crawl.models import Campaign
from crawl.parse.charset import decode
from crawl.scope import InvalidScope
from crawl.store.warc import StoreError, read_record
from crawl.url_report import answer, facts
from frontier.urls import InvalidURL, canonicalise

MOST_BYTES = 8 << 20  # of a stored body that are unpacked to be shown
MOST_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class Content:
    """A stored answer as text: its head, and the beginning of its body."""

    head: str
    body: str
    is_cut: bool


def inspect(site: AdminSite, request: HttpRequest) -> HttpResponse:
    """The page. A POST has the URL asked for again."""
    if not request.user.has_perm("crawl.view_page"):
        raise PermissionDenied
    asked = request.POST if request.method == "POST" else request.GET
    text, chosen = asked.get("url", "").strip(), _chosen(asked.get("campaign", ""))
    if request.method == "POST" and chosen and text:
        return _fetch_now(request, chosen, text)
    context: dict[str, Any] = {
        **site.each_context(request),
        "title": "URL inspector",
        "asked": text,
        "chosen": chosen,
        "campaigns": Campaign.objects.order_by("-id")[:200],
        "may_act": request.user.has_perm("crawl.change_campaign"),
    }
    if text and chosen:
        context |= _found(chosen, text)
    return TemplateResponse(request, "admin/inspector.html", context)


def _chosen(key: str) -> Campaign | None:
    """The campaign that was chosen, or the latest one."""
    if key.isascii() and key.isdecimal() and len(key) < 10:
        return Campaign.objects.filter(pk=int(key)).first()
    return Campaign.objects.order_by("-id").first()


def _found(campaign: Campaign, text: str) -> dict[str, Any]:
    try:
        lookup = CampaignLookup(campaign)
    except (InvalidScope, ValueError) as error:
        return {"problem": f"campaign '{campaign}' cannot be used: {error}"}
    [record] = answer([(text, "")], None, lookup.plan.rules, lookup, details=True)
    told: dict[str, list[str]] = {}
    for name, value in facts(record):
        told.setdefault(name, []).append(value)
    page = record.get("page") or {}
    return {
        "facts": told.items(),
        "content": _content(page["kept"]) if page.get("kept") else None,
        "is_url": "error" not in record,
    }


def _content(kept: dict[str, Any]) -> Content | None:
    """What is kept of it, or None where it is not on this machine."""
    try:
        head, body = read_record(Path(kept["warc"]), kept["offset"])
    except StoreError:
        return None
    response = Response("", lines=head.splitlines(keepends=True), body=body)
    response.read_headers()
    decoded = decode_body(body, response.headers.get("content-encoding"), MOST_BYTES)
    text, _ = decode(decoded.body, response.headers.get("content-type"))
    return Content(head.decode("latin-1").strip(), text[:MOST_CHARS], len(text) > MOST_CHARS or bool(decoded.flag))


def _fetch_now(request: HttpRequest, campaign: Campaign, text: str) -> HttpResponse:
    if not request.user.has_perm("crawl.change_campaign"):
        raise PermissionDenied
    try:
        url = canonicalise(text, rules=campaigns.rules_of(campaign))
        messages.success(request, campaigns.fetch_now(campaign, url))
    except (InvalidURL, InvalidScope, campaigns.CampaignError) as error:
        messages.error(request, f"{text}: {error}")
    return HttpResponseRedirect(f"?{urlencode({'url': text, 'campaign': str(campaign.pk)})}")
