"""Addresses of months under /api/billing/."""

from django.urls import path

from controlplane.billing.months import api

_MINE = "organizations/<org:organization_id>"

urlpatterns = [
    path(f"{_MINE}/periods", api.Months.as_view()),
    path(f"{_MINE}/periods/<str:period>/close", api.MonthClose.as_view()),
]
