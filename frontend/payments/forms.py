"""What people type about payments, and the way to the page that takes them."""

import uuid

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.billing.documents.text import cents_text
from controlplane.billing.payments.api import pay_url
from controlplane.billing.payments.models import PaymentOrder
from controlplane.kernel.ids import uuid_asked
from controlplane.kernel.money import NANO_PER_USD
from frontend.shared.forms import nano_of

NO_LINK = "Online payment is not set up. Contact the operator of this installation."
NANO_PER_CENT = NANO_PER_USD // 100


def cents_of(text: str, field: str) -> int:
    """Cents of `1234.50`; raises ValidationError where there are parts of a cent."""
    nano = nano_of(text, field)
    if nano % NANO_PER_CENT:
        raise ValidationError({field: "Must be whole cents."})
    return nano // NANO_PER_CENT


def pay_page(request: HttpRequest, order: PaymentOrder) -> HttpResponse:
    """Where the order can be paid: a link, since forms may not lead away from here."""
    context = {
        "title": f"Pay USD {cents_text(order.amount_cents)}",
        "text": "Pay exactly this amount so that it can be matched. It appears here within a "
        "minute.",
        "link": pay_url(order),
        "link_text": "Go to the payment page",
    }
    return render(request, "shared/notice.html", context)


def id_of(text: str, field: str) -> uuid.UUID:
    """An id that a form has carried; raises ValidationError for the field."""
    wrong = ValidationError({field: "This form has expired; submit it again."})
    return uuid_asked(text, "", wrong)
