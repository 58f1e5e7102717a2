"""Addresses of budgets under /api/billing/."""

from django.urls import path

from controlplane.billing.budgets import api

_MINE = "organizations/<org:organization_id>"

urlpatterns = [
    path(f"{_MINE}/budgets", api.Budgets.as_view()),
    path(f"{_MINE}/budgets/<id:subject_id>", api.OneBudget.as_view()),
]
