"""Addresses of payments under /api/billing/."""

from django.urls import path

from controlplane.billing.payments import api

_MINE = "organizations/<org:organization_id>"

urlpatterns = [
    path("payments/stripe", api.stripe_events),
    path(f"{_MINE}/payments", api.Payments.as_view()),
    path(f"{_MINE}/payment-orders", api.PaymentOrders.as_view()),
    path(f"{_MINE}/invoices/<inv:invoice_id>/payments", api.InvoicePayments.as_view()),
]
