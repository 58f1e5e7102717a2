"""Payments as programs see them."""

from datetime import datetime
from typing import TypedDict

from controlplane.billing.payments.models import Payment
from controlplane.core.answers import answer_of
from controlplane.kernel.ids import InvoiceId, PaymentId


class PaymentJson(TypedDict):
    """Money that came in."""

    id: PaymentId
    object: str
    provider: str
    reference: str
    amount_cents: int
    invoice: InvoiceId | None
    booked_at: datetime


def payment_json(payment: Payment) -> PaymentJson:
    return answer_of(
        PaymentJson,
        payment,
        object="payment",
        invoice=payment.invoice_id,
        booked_at=payment.created_at,
    )
