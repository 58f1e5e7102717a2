"""Tables of money as Django sees them; only SQL functions write them, but for a budget's limit.

Checks, partitions, triggers and policies are in `sql/`, so the models are unmanaged.
"""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

# Django finds an app's models by importing this module.
from controlplane.billing import invoice_models as invoice_models
from controlplane.billing import models_closes as models_closes
from controlplane.billing import models_exports as models_exports
from controlplane.core.models import BaseModel

UNLIMITED_NANO = 4_000_000_000_000_000_000


class BudgetScope(models.TextChoices):
    """What a budget limits."""

    KEY = "key"
    PROJECT = "project"
    ORGANIZATION = "organization"
    WALLET = "wallet"


class Budget(models.Model):
    """How much a key, project or organization may spend, in nano-USD. `id` is that thing's id.

    A prepaid organization has one of scope `wallet` besides: its `lim` is what was ever put in, its
    `posted` what was charged, and its id is that of `accounts.wallet_id`.

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


class BudgetPeriod(models.TextChoices):
    """How often a budget begins anew."""

    NONE = "none"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class BudgetTerms(models.Model):
    """What was agreed on about a budget; its limit is `base + allowance + carried + given`.

    `base` is what was posted when the period began, `carried` the unused rest of the last one,
    `given` what reversals gave back in this one.
    """

    budget = models.OneToOneField(
        Budget,
        on_delete=models.DO_NOTHING,
        primary_key=True,
        db_column="budget",
        related_name="terms",
    )
    organization = models.UUIDField()
    allowance = models.BigIntegerField()
    carried = models.BigIntegerField(default=0)
    given = models.BigIntegerField(default=0)
    base = models.BigIntegerField(default=0)
    began_at = models.DateTimeField()
    turns_at = models.DateTimeField(null=True)
    rollover = models.BooleanField(default=False)
    period = models.TextField(choices=BudgetPeriod.choices, default=BudgetPeriod.NONE)
    zone = models.TextField(default="UTC")
    alerts = ArrayField(models.SmallIntegerField(), default=list)

    class Meta:
        """Beside the hot row, not in it."""

        managed = False
        db_table = "budget_terms"


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

    def __str__(self) -> str:
        return f"{self.kind} {self.amount} from {self.debit} to {self.credit}"


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
    """What one key was charged for one model at one price in an hour of booking; sealed lines."""

    pk = models.CompositePrimaryKey(
        "organization",
        "hour",
        "project",
        "key",
        "model",
        "price_version",
        "input_pico",
        "cached_pico",
        "output_pico",
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

    class Meta:
        """Summed by `ledger_seal`, in the transaction of the seal."""

        managed = False
        db_table = "ledger_hours"


class PeriodClose(models.Model):
    """A month that is closed for an organization: control totals, and a hash over its lines.

    `totals` are {"<account>": [debited, credited]} in nano-USD.
    """

    id = models.UUIDField(primary_key=True)
    organization = models.UUIDField()
    period = models.TextField()
    begins = models.DateTimeField()
    ends = models.DateTimeField()
    transfers = models.BigIntegerField()
    entries = models.BigIntegerField()
    totals = models.JSONField()
    last_booked_at = models.DateTimeField(null=True)
    digest = models.BinaryField()
    reconciliation = models.UUIDField()
    closed_by = models.TextField()
    closed_at = models.DateTimeField()

    class Meta:
        """Append-only; a month closes once and never opens again."""

        managed = False
        db_table = "period_closes"
        ordering: ClassVar[list[str]] = ["-period"]


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


class BudgetAlert(models.Model):
    """A share of a budget that was reached in the period that began at `began_at`."""

    pk = models.CompositePrimaryKey("budget", "began_at", "percent")
    budget = models.UUIDField()
    began_at = models.DateTimeField()
    percent = models.SmallIntegerField()
    organization = models.UUIDField()
    spent = models.BigIntegerField()
    allowance = models.BigIntegerField()
    raised_at = models.DateTimeField()

    class Meta:
        """Once per budget, period and percentage."""

        managed = False
        db_table = "budget_alerts"
        ordering: ClassVar[list[str]] = ["-raised_at"]
