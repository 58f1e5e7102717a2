"""Tables of money as Django sees them; only SQL functions write them, but for a budget's limit.

Checks, partitions, triggers and policies are in `sql/`, so the models are unmanaged.
"""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

# Django finds an app's models by importing this module.
from controlplane.billing import invoice_models as invoice_models

UNLIMITED_NANO = 4_000_000_000_000_000_000


class BudgetScope(models.TextChoices):
    """What a budget limits."""

    KEY = "key"
    PROJECT = "project"
    ORGANIZATION = "organization"


class Budget(models.Model):
    """How much a key, project or organization may spend, in nano-USD. `id` is that thing's id.

    `over` is the most by which `posted + held` ever passed `lim`: overage, late charges, or a limit
    that was lowered below what is spent. A check holds `posted + held <= lim + over`.
    """

    id = models.UUIDField(primary_key=True)
    organization = models.UUIDField()
    scope = models.TextField(choices=BudgetScope.choices)
    lim = models.BigIntegerField()
    posted = models.BigIntegerField(default=0)
    held = models.BigIntegerField(default=0)
    over = models.BigIntegerField(default=0)

    class Meta:
        """Row per limited thing; the hottest rows of the product."""

        managed = False
        db_table = "budgets"

    @property
    def room_nano(self) -> int:
        """What a new hold may still take."""
        return max(0, self.lim - self.posted - self.held)


class Priced(models.Model):
    """Who pays for which model at which price: shared by open holds and transfers.

    `others` are the prices of further models that might have served a held request, by name.
    """

    organization = models.UUIDField()
    project = models.UUIDField()
    key = models.UUIDField()
    amount = models.BigIntegerField()
    model = models.TextField()
    price_version = models.IntegerField()
    input_pico = models.BigIntegerField()
    cached_pico = models.BigIntegerField()
    output_pico = models.BigIntegerField()
    others = models.JSONField(null=True)

    class Meta:
        """Columns only."""

        abstract = True


class OpenHold(Priced):
    """A hold that nothing has resolved yet; its row is deleted when it is."""

    request = models.UUIDField(primary_key=True)
    budgets = ArrayField(models.UUIDField())
    expires_at = models.DateTimeField()

    class Meta:
        """Unpartitioned and small."""

        managed = False
        db_table = "open_holds"


class TransferKind(models.TextChoices):
    """What a transfer does: a hold is pending, three kinds post, two give back."""

    HOLD = "hold"
    SETTLE = "settle"
    RELEASE = "release"
    EXPIRE = "expire"
    OVERAGE = "overage"
    LATE = "late"


POSTING_KINDS = (TransferKind.SETTLE, TransferKind.OVERAGE, TransferKind.LATE)


class Transfer(Priced):
    """One ledger line: `amount` from the credit account's point of view, never changed."""

    pk = models.CompositePrimaryKey("request", "slot")
    request = models.UUIDField()
    slot = models.SmallIntegerField()
    kind = models.TextField(choices=TransferKind.choices)
    debit = models.TextField()
    credit = models.TextField()
    uncached = models.IntegerField()
    cached = models.IntegerField()
    output = models.IntegerField()
    source = models.TextField()
    budgets = ArrayField(models.UUIDField(), null=True)
    booked_at = models.DateTimeField()

    class Meta:
        """Daily partitions by request id; append-only by triggers."""

        managed = False
        db_table = "transfers"
        ordering: ClassVar[list[str]] = ["request", "slot"]


class LedgerSeal(models.Model):
    """SHA-256 over the transfers booked in [from_at, to_at), chained to the seal before."""

    number = models.BigIntegerField(primary_key=True)
    from_at = models.DateTimeField()
    to_at = models.DateTimeField()
    rows = models.BigIntegerField()
    amount = models.DecimalField(max_digits=38, decimal_places=0)
    previous = models.BinaryField()
    digest = models.BinaryField()

    class Meta:
        """Append-only too."""

        managed = False
        db_table = "ledger_seals"
        ordering: ClassVar[list[str]] = ["number"]
