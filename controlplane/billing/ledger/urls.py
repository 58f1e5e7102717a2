"""Addresses of the ledger under /api/billing/."""

from django.urls import path

from controlplane.billing.ledger import api

_MINE = "organizations/<org:organization_id>"

urlpatterns = [
    path(f"{_MINE}/accounts", api.Accounts.as_view()),
    path(f"{_MINE}/entries", api.Entries.as_view()),
    path(f"{_MINE}/reconciliations", api.Reconciliations.as_view()),
]
