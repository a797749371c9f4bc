"""Apps of others, as trawl takes them in."""

from django.apps import AppConfig
from django.contrib.admin.apps import SimpleAdminConfig


class UnfoldConfig(AppConfig):
    """The look of the admin. Its own configuration imports the admin's pages, which most commands never need."""

    name = "unfold"


class AdminConfig(SimpleAdminConfig):
    """The admin with trawl's site; trawl_project/urls.py loads the pages."""

    default_site = "crawl.web.site.TrawlSite"
