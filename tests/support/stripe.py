"""Events as Stripe sends them: signed over the raw body, with the secret of the test."""

from __future__ import annotations

import hmac
import json
import time
from hashlib import sha256
from typing import Any

from django.test import Client

from controlplane.billing.payments.models import PaymentOrder

SECRET = "whsec_a-secret-of-the-tests-only-0123456789"
URL = "/api/billing/payments/stripe"
# What Stripe sends beside what we read; none of it may be kept anywhere.
CARD = {"card": {"brand": "visa", "last4": "4242", "exp_year": 2031}, "name": "Cara Holder"}


def session_event(
    order: PaymentOrder, *, event: str = "evt_1", intent: str = "pi_1", **changes: Any
) -> dict[str, Any]:
    """A checkout session that was paid, as the order says; `changes` are of the session."""
    session = {
        "id": "cs_1",
        "object": "checkout.session",
        "client_reference_id": order.reference,
        "payment_intent": intent,
        "payment_status": "paid",
        "amount_total": order.amount_cents,
        "currency": "usd",
        "metadata": {},
        "payment_method_details": CARD,
        **changes,
    }
    return {"id": event, "type": "checkout.session.completed", "data": {"object": session}}


def signature(body: bytes, secret: str = SECRET, at: float | None = None) -> str:
    """The header's value."""
    moment = int(time.time() if at is None else at)
    digest = hmac.new(secret.encode(), f"{moment}.".encode() + body, sha256).hexdigest()
    return f"t={moment},v1={digest}"


def send(event: dict[str, Any], header: str | None = None) -> Any:
    """Post an event, well signed unless a header is given."""
    return send_raw(json.dumps(event).encode(), header)


def send_raw(body: bytes, header: str | None = None) -> Any:
    """Post bytes."""
    headers = {"Stripe-Signature": signature(body) if header is None else header}
    client = Client(enforce_csrf_checks=True)
    return client.post(URL, body, content_type="application/json", headers=headers)
