"""Addresses of the group's pages."""

from django.urls import path

from frontend.routing import change_views, views

urlpatterns = [
    path("routing", views.routing, name="routing"),
    path("routing/draft", change_views.routing_draft, name="routing_draft"),
    path("routing/rollback", change_views.routing_rollback, name="routing_rollback"),
    path("routing/<int:version>", views.routing_version, name="routing_version"),
    path("routing/<int:version>/dry-run", views.routing_dry_run, name="routing_dry_run"),
    path("routing/<int:version>/save", change_views.routing_save, name="routing_save"),
    path("routing/<int:version>/publish", change_views.routing_publish, name="routing_publish"),
    path("routing/<int:version>/canary", change_views.routing_canary, name="routing_canary"),
    path("routing/<int:version>/promote", change_views.routing_promote, name="routing_promote"),
    path("routing/<int:version>/stop", change_views.routing_stop, name="routing_stop"),
    path("routing/<int:version>/discard", change_views.routing_discard, name="routing_discard"),
]
