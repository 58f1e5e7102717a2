"""Addresses of invoices, wallets and payments under /api/billing/."""

from django.urls import path

from controlplane.billing import invoices_api, payments_api, wallets_api

_MINE = "organizations/<hexid:organization_id>"
_ONE = f"{_MINE}/invoices/<hexid:invoice_id>"

urlpatterns = [
    path("payments/stripe", payments_api.stripe_events),
    path("grants", wallets_api.PendingGrants.as_view()),
    path(f"{_MINE}/invoices", invoices_api.Invoices.as_view()),
    path(f"{_MINE}/invoices/preview", invoices_api.Preview.as_view()),
    path(_ONE, invoices_api.OneInvoice.as_view()),
    *(
        path(f"{_ONE}.{form}", invoices_api.InvoiceFile.as_view(), {"form": form})
        for form in invoices_api.FILES
    ),
    path(f"{_ONE}/credit-notes", invoices_api.CreditNotes.as_view()),
    path(f"{_ONE}/payments", invoices_api.InvoicePayments.as_view()),
    path(f"{_MINE}/standing", invoices_api.OrganizationStanding.as_view()),
    path(f"{_MINE}/billing-profile", invoices_api.Profile.as_view()),
    path(f"{_MINE}/payments", payments_api.Payments.as_view()),
    path(f"{_MINE}/payment-orders", payments_api.PaymentOrders.as_view()),
    path(f"{_MINE}/wallet", wallets_api.OneWallet.as_view()),
    path(f"{_MINE}/grants", wallets_api.Grants.as_view()),
    *(
        path(
            f"{_MINE}/grants/<hexid:grant_id>/{word}",
            wallets_api.GrantDecision.as_view(),
            {"decision": word},
        )
        for word in wallets_api.DECISIONS
    ),
]
