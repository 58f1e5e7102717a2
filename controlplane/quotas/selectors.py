"""Reads of limits, in the scope of the user's organizations."""

import uuid

from controlplane.core.scope import organization_scope
from controlplane.quotas.models import RateLimit
from controlplane.tenants.models import User
from controlplane.tenants.selectors import organization_ids


def rate_limit_map(*, user: User) -> dict[uuid.UUID, RateLimit]:
    """Limits by the id of the key or project they apply to."""
    with organization_scope(organization_ids(user=user)):
        return {row.subject_id: row for row in RateLimit.objects.all()}
