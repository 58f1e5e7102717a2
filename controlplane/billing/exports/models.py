"""Exports that were asked for: what is wanted, how far the file is written, and what came of it.

The file itself lies in the exports' folder under the row's id.
"""

from django.db import models
from django.db.models import CheckConstraint, Index, Q

from controlplane.core.models import BaseModel

ERROR_CHARS_MAX = 300
CURSOR_CHARS_MAX = 200
DIGEST_CHARS = 64


class ExportKind(models.TextChoices):
    USAGE = "usage", "Usage"
    DETAIL = "detail", "Requests"
    FOCUS = "focus", "FOCUS"
    JOURNAL = "journal", "Journal"


class ExportGrain(models.TextChoices):
    HOUR = "hour", "Hour"
    DAY = "day", "Day"
    ENTRY = "entry", "Each line"


class ExportState(models.TextChoices):
    """`gone`: the file was removed, for its age or for room."""

    WAITING = "waiting", "Waiting"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    GONE = "gone", "Removed"


class Export(BaseModel):
    """One file. Whoever holds `claim` until `claimed_until` writes it; `cursor` is where to go on.

    Of the file, the first `bytes_done` bytes are sure; `rows_done` lines are in them, without the
    head, and `nano` is their sum. `tries` counts claims since anything was written. `through` is
    the hour up to which the ledger was sealed when it began: what was booked later is not in it.
    """

    organization_id = models.UUIDField()
    kind = models.CharField(max_length=7, choices=ExportKind.choices)
    grain = models.CharField(max_length=5, choices=ExportGrain.choices)
    start = models.DateTimeField()
    end = models.DateTimeField()
    raw = models.BooleanField(default=False)
    state = models.CharField(max_length=7, choices=ExportState.choices, default=ExportState.WAITING)
    through = models.DateTimeField(null=True)
    rows_estimated = models.BigIntegerField(null=True)
    rows_done = models.BigIntegerField(default=0)
    bytes_done = models.BigIntegerField(default=0)
    permille = models.SmallIntegerField(default=0)
    nano = models.BigIntegerField(default=0)
    cursor = models.CharField(max_length=CURSOR_CHARS_MAX, default="", blank=True)
    sha256 = models.CharField(max_length=DIGEST_CHARS, default="", blank=True)
    error = models.CharField(max_length=ERROR_CHARS_MAX, default="", blank=True)
    manifest = models.JSONField(null=True)
    tries = models.SmallIntegerField(default=0)
    claim = models.UUIDField(null=True)
    claimed_until = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    created_by_label = models.TextField()

    class Meta:
        db_table = "exports"
        constraints = [
            CheckConstraint(condition=Q(end__gt=models.F("start")), name="export_of_some_time"),
            CheckConstraint(condition=Q(state__in=ExportState.values), name="export_state_known"),
        ]
        indexes = [
            Index(fields=["organization_id", "-id"], name="exports_newest_first"),
            Index(
                fields=["id"], condition=Q(state__in=("waiting", "running")), name="exports_at_work"
            ),
        ]

    @property
    def complete(self) -> bool:
        """Whether the ledger was sealed to the end of the range when the file was begun."""
        return self.through is not None and self.through >= self.end
