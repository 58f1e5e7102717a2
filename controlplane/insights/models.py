"""Counts of waste by key and hour, and comparisons that were run on this fleet."""

from typing import ClassVar

from django.db import models

from controlplane.core.models import BaseModel


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
