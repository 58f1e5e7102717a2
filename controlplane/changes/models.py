"""Changes of limits and prices as versions: a draft changes, all later is kept as it was."""

from django.db import models
from django.db.models import CheckConstraint, Q, UniqueConstraint

from controlplane.core.versions.models import State, Version
from controlplane.tenants.models import Organization


class ChangeKind(models.TextChoices):
    LIMITS = "limits"
    PRICES = "prices"


class ChangeVersion(Version):
    """One change of an organization's limits and budgets, or without one of prices.

    `content` says what is to be another, `replaced` in the same form what stood there when it was
    published: going back puts that back. `copy_of` is the change that this one undid. In canary it
    is in shadow: since `canary_at` requests are judged by it, and none is refused.
    """

    kind = models.CharField(max_length=6, choices=ChangeKind.choices)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, null=True, blank=True)
    content = models.JSONField()
    replaced = models.JSONField(null=True, blank=True)
    canary_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "changes"
        constraints = [
            CheckConstraint(condition=Q(state__in=State.values), name="change_state_known"),
            CheckConstraint(
                condition=Q(kind=ChangeKind.LIMITS, organization__isnull=False)
                | Q(kind=ChangeKind.PRICES, organization__isnull=True),
                name="change_kind_has_its_owner",
            ),
            UniqueConstraint(
                fields=["organization", "kind", "version"],
                nulls_distinct=False,
                name="change_version_once",
            ),
            *(
                UniqueConstraint(
                    fields=["organization", "kind"],
                    condition=Q(state=state),
                    nulls_distinct=False,
                    name=f"change_{state.value}_once",
                )
                for state in (State.PUBLISHED, State.CANARY)
            ),
        ]
