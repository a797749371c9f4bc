"""The admin's site: the dashboard as its first page."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from unfold.sites import UnfoldAdminSite

from crawl.web.dashboard import dashboard
from crawl.web.inspector import inspect


class TrawlSite(UnfoldAdminSite):
    """Django's admin in unfold's look, with trawl's own pages."""

    site_header = site_title = "trawl"
    index_title = "Dashboard"

    def extra_urls(self) -> list[URLPattern]:
        """Pages beside those of the models."""
        return [
            path("dashboard/", never_cache(self.live), name="live"),
            path("url/", self.admin_view(self.inspect), name="inspect"),
        ]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """The dashboard."""
        page: TemplateResponse = super().index(request, {**(extra_context or {}), **dashboard(request)})
        return page

    def inspect(self, request: HttpRequest) -> HttpResponse:
        """The URL inspector."""
        return inspect(self, request)

    def live(self, request: HttpRequest) -> HttpResponse:
        """The part of the dashboard that changes by itself, for the page that is open. Who was logged out meanwhile is
        sent to the login; a redirect would be followed and shown in the middle of the page."""
        if not self.has_permission(request):
            login = f"{reverse('admin:login')}?next={reverse('admin:index')}"
            return HttpResponse(status=204, headers={"HX-Redirect": login})
        return TemplateResponse(request, "admin/dashboard.html", dashboard(request))
