"""Documents of an organization with where they stand, for those who may see its money."""

from typing import NamedTuple
from uuid import UUID

from controlplane.billing.access import money_scope
from controlplane.billing.documents.models import Invoice
from controlplane.billing.documents.profiles import invoice_get
from controlplane.billing.payments.dunning import Standing
from controlplane.billing.payments.models import Payment
from controlplane.billing.payments.selectors import standings
from controlplane.core.answers import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import organization_scope


class FoundDocument(NamedTuple):
    """One document with where it stands and what refers to it."""

    standing: Standing
    notes: list[Invoice]
    payments: list[Payment]


def invoice_list(
    *, actor: Actor, organization_id: UUID, ask: PageAsk = FIRST_PAGE
) -> Page[Standing]:
    with money_scope(actor, organization_id):
        rows = Invoice.objects.filter(organization=organization_id)
        found = page_read(rows.select_related("corrects").defer("lines"), ask)
        return Page(standings(found.rows), found.has_more)


def invoice_found(*, actor: Actor, organization_id: UUID, invoice_id: UUID) -> FoundDocument:
    invoice = invoice_get(actor=actor, organization_id=organization_id, invoice_id=invoice_id)
    with organization_scope([organization_id]):
        (standing,) = standings([invoice])
        notes = list(invoice.notes.order_by("id"))
        payments = list(invoice.payments.order_by("id"))
    return FoundDocument(standing, notes, payments)
