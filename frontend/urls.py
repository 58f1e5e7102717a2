"""Addresses of the pages. A page's address is its view: range, filters and open item are in it."""

from django.urls import include, path

GROUPS = (
    *("overview", "latency", "cache", "requests", "insights", "keys", "slos", "stages", "money"),
    *("developers", "fleet", "configuration", "routing", "people", "payments"),
)

urlpatterns = [path("", include(f"frontend.{group}.urls")) for group in GROUPS]
