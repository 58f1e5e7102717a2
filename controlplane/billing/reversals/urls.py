"""Addresses of what gives back, under /api/billing/."""

from django.urls import path

from controlplane.billing.reversals import api

_MINE = "organizations/<hexid:organization_id>"

urlpatterns = [
    path(f"{_MINE}/invoices/<hexid:invoice_id>/credit-notes", api.CreditNotes.as_view()),
    path(f"{_MINE}/requests/<hexid:charge_id>/reversals", api.Reversals.as_view()),
]
