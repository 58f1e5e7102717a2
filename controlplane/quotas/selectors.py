"""Reads of limits, in the scope of the user's organizations."""

import uuid
from collections.abc import Iterable

from controlplane.core.scope import organization_scope
from controlplane.quotas.models import RateLimit
from controlplane.tenants.models import User
from controlplane.tenants.selectors import organization_ids


def rate_limit_map(*, user: User) -> dict[uuid.UUID, RateLimit]:
    """Limits by the id of the key or project they apply to."""
    with organization_scope(organization_ids(user=user)):
        return {row.subject_id: row for row in RateLimit.objects.all()}


def limits_of(subjects: Iterable[uuid.UUID]) -> dict[uuid.UUID, RateLimit]:
    """Limits by the id of what they limit, inside the caller's organization scope."""
    return {row.subject_id: row for row in RateLimit.objects.filter(subject_id__in=list(subjects))}
