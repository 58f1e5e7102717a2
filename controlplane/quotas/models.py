"""Requests and tokens per minute, by key or project. The counters themselves live in Redis."""

from django.db import models

from controlplane.core.models import BaseModel
from controlplane.tenants.models import Organization

PER_MINUTE_MAX = 1_000_000_000


class LimitScope(models.TextChoices):
    """What a limit applies to."""

    KEY = "key"
    PROJECT = "project"


def _bounded(field: str) -> models.Q:
    inside = models.Q(**{f"{field}__gte": 1, f"{field}__lte": PER_MINUTE_MAX})
    return models.Q(**{f"{field}__isnull": True}) | inside


class RateLimit(BaseModel):
    """The limits of one key or project; None is no limit. `subject_id` is the id of either."""

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT)
    scope = models.CharField(max_length=7, choices=LimitScope.choices)
    subject_id = models.UUIDField(unique=True)
    requests_per_min = models.PositiveBigIntegerField(null=True, blank=True)
    tokens_per_min = models.PositiveBigIntegerField(null=True, blank=True)

    class Meta:
        db_table = "rate_limits"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(scope__in=LimitScope.values), name="rate_limit_scope_known"
            ),
            models.CheckConstraint(
                condition=_bounded("requests_per_min"), name="rate_limit_requests_bounds"
            ),
            models.CheckConstraint(
                condition=_bounded("tokens_per_min"), name="rate_limit_tokens_bounds"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.subject_id}"
