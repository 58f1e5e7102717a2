"""What every table shares, and tables of no app: audit, configuration version, kept answers."""

import uuid

from django.db import models
from django.db.models import Index
from django.utils import timezone

from controlplane.kernel.ids import id_of_type, new_request_id, public_id
from controlplane.kernel.keys.format import ADMIN_PREFIX


def uuid7() -> uuid.UUID:
    return uuid.UUID(bytes=new_request_id())


class BaseModel(models.Model):
    """A row with a UUIDv7 id and the time it was made."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        abstract = True


class AuditEntry(BaseModel):
    """Who changed what, and from where; rows are only ever added (a trigger and grants see to it).

    The database's clock sets `created_at`. `before` and `after` hold the fields that changed.
    `channel`, `address`, `agent` and `credential` are those of `core/audit/origin.py`.
    """

    actor_id = models.UUIDField(null=True, blank=True)
    actor_label = models.TextField()
    organization_id = models.UUIDField(null=True, blank=True)
    action = models.TextField()
    subject_type = models.TextField()
    subject_id = models.UUIDField()
    detail = models.JSONField(default=dict, blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    channel = models.TextField(default="", blank=True)
    address = models.TextField(default="", blank=True)
    agent = models.TextField(default="", blank=True)
    credential = models.TextField(default="", blank=True)

    class Meta:
        db_table = "audit_entries"
        indexes = [
            Index(fields=["organization_id", "id"], name="audit_by_organization"),
            Index(fields=["subject_id", "id"], name="audit_by_subject"),
            Index(fields=["created_at"], name="audit_by_time"),
        ]

    @property
    def actor_public(self) -> str | None:
        """The account's or the admin key's id; None for the operator."""
        prefix = "adminkey" if f"({ADMIN_PREFIX}" in self.actor_label else "user"
        return public_id(prefix, self.actor_id) if self.actor_id else None

    @property
    def subject_public(self) -> str:
        return id_of_type(self.subject_type, self.subject_id)


class AuditLink(models.Model):
    """One link of the audit chain: SHA-256 over the link before and one entry's columns.

    Links are made by a job (`audit_chain` in SQL), so that writers of audit never wait for another.
    """

    number = models.BigIntegerField(primary_key=True)
    entry = models.UUIDField(unique=True)
    digest = models.BinaryField(max_length=32)
    chained_at = models.DateTimeField()

    class Meta:
        db_table = "audit_links"


class ConfigVersion(models.Model):
    """One row whose number grows with every committed change of what gateways read."""

    id = models.SmallIntegerField(primary_key=True)
    version = models.BigIntegerField()

    class Meta:
        db_table = "config_version"


class KeptAnswer(models.Model):
    """What a change with an `Idempotency-Key` was answered; `core/api/idempotency.py` says how.

    `id` and `body` are of no use without the caller's own key; a policy shows each row to its
    request alone.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    payload = models.BinaryField(max_length=32)
    status = models.SmallIntegerField()
    body = models.BinaryField(null=True)
    # The actions by which it was allowed, each with its organization.
    rights = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "kept_answers"
        indexes = [Index(fields=["created_at"], name="kept_answer_oldest_first")]
