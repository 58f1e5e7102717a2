"""Documents and payments of an organization, for those who may see its money."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from django.db.models import Sum

from controlplane.billing.dunning import Standing
from controlplane.billing.invoice_models import (
    BillingProfile,
    DocumentKind,
    Invoice,
    Payment,
    PaymentOrder,
)
from controlplane.billing.wallets_selectors import may_see_money
from controlplane.core.audit import Actor
from controlplane.core.paging import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.scope import organization_scope

# More open invoices than years have months, many times over.
OPEN_MAX = 1_000


class Found(NamedTuple):
    """One document with where it stands and what refers to it."""

    standing: Standing
    notes: list[Invoice]
    payments: list[Payment]


def invoice_list(
    *, actor: Actor, organization_id: uuid.UUID, ask: PageAsk = FIRST_PAGE
) -> Page[Standing]:
    """Documents of an organization, newest first."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        rows = Invoice.objects.filter(organization=organization_id)
        found = page_read(rows.select_related("corrects").defer("lines"), ask)
        return Page(_standings(found.rows), found.has_more)


def open_invoices(*, actor: Actor, organization_id: uuid.UUID) -> list[Standing]:
    """Invoices of which something is still owed, oldest first."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        rows = Invoice.objects.filter(organization=organization_id, kind=DocumentKind.INVOICE)
        found = _standings(rows.defer("lines").order_by("id")[:OPEN_MAX])
    return [standing for standing in found if standing.open_cents > 0]


def credit_cents(*, actor: Actor, organization_id: uuid.UUID) -> int:
    """What is left over of its invoices, and is taken off the next one."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        return left_over_cents(organization_id)


def left_over_cents(organization_id: uuid.UUID) -> int:
    """The same inside the organization's scope: what was left over, less what was carried on."""
    rows = Invoice.objects.filter(organization=organization_id, kind=DocumentKind.INVOICE)
    found = _standings(rows.defer("lines").order_by("-id")[:OPEN_MAX])
    return sum(each.left_over_cents - each.invoice.carried_cents for each in found)


def invoice_get(*, actor: Actor, organization_id: uuid.UUID, invoice_id: uuid.UUID) -> Invoice:
    """One document; raises DoesNotExist for those of others."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        rows = Invoice.objects.select_related("corrects")
        return rows.get(id=invoice_id, organization=organization_id)


def invoice_found(*, actor: Actor, organization_id: uuid.UUID, invoice_id: uuid.UUID) -> Found:
    """One document with its notes and payments."""
    invoice = invoice_get(actor=actor, organization_id=organization_id, invoice_id=invoice_id)
    with organization_scope([organization_id]):
        (standing,) = _standings([invoice])
        notes = list(invoice.notes.order_by("id"))
        payments = list(invoice.payments.order_by("id"))
    return Found(standing, notes, payments)


def payment_list(
    *, actor: Actor, organization_id: uuid.UUID, ask: PageAsk = FIRST_PAGE
) -> Page[Payment]:
    """Money that came in from an organization, newest first."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        rows = Payment.objects.filter(organization=organization_id).select_related("invoice")
        return page_read(rows, ask)


def order_get(*, actor: Actor, organization_id: uuid.UUID, order_id: uuid.UUID) -> PaymentOrder:
    """One payment that is expected; raises DoesNotExist."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        return PaymentOrder.objects.get(id=order_id, organization=organization_id)


def billing_profile(*, actor: Actor, organization_id: uuid.UUID) -> BillingProfile:
    """To whom documents go; an empty one where none was set."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        found = BillingProfile.objects.filter(organization=organization_id).first()
    return found or BillingProfile(organization=organization_id)


def _standings(invoices: Iterable[Invoice]) -> list[Standing]:
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
