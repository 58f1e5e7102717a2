"""Whether an organization has room for one more of something: counted under its row's lock."""

import uuid

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.utils import timezone

from controlplane.tenants.models import ApiKey, Invitation, Membership, Organization, Project
from controlplane.tenants.people.models import UNUSED


def organization_lock(organization_id: uuid.UUID) -> None:
    """Wait for whoever else adds something to this organization; within its scope.

    No stronger than what foreign keys wait for: whoever only refers to it continues.
    """
    Organization.objects.select_for_update(no_key=True).get(id=organization_id)


def key_room(project: Project, *, besides: ApiKey | None = None, field: str = "label") -> None:
    """Return if there is room for one more living key; raises ValidationError at `field`.

    `besides` is a key that ends as the new one begins.
    """
    organization_lock(project.organization_id)
    now = timezone.now()
    living = ApiKey.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=now),
        organization_id=project.organization_id,
        revoked_at=None,
    )
    if besides is not None:
        living = living.exclude(id=besides.id)
    of_project = living.filter(project_id=project.id)
    for rows, most, whose in (
        (living, settings.KEYS_PER_ORGANIZATION_MAX, "organization"),
        (of_project, settings.KEYS_PER_PROJECT_MAX, "project"),
    ):
        _require_below(rows.count(), most, field, whose, "active keys")


def project_room(organization_id: uuid.UUID) -> None:
    """Return if there is room for one more project; raises ValidationError at `name`."""
    organization_lock(organization_id)
    there = Project.objects.filter(organization_id=organization_id).count()
    most = settings.PROJECTS_PER_ORGANIZATION_MAX
    _require_below(there, most, "name", "organization", "projects")


def member_room(organization_id: uuid.UUID) -> None:
    """Return if there is room for one more member or invitation; raises ValidationError at `email`.

    Whoever is invited has their place already, so that no one is refused who accepts.
    """
    organization_lock(organization_id)
    members = Membership.objects.filter(organization_id=organization_id).count()
    invited = Invitation.objects.filter(
        UNUSED, organization_id=organization_id, expires_at__gt=timezone.now()
    )
    most = settings.MEMBERS_PER_ORGANIZATION_MAX
    _require_below(
        members + invited.count(), most, "email", "organization", "members and invitations"
    )


def _require_below(there: int, most: int, field: str, whose: str, what: str) -> None:
    if there >= most:
        raise ValidationError({field: f"This {whose} has reached the limit of {most:,} {what}."})
