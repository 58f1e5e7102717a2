"""Money that comes in: orders that we expect to be paid, and payments, which are never changed."""

from typing import ClassVar

from django.db import models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint

from controlplane.billing.documents.models import CURRENCY, Invoice
from controlplane.core.models import BaseModel

REFERENCE_CHARS_MAX = 200


class Provider(models.TextChoices):
    STRIPE = "stripe"
    BANK = "bank"


class PaymentOrder(BaseModel):
    """A payment that we expect: an invoice to be paid, or a top-up where `invoice` is null."""

    organization = models.UUIDField()
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, null=True, blank=True)
    provider = models.CharField(max_length=6, choices=Provider.choices)
    amount_cents = models.BigIntegerField()
    currency = models.CharField(max_length=3, default=CURRENCY)
    ordered_by = models.TextField()

    class Meta:
        db_table = "payment_orders"
        constraints: ClassVar = [
            CheckConstraint(condition=Q(amount_cents__gt=0), name="payment_order_is_positive")
        ]

    @property
    def reference(self) -> str:
        """What the provider carries back to us: whose order, and which."""
        return f"{self.organization.hex}_{self.id.hex}"


class Payment(BaseModel):
    """Money that came in: an event of a provider, or a transfer that a person recorded.

    `event` is the provider's id of the event, `reference` its id of the payment itself.
    """

    organization = models.UUIDField()
    provider = models.CharField(max_length=6, choices=Provider.choices)
    event = models.CharField(max_length=REFERENCE_CHARS_MAX)
    reference = models.CharField(max_length=REFERENCE_CHARS_MAX)
    order = models.OneToOneField(PaymentOrder, on_delete=models.PROTECT, null=True, blank=True)
    invoice = models.ForeignKey(
        Invoice, on_delete=models.PROTECT, null=True, blank=True, related_name="payments"
    )
    amount_cents = models.BigIntegerField()
    recorded_by = models.TextField()

    class Meta:
        db_table = "payments"
        constraints: ClassVar = [
            UniqueConstraint(fields=["provider", "event"], name="payment_event_once"),
            UniqueConstraint(fields=["provider", "reference"], name="payment_once"),
            CheckConstraint(condition=Q(amount_cents__gt=0), name="payment_is_positive"),
        ]
        indexes: ClassVar = [Index(fields=["organization", "-id"], name="payment_newest_first")]
