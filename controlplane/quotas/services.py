"""Setting the limits of a key or a project."""

from django.core.exceptions import ValidationError

from controlplane.core.audit import Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.quotas.models import PER_MINUTE_MAX, LimitScope, RateLimit
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey, Project


def rate_limit_set(
    *,
    actor: Actor,
    subject: ApiKey | Project,
    requests_per_min: int | None,
    tokens_per_min: int | None,
) -> RateLimit | None:
    """Set both limits; None lifts one. Returns None when none is left."""
    require(actor, Action.LIMIT_SET, subject.organization_id)
    wanted = {"requests_per_min": requests_per_min, "tokens_per_min": tokens_per_min}
    for name, value in wanted.items():
        if value is not None and not 1 <= value <= PER_MINUTE_MAX:
            raise ValidationError({name: f"Must be 1 to {PER_MINUTE_MAX}, or nothing."})
    scope = LimitScope.KEY if isinstance(subject, ApiKey) else LimitScope.PROJECT
    with organization_scope([subject.organization_id]):
        made: RateLimit | None = None
        if any(value is not None for value in wanted.values()):
            made, _ = RateLimit.objects.update_or_create(
                subject_id=subject.id,
                defaults={
                    **wanted,
                    "scope": scope.value,
                    "organization_id": subject.organization_id,
                },
            )
        else:
            RateLimit.objects.filter(subject_id=subject.id).delete()
        audit_record(
            actor,
            "rate_limit.set",
            subject=subject,
            organization_id=subject.organization_id,
            detail={"scope": scope.value, **wanted},
        )
    return made
