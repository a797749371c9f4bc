"""The web: the admin, and nothing else yet."""

from django.contrib import admin
from django.urls import path

admin.autodiscover()
admin.site.site_header = admin.site.site_title = "trawl"
admin.site.index_title = "Crawls"

urlpatterns = [path("", admin.site.urls)]
