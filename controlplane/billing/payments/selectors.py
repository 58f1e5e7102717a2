"""What came in of an organization, and what is still owed, for those who may see its money."""

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

from django.db.models import Sum

from controlplane.billing.access import money_scope
from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.billing.payments.dunning import Standing
from controlplane.billing.payments.models import Payment
from controlplane.core.answers import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor

# More open invoices than years have months, many times over.
OPEN_MAX = 1_000


def open_invoices(*, actor: Actor, organization_id: uuid.UUID) -> list[Standing]:
    """Invoices of which something is still owed, oldest first."""
    with money_scope(actor, organization_id):
        rows = Invoice.objects.filter(organization=organization_id, kind=DocumentKind.INVOICE)
        found = standings(rows.defer("lines").order_by("id")[:OPEN_MAX])
    return [standing for standing in found if standing.open_cents > 0]


def credit_cents(*, actor: Actor, organization_id: uuid.UUID) -> int:
    """What is left over of its invoices, and is taken off the next one."""
    with money_scope(actor, organization_id):
        return left_over_cents(organization_id)


def left_over_cents(organization_id: uuid.UUID) -> int:
    """The same inside the organization's scope: what was left over, less what was carried on."""
    rows = Invoice.objects.filter(organization=organization_id, kind=DocumentKind.INVOICE)
    found = standings(rows.defer("lines").order_by("-id")[:OPEN_MAX])
    return sum(each.left_over_cents - each.invoice.carried_cents for each in found)


def payment_list(
    *, actor: Actor, organization_id: uuid.UUID, ask: PageAsk = FIRST_PAGE
) -> Page[Payment]:
    with money_scope(actor, organization_id):
        rows = Payment.objects.filter(organization=organization_id).select_related("invoice")
        return page_read(rows, ask)


def standings(invoices: Iterable[Invoice]) -> list[Standing]:
    """Each with the sums of what refers to it, in two readings for all of them."""
    rows = list(invoices)
    ids = [row.id for row in rows]
    paid = dict(
        Payment.objects.filter(invoice__in=ids).values_list("invoice").annotate(Sum("amount_cents"))
    )
    credited = dict(
        Invoice.objects.filter(corrects__in=ids)
        .values_list("corrects")
        .annotate(Sum("total_cents"))
    )
    today = datetime.now(UTC).date()
    return [Standing(row, paid.get(row.id, 0), credited.get(row.id, 0), today) for row in rows]
