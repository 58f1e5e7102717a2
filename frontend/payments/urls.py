"""Addresses of the group's pages."""

from django.urls import path

from frontend.payments import invoice_views, wallet_views

urlpatterns = [
    path("invoices", invoice_views.invoice_index, name="invoices"),
    path("invoices/preview", invoice_views.invoice_preview, name="invoice_preview"),
    path("invoices/issue", invoice_views.invoice_make, name="invoice_make"),
    path("invoices/profile", invoice_views.invoice_profile, name="invoice_profile"),
    path("invoices/<inv:invoice_id>", invoice_views.invoice_detail, name="invoice"),
    path("invoices/<inv:invoice_id>.<slug:form>", invoice_views.invoice_file, name="invoice_file"),
    path("invoices/<inv:invoice_id>/credit", invoice_views.invoice_credit, name="invoice_credit"),
    path("invoices/<inv:invoice_id>/paid", invoice_views.invoice_paid, name="invoice_paid"),
    path("invoices/<inv:invoice_id>/pay", invoice_views.invoice_pay, name="invoice_pay"),
    path("wallet", wallet_views.wallet, name="wallet"),
    path("wallet/pay", wallet_views.wallet_pay, name="wallet_pay"),
    path("grants", wallet_views.grant_index, name="grants"),
    path("grants/new", wallet_views.grant_make, name="grant_make"),
    path(
        "grants/<org:organization_id>/<grant:grant_id>/<slug:decision>",
        wallet_views.grant_decide,
        name="grant_decide",
    ),
]
