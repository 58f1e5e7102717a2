"""What every table shares, and two tables of no app: audit and the configuration's version."""

import uuid

from django.db import models
from django.utils import timezone

from controlplane.kernel.ids import new_request_id


def uuid7() -> uuid.UUID:
    """A new id that sorts by time."""
    return uuid.UUID(bytes=new_request_id())


class BaseModel(models.Model):
    """A row with a UUIDv7 id and the time it was made."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        abstract = True


class AuditEntry(BaseModel):
    """Who changed what; rows are only ever added (a trigger and the grants see to it)."""

    actor_id = models.UUIDField(null=True, blank=True)
    actor_label = models.TextField()
    organization_id = models.UUIDField(null=True, blank=True)
    action = models.TextField()
    subject_type = models.TextField()
    subject_id = models.UUIDField()
    detail = models.JSONField(default=dict, blank=True)

    class Meta:
        db_table = "audit_entries"
        indexes = [models.Index(fields=["organization_id", "id"], name="audit_by_organization")]

    def __str__(self) -> str:
        return f"{self.action} by {self.actor_label}"


class ConfigVersion(models.Model):
    """One row whose number grows with every committed change of what gateways read."""

    id = models.SmallIntegerField(primary_key=True)
    version = models.BigIntegerField()

    class Meta:
        db_table = "config_version"

    def __str__(self) -> str:
        return str(self.version)
