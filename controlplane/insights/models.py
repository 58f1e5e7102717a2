"""Counts of waste by key and hour, comparisons that were run on this fleet, kept worksheets."""

from typing import ClassVar

from django.db import models

from controlplane.core.models import BaseModel

NOTE_CHARS_MAX = 300


class HygieneHour(models.Model):
    """One writer's counts of one hour. `kind` is a finding's, or says how many were looked at.

    Of kinds `looked` and `left_out`, `tokens` and `nano` are all that the requests used; of
    findings what mending them would have saved.
    """

    pk = models.CompositePrimaryKey(
        "hour", "organization", "project", "key", "client", "model", "kind", "writer"
    )
    hour = models.DateTimeField()
    writer = models.UUIDField()
    organization = models.UUIDField()
    project = models.UUIDField()
    key = models.UUIDField()
    client = models.TextField()
    model = models.TextField()
    kind = models.TextField()
    requests = models.BigIntegerField()
    tokens = models.BigIntegerField()
    nano = models.BigIntegerField()

    class Meta:
        """Made by `sql/tables.sql` and `sql/clients.sql`, kept 90 days."""

        managed = False
        db_table = "hygiene_hours"


class Comparison(BaseModel):
    """One run of the four ways; rows are only added. `compare.py` says what is in them."""

    setup = models.JSONField()
    ways = models.JSONField()

    class Meta:
        db_table = "comparisons"
        ordering: ClassVar[list[str]] = ["-id"]


class WorksheetRevision(BaseModel):
    """A capacity worksheet as it was filled in for a quarter (`2026-Q4`); rows are only added.

    `figures` are what was reckoned with, by the names of the worksheet's fields, `sheet` is what
    came of them.
    """

    pool = models.CharField(max_length=50)
    quarter = models.CharField(max_length=7)
    by = models.CharField(max_length=300)
    note = models.CharField(max_length=NOTE_CHARS_MAX, default="", blank=True)
    figures = models.JSONField()
    sheet = models.JSONField()

    class Meta:
        db_table = "worksheet_revisions"
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["pool", "-id"], name="worksheet_newest_first")
        ]
