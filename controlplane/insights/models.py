"""Counts of waste by key and hour, and comparisons that were run on this fleet."""

from typing import ClassVar

from django.db import models

from controlplane.core.models import BaseModel
from controlplane.tenants.models import User

VIEW_NAME_CHARS_MAX = 80
VIEW_QUERY_CHARS_MAX = 4_000


class HygieneHour(models.Model):
    """One writer's counts of one hour. `kind` is a finding's, or says how many were looked at.

    Of kinds `looked` and `left_out`, `tokens` and `nano` are all that the requests used; of
    findings what mending them would have saved.
    """

    pk = models.CompositePrimaryKey(
        "hour", "organization", "project", "key", "model", "kind", "writer"
    )
    hour = models.DateTimeField()
    writer = models.UUIDField()
    organization = models.UUIDField()
    project = models.UUIDField()
    key = models.UUIDField()
    model = models.TextField()
    kind = models.TextField()
    requests = models.BigIntegerField()
    tokens = models.BigIntegerField()
    nano = models.BigIntegerField()

    class Meta:
        """Made by `sql/tables.sql`, kept 90 days."""

        managed = False
        db_table = "hygiene_hours"


class Comparison(BaseModel):
    """One run of the four ways; rows are only added. `compare.py` says what is in them."""

    setup = models.JSONField()
    ways = models.JSONField()

    class Meta:
        db_table = "comparisons"
        ordering: ClassVar[list[str]] = ["-id"]


class SavedView(BaseModel):
    """A question of Explore under a name: its owner's alone, or `shared` with the organization."""

    organization = models.UUIDField()
    owner = models.ForeignKey(User, on_delete=models.CASCADE)
    name = models.CharField(max_length=VIEW_NAME_CHARS_MAX)
    query = models.CharField(max_length=VIEW_QUERY_CHARS_MAX)
    shared = models.BooleanField(default=False)

    class Meta:
        db_table = "saved_views"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["organization", "owner", "name"], name="view_name_once")
        ]
