"""Budgets as Django sees them; only SQL functions write them, in `billing/sql/`."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

UNLIMITED_NANO = 4_000_000_000_000_000_000


class BudgetScope(models.TextChoices):
    KEY = "key"
    PROJECT = "project"
    ORGANIZATION = "organization"
    WALLET = "wallet"
    MODEL = "model"
    USERS = "users"
    USER = "user"


class Budget(models.Model):
    """How much a key, project or organization may spend, in nano-USD. `id` is that thing's id;
    those of a project's models and end users have their own, and a `BudgetPart`.

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
        return max(0, self.lim - self.posted - self.held)


class BudgetPeriod(models.TextChoices):
    """How often a budget begins again."""

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


class BudgetPart(models.Model):
    """Which part of a project a budget is of: a model, each end user, or one, from `template`."""

    budget = models.UUIDField(primary_key=True)
    organization = models.UUIDField()
    project = models.UUIDField()
    template = models.UUIDField(null=True)
    model = models.TextField(null=True)

    class Meta:
        managed = False
        db_table = "budget_parts"


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
