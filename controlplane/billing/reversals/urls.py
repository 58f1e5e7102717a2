"""Addresses of what gives back, under /api/billing/."""

from django.urls import path

from controlplane.billing.reversals import api

_MINE = "organizations/<org:organization_id>"

urlpatterns = [
    path(f"{_MINE}/invoices/<inv:invoice_id>/credit-notes", api.CreditNotes.as_view()),
    path(f"{_MINE}/requests/<req:charge_id>/reversals", api.Reversals.as_view()),
]
