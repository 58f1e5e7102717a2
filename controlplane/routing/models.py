"""Routing rules as versions: a draft changes, all later is kept as it was (`sql/versions.sql`).

The rules themselves are JSON in the shape of `kernel.rules.RouteRule`: one form for the database,
the API, gateways and the dry run.
"""

from django.db import models

from controlplane.core.models import BaseModel
from controlplane.kernel.rules import PERMILLE
from controlplane.tenants.models import User

NOTE_CHARS_MAX = 200


class State(models.TextChoices):
    """Where a version is: at most one is published, and at most one on trial beside it."""

    DRAFT = "draft"
    CANARY = "canary"
    PUBLISHED = "published"
    RETIRED = "retired"


class RuleSet(BaseModel):
    """One version of all rules.

    `revision` counts a draft's changes. `based_on` was in force when the draft was begun, or last
    compared. `copy_of` is the version that a rollback brought back. As a canary, `share_permille`
    of requests follow it; `stops_itself` lets the watch end it when its errors are clearly worse.
    """

    version = models.PositiveIntegerField(unique=True)
    state = models.CharField(max_length=9, choices=State.choices, default=State.DRAFT)
    note = models.CharField(max_length=NOTE_CHARS_MAX, default="", blank=True)
    rules = models.JSONField(default=list, blank=True)
    revision = models.PositiveIntegerField(default=1)
    share_permille = models.PositiveSmallIntegerField(default=0)
    stops_itself = models.BooleanField(default=False)
    based_on = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    copy_of = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)
    canary_at = models.DateTimeField(null=True, blank=True)
    published_at = models.DateTimeField(null=True, blank=True)
    retired_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "rule_sets"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=State.values), name="rule_set_state_known"
            ),
            models.CheckConstraint(
                condition=models.Q(share_permille__lt=PERMILLE), name="rule_set_share_bounds"
            ),
            models.UniqueConstraint(
                fields=["state"],
                condition=models.Q(state=State.PUBLISHED),
                name="rule_set_published_once",
            ),
            models.UniqueConstraint(
                fields=["state"],
                condition=models.Q(state=State.CANARY),
                name="rule_set_canary_once",
            ),
        ]

    def __str__(self) -> str:
        return f"rules v{self.version}"
