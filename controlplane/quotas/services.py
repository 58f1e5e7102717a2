"""Setting the limits of a key, a project or an organization."""

import uuid
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError

from controlplane.catalog.selectors import model_find
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action, organization_scope
from controlplane.quotas.models import LIMITS_MAX, LimitScope, RateLimit
from controlplane.quotas.selectors import ALL
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey, Organization, Project

Subject = ApiKey | Project | Organization


class LimitedPart(NamedTuple):
    """The requests to one model, or with `per_user` those of each end user."""

    of: Subject
    model: str = ""
    per_user: bool = False


class LimitSet(NamedTuple):
    """All limits of one subject; None is no limit."""

    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    requests_per_day: int | None = None
    concurrency: int | None = None


def rate_limit_set(
    *,
    actor: Actor,
    subject: Subject | LimitedPart,
    requests_per_min: int | None = None,
    tokens_per_min: int | None = None,
    requests_per_day: int | None = None,
    concurrency: int | None = None,
) -> RateLimit | None:
    """Set all limits; None lifts one. Returns None when none is left.

    Those of a key that was rotated are those of its whole line. `concurrency` is how many requests
    may be in progress at once.
    """
    part: dict[str, Any] = {"model": "", "per_user": False}
    if isinstance(subject, LimitedPart):
        part |= {"model": subject.model, "per_user": subject.per_user}
        subject = subject.of
    scope, subject_id, organization_id = _told(subject)
    require(actor, Action.LIMIT_SET, organization_id)
    wanted = LimitSet(requests_per_min, tokens_per_min, requests_per_day, concurrency)
    check_limits(wanted, **part)
    with organization_scope([organization_id]):
        before = RateLimit.objects.filter(subject_id=subject_id, **part).first()
        made: RateLimit | None = None
        if any(value is not None for value in wanted):
            made, _ = RateLimit.objects.update_or_create(
                subject_id=subject_id,
                **part,
                defaults={
                    **wanted._asdict(),
                    "scope": scope.value,
                    "organization_id": organization_id,
                },
            )
        else:
            RateLimit.objects.filter(subject_id=subject_id, **part).delete()
        audit_record(
            actor,
            "rate_limit.set",
            subject=subject,
            detail={"scope": scope.value, **wanted._asdict(), **part},
            changed=(
                {name: getattr(before, name, None) for name in wanted._fields},
                wanted._asdict(),
            ),
        )
    return made


def check_limits(wanted: LimitSet, model: str = "", per_user: bool = False) -> None:
    """Raises ValidationError naming each limit that is out of bounds, or the model."""
    wrong = {
        name: f"Must be 1 to {LIMITS_MAX[name]}, or nothing."
        for name, value in wanted._asdict().items()
        if value is not None and not 1 <= value <= LIMITS_MAX[name]
    }
    if wrong:
        raise ValidationError(wrong)
    if model and (per_user or model_find(name=model) is None):
        told = "Must be the name of a model, and none for a limit of each end user."
        raise ValidationError({"model": told})


def key_limits_begin(*, actor: Actor, key: ApiKey, wanted: LimitSet) -> RateLimit | None:
    """Give a key its first limits; who may create keys may, since they only narrow.

    None of them may be above what its project or organization is limited to: it would promise what
    is never given. A key that has limits keeps them: changing those takes `rate_limit_set`.
    """
    require(actor, Action.KEY_CREATE, key.organization_id)
    check_limits(wanted)
    if all(value is None for value in wanted):
        return None
    with organization_scope([key.organization_id]):
        _require_within_the_project(key, wanted)
        made = RateLimit.objects.create(
            **wanted._asdict(),
            scope=LimitScope.KEY.value,
            subject_id=key.limits_id,
            organization_id=key.organization_id,
        )
        audit_record(
            actor,
            "rate_limit.set",
            subject=key,
            detail={"scope": LimitScope.KEY.value, **wanted._asdict()},
        )
    return made


def _require_within_the_project(key: ApiKey, wanted: LimitSet) -> None:
    above = RateLimit.objects.filter(ALL, subject_id__in=[key.project_id, key.organization_id])
    for limit in above:
        for name, value in wanted._asdict().items():
            most = getattr(limit, name)
            if value is not None and most is not None and value > most:
                raise ValidationError({name: f"The {limit.scope}'s own limit is {most}."})


def _told(subject: Subject) -> tuple[LimitScope, uuid.UUID, uuid.UUID]:
    """Scope, the id that the limit is kept under, and the organization's id."""
    if isinstance(subject, ApiKey):
        return LimitScope.KEY, subject.limits_id, subject.organization_id
    if isinstance(subject, Project):
        return LimitScope.PROJECT, subject.id, subject.organization_id
    return LimitScope.ORGANIZATION, subject.id, subject.id
