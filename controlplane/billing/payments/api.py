"""Payments under /api/billing/: what came in, what is expected, and Stripe's door.

Stripe's events come from a stranger: nothing of them is believed before the signature is, and the
answer tells nothing of our orders.
"""

import uuid
from datetime import datetime
from typing import Annotated, TypedDict

import msgspec
import structlog
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.approvals.models import WalletGrant
from controlplane.billing.approvals.shapes import WAITS, GrantJson, grant_json
from controlplane.billing.documents.profiles import invoice_get
from controlplane.billing.payments import services, stripe
from controlplane.billing.payments.models import Payment, PaymentOrder, Provider
from controlplane.billing.payments.selectors import payment_list
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, operation
from controlplane.core.errors.body import failure
from controlplane.core.permissions import Action
from controlplane.kernel.clock import wall_s
from controlplane.kernel.ids import InvoiceId, PaymentId, PaymentOrderId, kind
from controlplane.tenants.access import require

log = structlog.get_logger(__name__)


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


class OrderBody(msgspec.Struct, forbid_unknown_fields=True):
    """An invoice to pay, or an amount to top up."""

    invoice: Annotated[uuid.UUID, kind("inv")] | None = None
    amount_cents: int | None = None
    becomes_prepaid: bool = False


class PaymentBody(msgspec.Struct, forbid_unknown_fields=True):
    """A bank transfer; `reference` is the bank's."""

    amount_cents: int
    reference: str


class OrderJson(TypedDict):
    """`reference` goes into the payment, as `client_reference_id` or metadata `sluice_order`."""

    id: PaymentOrderId
    object: str
    reference: str
    amount_cents: int
    currency: str
    invoice: InvoiceId | None
    url: str | None


class Payments(MoneyView, at="payments"):
    @operation(list_of=PaymentJson)
    def get(self) -> Response:
        """List payments by providers and by bank transfer."""
        return self.page(payment_list(**self.whose(), ask=self.page_ask("payment")), payment_json)


class PaymentOrders(MoneyView, at="payment-orders"):
    @operation(body=OrderBody, answer={CREATED: OrderJson}, example={"amount_cents": 5_000})
    def post(self, organization_id: uuid.UUID) -> OrderJson:
        """Create a payment order; no money is moved."""
        actor = self.actor()
        require(actor, Action.INVOICE_ISSUE, organization_id)
        wanted = self.body(OrderBody)
        if (wanted.invoice is None) == (wanted.amount_cents is None):
            raise ValidationError({"invoice": "Set an invoice, or an amount to top up."})
        invoice = None
        if wanted.invoice is not None:
            invoice = invoice_get(
                actor=actor, organization_id=organization_id, invoice_id=wanted.invoice
            )
        made = services.payment_order_create(
            actor=actor,
            organization_id=organization_id,
            amount_cents=wanted.amount_cents,
            invoice=invoice,
            becomes_prepaid=wanted.becomes_prepaid,
        )
        return order_json(made)


class InvoicePayments(MoneyView, at="invoices/<inv:invoice_id>/payments"):
    @operation(body=PaymentBody, answer={CREATED: PaymentJson, WAITS: GrantJson}, step_up=True)
    def post(self, invoice_id: uuid.UUID) -> Response:
        """Record a bank transfer; 202 with the grant if it needs approval."""
        require(self.actor(), Action.CREDIT_GRANT)
        wanted = self.body(PaymentBody)
        invoice = invoice_get(**self.whose(), invoice_id=invoice_id)
        made = services.payment_record(
            actor=self.actor(),
            invoice=invoice,
            amount_cents=wanted.amount_cents,
            reference=wanted.reference,
        )
        if isinstance(made, WalletGrant):
            return Response(grant_json(made), status=WAITS)
        return Response(payment_json(made), status=CREATED)


@csrf_exempt
@require_POST
def stripe_events(request: HttpRequest) -> HttpResponse:
    """`POST payments/stripe`: 200 for what was booked now or before, and for events of other kinds.

    4xx changes nothing: 400 for a bad signature or event, 409 for one that matches no order.
    """
    if not settings.STRIPE_WEBHOOK:
        return _told(400, "Stripe payments are disabled")
    body = _bounded(request)
    if body is None:
        return _told(413, "too large")
    try:
        header = request.headers.get("Stripe-Signature", "")
        stripe.signature_check(header, body, settings.STRIPE_SECRETS, wall_s())
        paid = stripe.event_read(body)
        booked = paid is not None and services.payment_receive(provider=Provider.STRIPE, paid=paid)
    except (stripe.BadSignature, stripe.BadEvent) as error:
        log.warning("payment_event_refused", reason=str(error))
        return _told(400, "unhandled event")
    except services.PaymentRefused as error:
        log.warning("payment_refused", reason=str(error), event_id=paid.event if paid else "")
        return _told(409, "unknown order")
    return JsonResponse({"booked": booked})


def order_json(order: PaymentOrder) -> OrderJson:
    return answer_of(
        OrderJson, order, object="payment_order", invoice=order.invoice_id, url=pay_url(order)
    )


def pay_url(order: PaymentOrder) -> str | None:
    """Where a customer pays it, if the installation has such a page."""
    link = settings.STRIPE_LINK
    return f"{link}?client_reference_id={order.reference}" if link else None


def _bounded(request: HttpRequest) -> bytes | None:
    """The raw body, which is what was signed; None beyond the bound."""
    said = request.headers.get("Content-Length", "")
    if said.isascii() and said.isdecimal() and int(said[:12]) > stripe.EVENT_BYTES_MAX:
        return None
    body = request.read(stripe.EVENT_BYTES_MAX + 1)
    return body if len(body) <= stripe.EVENT_BYTES_MAX else None


def _told(status: int, message: str) -> JsonResponse:
    return JsonResponse(failure(status, message), status=status)
