"""Who is in an organization and which projects it has, as whoever manages them sees it."""

import uuid
from datetime import datetime
from typing import NamedTuple

from django.db.models import Max

from controlplane.core.answers import Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.tenants.access import permitted, require
from controlplane.tenants.models import Membership, Organization, Project, SecondFactor, UserSession

MEMBERS_SHOWN_MAX = 500
PROJECTS_SHOWN_MAX = 500


class Member(NamedTuple):
    """A membership with its user, and how well their sign-in is kept."""

    membership: Membership
    second_factor: bool
    last_seen: datetime | None


def organization_of(*, actor: Actor, organization_id: uuid.UUID) -> Organization:
    """One organization; raises DoesNotExist to strangers."""
    require(actor, Action.ORGANIZATION_VIEW, organization_id)
    return Organization.objects.get(id=organization_id)


def member_list(*, actor: Actor, organization_id: uuid.UUID) -> list[Member]:
    """Members of an organization, oldest first."""
    with permitted(actor, Action.MEMBER_VIEW, organization_id):
        rows = Membership.objects.filter(organization_id=organization_id)
        found = list(rows.select_related("user", "organization").order_by("id")[:MEMBERS_SHOWN_MAX])
    users = [each.user_id for each in found]
    guarded = set(SecondFactor.objects.filter(user__in=users).values_list("user_id", flat=True))
    sessions = UserSession.objects.filter(user__in=users).values_list("user_id")
    seen = dict(sessions.annotate(last=Max("last_seen_at")).values_list("user_id", "last"))
    return [Member(each, each.user_id in guarded, seen.get(each.user_id)) for each in found]


def member_get(*, actor: Actor, organization_id: uuid.UUID, user_id: uuid.UUID) -> Membership:
    """A user's membership; raises DoesNotExist where they are no member."""
    with permitted(actor, Action.MEMBER_VIEW, organization_id):
        rows = Membership.objects.select_related("user", "organization")
        return rows.get(organization_id=organization_id, user_id=user_id)


def projects_of(*, actor: Actor, organization_id: uuid.UUID) -> list[Project]:
    with permitted(actor, Action.ORGANIZATION_VIEW, organization_id):
        rows = Project.objects.filter(organization_id=organization_id)
        return list(rows.order_by("name", "id")[:PROJECTS_SHOWN_MAX])


def project_page(*, actor: Actor, organization_id: uuid.UUID, ask: PageAsk) -> Page[Project]:
    with permitted(actor, Action.ORGANIZATION_VIEW, organization_id):
        return page_read(Project.objects.filter(organization_id=organization_id), ask)


def project_of(*, actor: Actor, organization_id: uuid.UUID, project_id: uuid.UUID) -> Project:
    """One project; raises DoesNotExist for those of strangers."""
    with permitted(actor, Action.ORGANIZATION_VIEW, organization_id):
        return Project.objects.get(id=project_id, organization_id=organization_id)
