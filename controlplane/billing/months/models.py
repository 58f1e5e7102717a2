"""The months that are closed, and those that a worker is closing."""

from typing import ClassVar

from django.db import models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint

from controlplane.core.models import BaseModel

ERROR_CHARS_MAX = 500


class CloseState(models.TextChoices):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


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


class PeriodCloseJob(BaseModel):
    """A month that someone asked to close and that is too large for one answer.

    `reached_at` is up to which moment of booking its lines are read; null while it is compared.
    """

    organization = models.UUIDField()
    period = models.CharField(max_length=7)
    state = models.CharField(max_length=7, choices=CloseState.choices, default=CloseState.WAITING)
    reached_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=ERROR_CHARS_MAX, default="", blank=True)
    tries = models.SmallIntegerField(default=0)
    claim = models.UUIDField(null=True)
    claimed_until = models.DateTimeField(null=True)
    asked_by = models.UUIDField(null=True)
    asked_label = models.TextField()

    class Meta:
        db_table = "period_close_jobs"
        constraints: ClassVar = [
            CheckConstraint(
                condition=Q(state__in=CloseState.values), name="period_close_state_known"
            ),
            UniqueConstraint(
                fields=["organization", "period"],
                condition=Q(state__in=("waiting", "running")),
                name="one_close_of_a_period_at_work",
            ),
        ]
        indexes: ClassVar = [
            Index(fields=["organization", "-id"], name="period_close_newest_first")
        ]

    @property
    def at_work(self) -> bool:
        """Whether it waits for a worker or is read by one."""
        return self.state in (CloseState.WAITING, CloseState.RUNNING)
