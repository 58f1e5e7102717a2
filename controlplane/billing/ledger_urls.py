"""Addresses of the ledger and of budgets under /api/billing/."""

from django.urls import path

from controlplane.billing import budgets_api, ledger_api

_MINE = "organizations/<hexid:organization_id>"

urlpatterns = [
    path(f"{_MINE}/accounts", ledger_api.Accounts.as_view()),
    path(f"{_MINE}/entries", ledger_api.Entries.as_view()),
    path(f"{_MINE}/requests/<hexid:charge_id>/reversals", ledger_api.Reversals.as_view()),
    path(f"{_MINE}/periods", ledger_api.Months.as_view()),
    path(f"{_MINE}/periods/<str:period>/close", ledger_api.MonthClose.as_view()),
    path(f"{_MINE}/reconciliations", ledger_api.Reconciliations.as_view()),
    path(f"{_MINE}/budgets", budgets_api.Budgets.as_view()),
    path(f"{_MINE}/budgets/<hexid:subject_id>", budgets_api.OneBudget.as_view()),
]
