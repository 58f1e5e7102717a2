"""Payments as programs see them."""

from __future__ import annotations

from typing import TypedDict

from controlplane.billing.payments.models import Payment


class PaymentJson(TypedDict):
    """Money that came in."""

    id: str
    object: str
    provider: str
    reference: str
    amount_cents: int
    invoice: str | None
    booked_at: str


def payment_json(payment: Payment) -> PaymentJson:
    return {
        "id": str(payment.id),
        "object": "payment",
        "provider": payment.provider,
        "reference": payment.reference,
        "amount_cents": payment.amount_cents,
        "invoice": str(payment.invoice_id) if payment.invoice_id else None,
        "booked_at": payment.created_at.isoformat(),
    }
