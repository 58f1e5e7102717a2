"""Limits on requests and tokens, by key, project or organization. Their counters live in Redis."""

from django.db import models
from django.db.models import CheckConstraint, Q, UniqueConstraint

from controlplane.core.models import BaseModel
from controlplane.tenants.models import Organization

PER_MINUTE_MAX = 1_000_000_000
PER_DAY_MAX = 1_000_000_000_000
CONCURRENCY_MAX = 1_000_000
MODEL_CHARS_MAX = 100
LIMITS_MAX = {
    "requests_per_min": PER_MINUTE_MAX,
    "tokens_per_min": PER_MINUTE_MAX,
    "requests_per_day": PER_DAY_MAX,
    "concurrency": CONCURRENCY_MAX,
}


class LimitScope(models.TextChoices):
    KEY = "key"
    PROJECT = "project"
    ORGANIZATION = "organization"


def _bounded(field: str) -> models.Q:
    inside = Q(**{f"{field}__gte": 1, f"{field}__lte": LIMITS_MAX[field]})
    return Q(**{f"{field}__isnull": True}) | inside


class RateLimit(BaseModel):
    """The limits of a key, project or organization, whose id is `subject_id`; None is no limit.

    They are for all its requests, for those to one `model`, or with `per_user` for those of each
    end user.

    `concurrency` is how many requests may be in progress at once.
    """

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT)
    scope = models.CharField(max_length=12, choices=LimitScope.choices)
    subject_id = models.UUIDField()
    model = models.CharField(max_length=MODEL_CHARS_MAX, default="", db_default="")
    per_user = models.BooleanField(default=False, db_default=False)
    requests_per_min = models.PositiveBigIntegerField(null=True, blank=True)
    tokens_per_min = models.PositiveBigIntegerField(null=True, blank=True)
    requests_per_day = models.PositiveBigIntegerField(null=True, blank=True)
    concurrency = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        db_table = "rate_limits"
        constraints = [
            UniqueConstraint(
                fields=["subject_id", "model", "per_user"], name="rate_limit_once_for_a_part"
            ),
            CheckConstraint(
                condition=Q(model="") | Q(per_user=False), name="rate_limit_for_one_part"
            ),
            CheckConstraint(
                condition=Q(scope__in=LimitScope.values), name="rate_limit_scope_known"
            ),
            CheckConstraint(
                condition=_bounded("requests_per_min"), name="rate_limit_requests_bounds"
            ),
            CheckConstraint(condition=_bounded("tokens_per_min"), name="rate_limit_tokens_bounds"),
            CheckConstraint(condition=_bounded("requests_per_day"), name="rate_limit_day_bounds"),
            CheckConstraint(
                condition=_bounded("concurrency"), name="rate_limit_concurrency_bounds"
            ),
        ]
