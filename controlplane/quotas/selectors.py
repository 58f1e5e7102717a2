"""Reads of limits, in the scope of the user's organizations."""

import uuid
from collections.abc import Iterable

from django.db.models import Q

from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action, organization_scope
from controlplane.quotas.models import RateLimit
from controlplane.tenants.access import permitted
from controlplane.tenants.models import User
from controlplane.tenants.selectors import organization_ids

# Of all requests together, not of a part of them.
ALL = Q(model="", per_user=False)


def rate_limit_map(*, user: User) -> dict[uuid.UUID, RateLimit]:
    with organization_scope(organization_ids(user=user)):
        return {row.subject_id: row for row in RateLimit.objects.filter(ALL)}


def limit_list(*, actor: Actor, organization_id: uuid.UUID) -> list[RateLimit]:
    with permitted(actor, Action.ORGANIZATION_VIEW, organization_id):
        return list(RateLimit.objects.filter(organization_id=organization_id).order_by("id"))


def limit_parts_of(subjects: Iterable[uuid.UUID]) -> dict[uuid.UUID, list[RateLimit]]:
    """Of all requests, of each end user's and of those to single models."""
    found: dict[uuid.UUID, list[RateLimit]] = {}
    for row in RateLimit.objects.filter(subject_id__in=list(subjects)):
        found.setdefault(row.subject_id, []).append(row)
    return found
