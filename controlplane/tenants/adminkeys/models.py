"""Credentials of programs that administer an organization, apart from those that call models."""

import uuid
from datetime import datetime
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint

from controlplane.core.models import BaseModel
from controlplane.core.permissions import PLATFORM_ACTIONS, Action

LABEL_CHARS_MAX = 100
ACTION_CHARS_MAX = 40
# Made and ended by people only, who prove themselves again first.
NEVER_OF_A_KEY = frozenset({Action.ADMIN_KEY_MANAGE, Action.SECURITY_SET, Action.MEMBER_RECOVER})
ONE_KEY_OF_A_FORM = "one_admin_key_of_a_form"
KEY_ACTIONS = frozenset(Action) - PLATFORM_ACTIONS - NEVER_OF_A_KEY


def key_state(key: Any, now: datetime) -> str:
    """Of a key that may be revoked and may end: active, expired or revoked."""
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else "active"


class AdminKey(BaseModel):
    """Opens /api/ and /v1/organization/ of one organization for `actions`; never inference.

    Only its HMAC is kept. It can no more than who made it can now; `created_by` is null where that
    was the operator. `form` is the id of the form that asked for it.
    """

    is_authenticated = True
    is_anonymous = False

    organization = models.ForeignKey("tenants.Organization", on_delete=models.PROTECT)
    key_id = models.CharField(max_length=12, unique=True)
    digest = models.BinaryField(max_length=32)
    redacted = models.CharField(max_length=40)
    label = models.CharField(max_length=LABEL_CHARS_MAX)
    actions = ArrayField(models.CharField(max_length=ACTION_CHARS_MAX))
    created_by = models.ForeignKey(
        "tenants.User", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    form = models.UUIDField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "admin_keys"
        indexes = [Index(fields=["organization", "-id"], name="admin_key_newest_first")]
        constraints = [
            UniqueConstraint(fields=["created_by", "form"], name=ONE_KEY_OF_A_FORM),
            CheckConstraint(condition=Q(actions__len__gte=1), name="admin_key_does_something"),
        ]

    @property
    def actor_id(self) -> uuid.UUID | None:
        return self.id

    @property
    def actor_label(self) -> str:
        """How an audit row names it, also after it is revoked."""
        return f"{self.label} ({self.redacted})"

    state = key_state
