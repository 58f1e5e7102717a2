"""Addresses of exports under /api/billing/."""

from django.urls import path

from controlplane.billing.exports import api

_MINE = "organizations/<org:organization_id>/exports"

urlpatterns = [
    path(_MINE, api.Exports.as_view()),
    path(f"{_MINE}/stream", api.ExportStream.as_view()),
    path(f"{_MINE}/<export:export_id>", api.OneExport.as_view()),
    path(f"{_MINE}/<export:export_id>/file", api.ExportDownload.as_view()),
]
