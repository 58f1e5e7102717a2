"""Addresses under /api/billing/, of each subject."""

from django.urls import include, path

_SUBJECTS = (
    *("ledger", "months", "budgets", "wallets", "payments", "invoices", "reversals", "decisions"),
    *("exports", "margin"),
)

urlpatterns = [path("", include(f"controlplane.billing.{name}.urls")) for name in _SUBJECTS]
