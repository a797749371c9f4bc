"""The admin's menu, by what people come for; each sees what they may look at."""

from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse

# Title, icon (Material Symbols), app and model.
GROUPS: list[tuple[str, list[tuple[str, str, str]]]] = [
    (
        "Crawls",
        [
            ("Campaigns", "travel_explore", "crawl.campaign"),
            ("Seeds", "psychiatry", "crawl.seed"),
            ("Runs", "replay", "crawl.run"),
            ("Pages", "description", "crawl.page"),
            ("Fetches", "download", "crawl.fetch"),
            ("WARC files", "inventory_2", "crawl.warcfile"),
        ],
    ),
    (
        "Sites",
        [
            ("Hosts", "dns", "frontier.host"),
            ("Domain blocks", "block", "frontier.domainblock"),
            ("robots.txt files", "smart_toy", "crawl.robotsfile"),
        ],
    ),
    (
        "Frontier",
        [
            ("Waiting URLs", "hourglass_top", "frontier.queuedurl"),
            ("Back queues", "queue", "frontier.queue"),
            ("Hosts that are due", "schedule", "frontier.duehost"),
            ("Hosts under visit", "sync", "frontier.leasedhost"),
            ("Inbox", "inbox", "frontier.inbox"),
            ("Seen index", "fingerprint", "frontier.seenrun"),
            ("Workers", "engineering", "crawl.worker"),
        ],
    ),
    (
        "Accounts",
        [
            ("Users", "person", "auth.user"),
            ("Groups", "group", "auth.group"),
        ],
    ),
]


def stylesheet(request: HttpRequest) -> str:
    """What unfold's own stylesheet lacks."""
    return static("trawl/trawl.css")


def icon(request: HttpRequest) -> str:
    """The picture in the browser's tab."""
    return static("trawl/icon.svg")


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The menu as unfold takes it."""
    first = [
        {"title": "Dashboard", "icon": "monitoring", "link": reverse("admin:index")},
        {
            "title": "URL inspector",
            "icon": "search",
            "link": reverse("admin:inspect"),
            "permission": lambda request: request.user.has_perm("crawl.view_page"),
        },
    ]
    groups = [
        {"title": title, "collapsible": title == "Frontier", "items": [_item(request, *one) for one in entries]}
        for title, entries in GROUPS
    ]
    return [{"title": "", "items": first}, *groups]


def _item(request: HttpRequest, title: str, icon: str, model: str) -> dict[str, Any]:
    app, name = model.split(".")
    return {
        "title": title,
        "icon": icon,
        "link": reverse(f"admin:{app}_{name}_changelist"),
        "permission": lambda request: request.user.has_perm(f"{app}.view_{name}"),
    }
