"""Money that comes in: orders that we expect to be paid, what a provider reports, bank transfers.

A payment counts only if it matches an order of ours in organization, amount, currency and provider;
anything else changes nothing. No data of cards is ever kept.
"""

import uuid

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from controlplane.billing.approvals.models import GrantKind, WalletGrant
from controlplane.billing.approvals.services import Asker, asker_of, grant_ask, subject_of
from controlplane.billing.documents.lines import NANO_PER_CENT
from controlplane.billing.documents.models import CURRENCY, DocumentKind, Invoice
from controlplane.billing.documents.services import OWN
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.journal import journal_book
from controlplane.billing.ledger.models import EntryKind
from controlplane.billing.payments.models import (
    REFERENCE_CHARS_MAX,
    Payment,
    PaymentOrder,
    Provider,
)
from controlplane.billing.payments.selectors import open_invoices
from controlplane.billing.payments.stripe import Paid
from controlplane.billing.wallets.services import require_confirmed
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.errors.body import Conflict
from controlplane.core.permissions import Action, organization_scope
from controlplane.tenants.access import require

AMOUNT_CENTS_MAX = 10_000_000_000
_HEX_CHARS = 32


class PaymentRefused(Exception):
    """What was reported matches no order of ours; nothing was booked."""


def payment_order_create(
    *,
    actor: Actor,
    organization_id: uuid.UUID,
    amount_cents: int | None = None,
    invoice: Invoice | None = None,
    becomes_prepaid: bool = False,
) -> PaymentOrder:
    """Expect a payment through Stripe: of what is open of an invoice, or a top-up of an amount.

    Moves no money. The first top-up makes the organization prepaid: `becomes_prepaid` confirms it.
    Raises ValidationError that names the field.
    """
    require(actor, Action.INVOICE_ISSUE, organization_id)
    if invoice is not None:
        found = open_invoices(actor=actor, organization_id=organization_id)
        mine = [each.open_cents for each in found if each.invoice.id == invoice.id]
        if not mine:
            raise ValidationError({"invoice": "The invoice has no open amount."})
        amount_cents = mine[0]
    if amount_cents is None or not 1 <= amount_cents <= AMOUNT_CENTS_MAX:
        raise ValidationError({"amount": f"Must be 0.01 to {AMOUNT_CENTS_MAX // 100:,} USD."})
    with organization_scope([organization_id]):
        if invoice is None:
            require_confirmed(organization_id, becomes_prepaid)
        made = PaymentOrder.objects.create(
            organization=organization_id,
            invoice=invoice,
            provider=Provider.STRIPE,
            amount_cents=amount_cents,
            currency=CURRENCY,
            ordered_by=actor.actor_label,
        )
        audit_record(
            actor,
            "payment_order.create",
            subject=made,
            detail={"amount_cents": amount_cents, "invoice": invoice.title if invoice else None},
        )
    return made


def payment_receive(*, provider: Provider, paid: Paid) -> bool:
    """Book what a provider reports; False where the same report was booked before.

    Raises PaymentRefused where it matches no order; then nothing has changed.
    """
    organization, order_id = _reference(paid.order)
    reporter = Asker(None, f"payments:{provider.value}")
    with organization_scope([organization]):
        order = PaymentOrder.objects.filter(id=order_id, organization=organization).first()
        if order is None or order.provider != provider.value:
            raise PaymentRefused("unknown order")
        if (paid.amount_cents, paid.currency) != (order.amount_cents, order.currency):
            raise PaymentRefused("amount or currency differs from the order")
        if not 1 <= len(paid.event) <= REFERENCE_CHARS_MAX >= len(paid.reference) >= 1:
            raise PaymentRefused("an invalid id")
        made = Payment(
            organization=organization,
            provider=provider.value,
            event=paid.event,
            reference=paid.reference,
            order=order,
            invoice=order.invoice,
            amount_cents=paid.amount_cents,
            recorded_by=reporter.actor_label,
        )
        if not _insert(made):
            return _seen_before(made)
        _book(reporter, made)
    return True


