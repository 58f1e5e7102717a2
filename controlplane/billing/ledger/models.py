"""The ledger as Django sees it: holds, transfers, journal entries, seals and hours.

Only SQL functions write them. Checks, partitions, triggers and policies are in `billing/sql/`, so
the models are unmanaged.
"""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

from controlplane.core.models import BaseModel


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


class EntryKind(models.TextChoices):
    """Why something was booked that is no request."""

    TOPUP = "topup", "Top-up"
    CREDIT = "credit"
    ADJUSTMENT = "adjustment"
    REVERSAL = "reversal"
    INVOICE_ROUNDING = "invoice_rounding"
    TAX = "tax"
    PAYMENT = "payment"
    WRITEOFF = "writeoff"
    COGS = "cogs"


class JournalEntry(BaseModel):
    """One booking that is no request; only `ledger_journal` adds them, nothing changes them."""

    # The database's clock tells when: `booked_at`.
    created_at = None  # type: ignore[assignment]
    organization = models.UUIDField()
    kind = models.TextField(choices=EntryKind.choices)
    debit = models.TextField()
    credit = models.TextField()
    amount = models.BigIntegerField()
    reason = models.TextField()
    reference = models.TextField()
    reverses = models.UUIDField(null=True)
    idempotency = models.TextField()
    actor_label = models.TextField()
    approved_by = models.TextField()
    booked_at = models.DateTimeField()
    payload_hash = models.BinaryField()

    class Meta:
        """Append-only by triggers; keys of repetition are unique per organization."""

        managed = False
        db_table = "journal_entries"
        ordering: ClassVar[list[str]] = ["booked_at", "id"]


class LedgerSeal(models.Model):
    """SHA-256 over the transfers booked in [from_at, to_at), chained to the seal before."""

    number = models.BigIntegerField(primary_key=True)
    from_at = models.DateTimeField()
    to_at = models.DateTimeField()
    rows = models.BigIntegerField()
    amount = models.DecimalField(max_digits=38, decimal_places=0)
    previous = models.BinaryField()
    digest = models.BinaryField()
    tags = models.BinaryField(null=True)

    class Meta:
        """Append-only too."""

        managed = False
        db_table = "ledger_seals"
        ordering: ClassVar[list[str]] = ["number"]


class LedgerHour(models.Model):
    """What a key was charged for a model at a price in an hour of booking; sealed lines. `labels`
    are a JSON object; they and the end user are empty where requests named none.
    """

    pk = models.CompositePrimaryKey(
        *("organization", "hour", "project", "key", "model", "price_version"),
        *("input_pico", "cached_pico", "output_pico", "end_user", "labels"),
    )
    organization = models.UUIDField()
    hour = models.DateTimeField()
    project = models.UUIDField()
    key = models.UUIDField()
    model = models.TextField()
    price_version = models.IntegerField()
    input_pico = models.BigIntegerField()
    cached_pico = models.BigIntegerField()
    output_pico = models.BigIntegerField()
    requests = models.BigIntegerField()
    uncached = models.BigIntegerField()
    cached = models.BigIntegerField()
    output = models.BigIntegerField()
    nano = models.BigIntegerField()
    end_user = models.TextField(default="")
    labels = models.TextField(default="")

    class Meta:
        """Summed by `ledger_seal`, in the transaction of the seal."""

        managed = False
        db_table = "ledger_hours"


class Reconciliation(models.Model):
    """One comparison of requests, ledger, counters and roll-ups of an organization.

    `examples` are the first findings of each kind, as `reconcile.Found` has them.
    """

    id = models.UUIDField(primary_key=True)
    organization = models.UUIDField()
    begins = models.DateTimeField()
    ends = models.DateTimeField()
    made_at = models.DateTimeField()
    requests = models.BigIntegerField()
    findings = models.BigIntegerField()
    unaccounted_tokens = models.BigIntegerField()
    unaccounted_nano = models.BigIntegerField()
    examples = models.JSONField()

    class Meta:
        """Added by the job, never changed."""

        managed = False
        db_table = "reconciliations"
        ordering: ClassVar[list[str]] = ["-made_at"]
