"""Addresses of invoices under /api/billing/."""

from django.urls import path

from controlplane.billing.invoices import api

_MINE = "organizations/<org:organization_id>"
_ONE = f"{_MINE}/invoices/<inv:invoice_id>"

urlpatterns = [
    path(f"{_MINE}/invoices", api.Invoices.as_view()),
    path(f"{_MINE}/invoices/preview", api.Preview.as_view()),
    path(_ONE, api.OneInvoice.as_view()),
    *(path(f"{_ONE}.{form}", api.InvoiceFile.as_view(), {"form": form}) for form in api.FILES),
    path(f"{_MINE}/standing", api.OrganizationStanding.as_view()),
    path(f"{_MINE}/billing-profile", api.Profile.as_view()),
]
