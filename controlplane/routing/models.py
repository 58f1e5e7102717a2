"""Routing rules as versions: a draft changes, all later is kept as it was (`sql/versions.sql`).

The rules themselves are JSON in the shape of `kernel.rules.RouteRule`: one form for the database,
the API, gateways and the dry run.
"""

from django.db import models
from django.db.models import CheckConstraint, Q, UniqueConstraint
from django.utils import timezone

from controlplane.core.versions.models import State, Version
from controlplane.kernel.rules import PERMILLE


class RuleSet(Version):
    """One version of all rules.

    `based_on` was in force when the draft was begun, or last compared. As a canary,
    `share_permille` of requests follow it; `stops_itself` lets the watch end it when its errors are
    clearly worse.
    """

    version = models.PositiveIntegerField(unique=True)
    rules = models.JSONField(default=list, blank=True)
    stops_itself = models.BooleanField(default=False)
    based_on = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    canary_at = models.DateTimeField(null=True, blank=True)
    retired_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "rule_sets"
        constraints = [
            CheckConstraint(condition=Q(state__in=State.values), name="rule_set_state_known"),
            CheckConstraint(condition=Q(share_permille__lt=PERMILLE), name="rule_set_share_bounds"),
            UniqueConstraint(
                fields=["state"], condition=Q(state=State.PUBLISHED), name="rule_set_published_once"
            ),
            UniqueConstraint(
                fields=["state"], condition=Q(state=State.CANARY), name="rule_set_canary_once"
            ),
        ]

    def retire(self) -> None:
        self.change(state=State.RETIRED, retired_at=timezone.now())
