"""Addresses of the group's pages."""

from django.urls import path

from frontend.requests import content_views, link_views, views

_KEPT = "conversations/<proj:project_id>"

urlpatterns = [
    path("requests", views.request_index, name="requests"),
    path("requests.csv", link_views.request_csv, name="requests_csv"),
    path("requests/exemplar", link_views.request_exemplar, name="request_exemplar"),
    path("requests/<req:request_id>", views.request_detail, name="request"),
    path("conversations", content_views.conversations, name="conversations"),
    path("conversations.jsonl", content_views.conversations_export, name="conversations_export"),
    path(f"{_KEPT}/forget", content_views.content_remove, name="end_user_remove"),
    path(f"{_KEPT}/<req:request_id>", content_views.content_show, name="content_show"),
    path(f"{_KEPT}/<req:request_id>/delete", content_views.content_remove, name="content_remove"),
]
