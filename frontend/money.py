"""Amounts of money as people type them, and what is wrong with a form, told on the next page."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.billing.invoice_models import PaymentOrder
from controlplane.billing.invoice_text import cents_text, usd_read
from controlplane.billing.payments_api import pay_url
from controlplane.kernel.money import NANO_PER_USD

NO_LINK = "There is no page to pay on; ask whoever runs this installation."
NANO_PER_CENT = NANO_PER_USD // 100


def nano_of(text: str, field: str) -> int:
    """Nano-USD of `1234.50`; raises ValidationError that names the field."""
    try:
        return usd_read(text)
    except ValueError:
        told = "Must be an amount in US dollars, such as 25.00."
        raise ValidationError({field: told}) from None


def cents_of(text: str, field: str) -> int:
    """Cents of `1234.50`; raises ValidationError where there are parts of a cent."""
    nano = nano_of(text, field)
    if nano % NANO_PER_CENT:
        raise ValidationError({field: "Must be whole cents."})
    return nano // NANO_PER_CENT


def say_wrong(request: HttpRequest, error: ValidationError) -> None:
    """A message for each field that is wrong."""
    for field, told in error.message_dict.items():
        messages.error(request, f"{field.replace('_', ' ').capitalize()}: {' '.join(told)}")


def pay_page(request: HttpRequest, order: PaymentOrder) -> HttpResponse:
    """Where the order can be paid: a link, since forms may not lead away from here."""
    context = {
        "title": f"Pay USD {cents_text(order.amount_cents)}",
        "text": "Pay exactly this amount, or it cannot be matched. It shows here within a minute.",
        "link": pay_url(order),
        "link_text": "Go to the payment page",
    }
    return render(request, "pages/notice.html", context)


def id_of(text: str, field: str) -> uuid.UUID:
    """An id that a form has carried; raises ValidationError for the field."""
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ValidationError({field: "This form was out of date; send it again."}) from None
