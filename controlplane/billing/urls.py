"""Addresses under /api/billing/, by subject."""

from django.urls import path

from controlplane.billing.budgets import api as budgets
from controlplane.billing.decisions import api as decisions
from controlplane.billing.exports import api as exports
from controlplane.billing.invoices import api as invoices
from controlplane.billing.ledger import api as ledger
from controlplane.billing.margin import api as margin
from controlplane.billing.months import api as months
from controlplane.billing.payments import api as payments
from controlplane.billing.reversals import api as reversals
from controlplane.billing.wallets import api as wallets

_MINE = "organizations/<org:organization_id>"
_INVOICE = f"{_MINE}/invoices/<inv:invoice_id>"
_GRANT = f"{_MINE}/grants/<grant:grant_id>"
_EXPORT = f"{_MINE}/exports/<export:export_id>"
_FILE, _DECISION = invoices.InvoiceFile.as_view(), decisions.GrantDecision.as_view()

urlpatterns = [
    path(f"{_MINE}/accounts", ledger.Accounts.as_view()),
    path(f"{_MINE}/entries", ledger.Entries.as_view()),
    path(f"{_MINE}/reconciliations", ledger.Reconciliations.as_view()),
    path(f"{_MINE}/periods", months.Months.as_view()),
    path(f"{_MINE}/periods/<str:period>/close", months.MonthClose.as_view()),
    path(f"{_MINE}/budgets", budgets.Budgets.as_view()),
    path(f"{_MINE}/budgets/<id:subject_id>", budgets.OneBudget.as_view()),
    path(f"{_MINE}/wallet", wallets.OneWallet.as_view()),
    path(f"{_MINE}/grants", wallets.Grants.as_view()),
    path("payments/stripe", payments.stripe_events),
    path(f"{_MINE}/payments", payments.Payments.as_view()),
    path(f"{_MINE}/payment-orders", payments.PaymentOrders.as_view()),
    path(f"{_INVOICE}/payments", payments.InvoicePayments.as_view()),
    path(f"{_MINE}/invoices", invoices.Invoices.as_view()),
    path(f"{_MINE}/invoices/preview", invoices.Preview.as_view()),
    path(_INVOICE, invoices.OneInvoice.as_view()),
    *(path(f"{_INVOICE}.{form}", _FILE, {"form": form}) for form in invoices.FILES),
    path(f"{_MINE}/standing", invoices.OrganizationStanding.as_view()),
    path(f"{_MINE}/billing-profile", invoices.Profile.as_view()),
    path(f"{_INVOICE}/credit-notes", reversals.CreditNotes.as_view()),
    path(f"{_MINE}/requests/<req:charge_id>/reversals", reversals.Reversals.as_view()),
    path("grants", decisions.PendingGrants.as_view()),
    *(path(f"{_GRANT}/{word}", _DECISION, {"decision": word}) for word in decisions.DECISIONS),
    path(f"{_MINE}/exports", exports.Exports.as_view()),
    path(f"{_MINE}/exports/stream", exports.ExportStream.as_view()),
    path(_EXPORT, exports.OneExport.as_view()),
    path(f"{_EXPORT}/file", exports.ExportDownload.as_view()),
    path("margin", margin.MarginView.as_view()),
]
