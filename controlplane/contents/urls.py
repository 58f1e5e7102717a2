"""Addresses under /api/ of what was said."""

from django.urls import path

from controlplane.contents import api

_PROJECT = "organizations/<org:organization_id>/projects/<proj:project_id>"

urlpatterns = [
    path(f"{_PROJECT}/keeping", api.KeepingView.as_view()),
    path(f"{_PROJECT}/contents", api.ContentsView.as_view()),
    path(f"{_PROJECT}/contents/<req:request_id>", api.OneContentView.as_view()),
]