def payment_record(
    *, actor: Actor, invoice: Invoice, amount_cents: int, reference: str
) -> Payment | WalletGrant:
    """Book a bank transfer that arrived for an invoice; `reference` is the bank's, and unique.

    Above the limit of one person it is the grant that waits for a second one.
    """
    require(actor, Action.CREDIT_GRANT)
    reference = " ".join(reference.split())
    if invoice.kind != DocumentKind.INVOICE:
        raise ValidationError({"invoice": "Only invoices can be paid."})
    if not 1 <= amount_cents <= AMOUNT_CENTS_MAX:
        raise ValidationError({"amount": f"Must be 0.01 to {AMOUNT_CENTS_MAX // 100:,} USD."})
    if not 1 <= len(reference) <= REFERENCE_CHARS_MAX or not reference.isprintable():
        raise ValidationError({"reference": f"Must have 1 to {REFERENCE_CHARS_MAX} characters."})
    wish = WalletGrant(
        organization=invoice.organization,
        kind=GrantKind.PAYMENT,
        amount_nano=amount_cents * NANO_PER_CENT,
        reason=f"Bank transfer {reference}",
        subject=invoice.id,
        about=invoice.title,
        terms={"reference": reference},
    )
    with organization_scope([invoice.organization]):
        return grant_ask(actor=actor, wish=wish, book=payment_book)


def payment_book(grant: WalletGrant) -> Payment:
    """Book the transfer that was entered; inside the organization's scope.

    Raises Conflict where its reference was booked before.
    """
    made = Payment(
        organization=grant.organization,
        provider=Provider.BANK,
        event=grant.terms["reference"],
        reference=grant.terms["reference"],
        invoice=Invoice.objects.get(id=subject_of(grant), organization=grant.organization),
        amount_cents=grant.amount_nano // NANO_PER_CENT,
        recorded_by=grant.asked_label,
    )
    if not _insert(made):
        raise Conflict({"reference": "This transfer was already recorded."})
    _book(asker_of(grant), made, approved_by=grant.decided_label or None)
    return made


def _reference(text: str) -> tuple[uuid.UUID, uuid.UUID]:
    organization, _, order = text.partition("_")
    try:
        if (len(organization), len(order)) != (_HEX_CHARS, _HEX_CHARS):
            raise ValueError(text)
        return uuid.UUID(hex=organization), uuid.UUID(hex=order)
    except ValueError:
        raise PaymentRefused("unknown reference") from None


def _insert(made: Payment) -> bool:
    """Whether it is new: event, payment and order each count once, whatever comes at once."""
    try:
        with transaction.atomic():
            made.save(force_insert=True)
    except IntegrityError:
        return False
    return True


def _seen_before(again: Payment) -> bool:
    """False for a report of what is booked; raises PaymentRefused for a second payment."""
    rows = Payment.objects.filter(provider=again.provider, order=again.order)
    if rows.filter(reference=again.reference).exists() or rows.filter(event=again.event).exists():
        return False
    raise PaymentRefused("an order that was already paid, or ids of another payment")


def _book(actor: Actor, payment: Payment, approved_by: str | None = None) -> None:
    organization = payment.organization
    topup = payment.invoice is None
    told = "Top-up" if topup else f"Payment of {payment.invoice}"
    journal_book(
        organization=organization,
        kind=EntryKind.TOPUP if topup else EntryKind.PAYMENT,
        debit=accounts.cash(payment.provider),
        credit=accounts.wallet(organization) if topup else accounts.receivable(organization),
        nano=payment.amount_cents * NANO_PER_CENT,
        reason=f"{told} by {payment.provider}",
        reference=payment.reference,
        idempotency=f"{OWN}payment:{payment.id}",
        actor=actor,
        approved_by=approved_by,
    )
    audit_record(
        actor,
        "payment.book",
        subject=payment,
        detail={
            "provider": payment.provider,
            "reference": payment.reference,
            "amount_cents": payment.amount_cents,
            "invoice": payment.invoice.title if payment.invoice else None,
        },
    )
