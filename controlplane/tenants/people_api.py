"""Members, invitations and projects under /api/organizations/<id>/."""

from __future__ import annotations

import uuid
from typing import TypedDict, TypeVar

import msgspec
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.api import ApiView
from controlplane.core.api_schema import operation
from controlplane.core.permissions import Action, Role
from controlplane.tenants.access import require
from controlplane.tenants.invitations import (
    invitation_create,
    invitation_get,
    invitation_list,
    invitation_withdraw,
)
from controlplane.tenants.models import Invitation, Project
from controlplane.tenants.people import membership_end, membership_set
from controlplane.tenants.security import second_factor_require
from controlplane.tenants.selectors_people import (
    Member,
    member_get,
    member_list,
    organization_of,
    project_of,
    projects_of,
)
from controlplane.tenants.selectors_staff import project_share
from controlplane.tenants.services import (
    project_create,
    project_rename,
    project_update,
    project_weigh,
)

CREATED = 201
Value = TypeVar("Value")
INVITATION_PATH = "/invitation/"


class RoleBody(msgspec.Struct, forbid_unknown_fields=True):
    """A role: owner, admin, developer, finance or viewer."""

    role: str


class InvitationBody(msgspec.Struct, forbid_unknown_fields=True):
    """Whom to invite, as what."""

    email: str
    role: str


class SecurityBody(msgspec.Struct, forbid_unknown_fields=True):
    """Whether every member must have a second factor."""

    second_factor_required: bool


class ProjectBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new project."""

    name: str


class ProjectChange(msgspec.Struct, forbid_unknown_fields=True):
    """What is left out keeps its value."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    safety_mode: str | msgspec.UnsetType = msgspec.UNSET
    allow_content_logging: bool | msgspec.UnsetType = msgspec.UNSET


class WeightBody(msgspec.Struct, forbid_unknown_fields=True):
    """A project's share of full nodes, 1 to 100."""

    weight: int


class MemberJson(TypedDict):
    """A member; `last_seen_at` is null where they are signed in nowhere."""

    user_id: str
    object: str
    email: str
    role: str
    second_factor: bool
    last_seen_at: str | None


class MembersJson(TypedDict):
    """All members, oldest first."""

    data: list[MemberJson]


class SecurityJson(TypedDict):
    """What an organization requires of its members."""

    object: str
    second_factor_required: bool


class EndedJson(TypedDict):
    """Keys that the removed member has made and that go on working."""

    user_id: str
    keys_left: list[str]


class InvitationJson(TypedDict):
    """An invitation; `state` is open or expired."""

    id: str
    object: str
    email: str
    role: str
    state: str
    invited_by: str | None
    expires_at: str


class NewInvitationJson(InvitationJson):
    """With the path of its link, which only this answer has."""

    path: str


class InvitationsJson(TypedDict):
    """Invitations that nobody has used, newest first."""

    data: list[InvitationJson]


class WithdrawnJson(TypedDict):
    """`changed` is false where it was used or over before."""

    id: str
    changed: bool


class ProjectJson(TypedDict):
    """A project."""

    id: str
    object: str
    name: str
    safety_mode: str
    allow_content_logging: bool
    weight: int


class ProjectsJson(TypedDict):
    """All projects, by name."""

    data: list[ProjectJson]


class Members(ApiView):
    """`GET members`."""

    @operation(answer=MembersJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """For those who manage them."""
        rows = member_list(actor=self.actor(), organization_id=organization_id)
        return self.listed(rows, member_json)


class OneMember(ApiView):
    """`PUT | DELETE members/<user id>`: another role, and the end of a membership."""

    step_up_methods = frozenset({"PUT", "DELETE"})

    @operation(body=RoleBody, answer=MemberJson)
    def put(self, request: Request, organization_id: uuid.UUID, user_id: uuid.UUID) -> Response:
        """Nobody gives or takes a role beyond what their own allows."""
        actor = self.actor()
        found = member_get(actor=actor, organization_id=organization_id, user_id=user_id)
        role = read_role(self.body(RoleBody).role)
        membership_set(actor=actor, organization=found.organization, user=found.user, role=role)
        rows = member_list(actor=actor, organization_id=organization_id)
        return Response(member_json(next(r for r in rows if r.membership.user_id == user_id)))

    @operation(answer=EndedJson)
    def delete(self, request: Request, organization_id: uuid.UUID, user_id: uuid.UUID) -> Response:
        """Access ends at once; keys that they made go on and are told."""
        actor = self.actor()
        found = member_get(actor=actor, organization_id=organization_id, user_id=user_id)
        left = membership_end(actor=actor, membership=found)
        body = {"user_id": str(user_id), "keys_left": [key.redacted for key in left]}
        return Response(body)


class Security(ApiView):
    """`GET | PUT security`: what is required of members; set by owners."""

    step_up_methods = frozenset({"PUT"})

    @operation(answer=SecurityJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """For every member."""
        return self._answer(organization_id)

    @operation(body=SecurityBody, answer=SecurityJson)
    def put(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Members without one reach their account page alone from then on."""
        require(self.actor(), Action.SECURITY_SET, organization_id)
        second_factor_require(
            actor=self.actor(),
            organization_id=organization_id,
            required=self.body(SecurityBody).second_factor_required,
        )
        return self._answer(organization_id)

    def _answer(self, organization_id: uuid.UUID) -> Response:
        found = organization_of(actor=self.actor(), organization_id=organization_id)
        body: SecurityJson = {
            "object": "organization.security",
            "second_factor_required": found.second_factor_required,
        }
        return Response(body)


class Invitations(ApiView):
    """`GET | POST invitations`."""

    step_up_methods = frozenset({"POST"})

    @operation(answer=InvitationsJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Without their links, which nobody can show again."""
        rows = invitation_list(actor=self.actor(), organization_id=organization_id)
        return self.listed(rows, invitation_json)

    @operation(body=InvitationBody, answer=NewInvitationJson, status=CREATED)
    def post(self, request: Request, organization_id: uuid.UUID) -> Response:
        """The link works once, for seven days; an earlier one to the same address ends."""
        actor = self.actor()
        organization = organization_of(actor=actor, organization_id=organization_id)
        wanted = self.body(InvitationBody)
        made, token = invitation_create(
            actor=actor,
            organization=organization,
            email=wanted.email,
            role=read_role(wanted.role),
        )
        body = {**invitation_json(made), "path": f"{INVITATION_PATH}{token}"}
        return Response(body, status=CREATED, headers={"Cache-Control": "no-store"})


class OneInvitation(ApiView):
    """`DELETE invitations/<id>`."""

    @operation(answer=WithdrawnJson)
    def delete(
        self, request: Request, organization_id: uuid.UUID, invitation_id: uuid.UUID
    ) -> Response:
        """Its link stops working."""
        actor = self.actor()
        found = invitation_get(
            actor=actor, organization_id=organization_id, invitation_id=invitation_id
        )
        changed = invitation_withdraw(actor=actor, invitation=found)
        return Response({"id": str(found.id), "changed": changed})


class Projects(ApiView):
    """`GET | POST projects`."""

    @operation(answer=ProjectsJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """For every member."""
        rows = projects_of(actor=self.actor(), organization_id=organization_id)
        return self.listed(rows, project_json)

    @operation(body=ProjectBody, answer=ProjectJson, status=CREATED)
    def post(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Its safety layer and content logging start off."""
        actor = self.actor()
        organization = organization_of(actor=actor, organization_id=organization_id)
        name = self.body(ProjectBody).name
        made = project_create(actor=actor, organization=organization, name=name)
        return Response(project_json(made), status=CREATED)


class OneProject(ApiView):
    """`GET | PATCH projects/<id>`."""

    @operation(answer=ProjectJson)
    def get(self, request: Request, organization_id: uuid.UUID, project_id: uuid.UUID) -> Response:
        """For every member."""
        return Response(project_json(self._found(organization_id, project_id)))

    @operation(body=ProjectChange, answer=ProjectJson)
    def patch(
        self, request: Request, organization_id: uuid.UUID, project_id: uuid.UUID
    ) -> Response:
        """Gateways follow within two seconds."""
        actor, project = self.actor(), self._found(organization_id, project_id)
        change = self.body(ProjectChange)
        mode, logging = project.safety_mode, project.allow_content_logging
        with transaction.atomic():
            project_update(
                actor=actor,
                project=project,
                safety_mode=given(change.safety_mode, mode),
                allow_content_logging=given(change.allow_content_logging, logging),
            )
            if change.name is not msgspec.UNSET:
                project_rename(actor=actor, project=project, name=change.name)
        return Response(project_json(project))

    def _found(self, organization_id: uuid.UUID, project_id: uuid.UUID) -> Project:
        return project_of(
            actor=self.actor(), organization_id=organization_id, project_id=project_id
        )


class Weight(ApiView):
    """`PUT projects/<id>/weight`: for staff, of any organization."""

    @operation(body=WeightBody, answer=ProjectJson)
    def put(self, request: Request, organization_id: uuid.UUID, project_id: uuid.UUID) -> Response:
        """What one tenant gains here, the others lose."""
        actor = self.actor()
        project = project_share(actor=actor, organization_id=organization_id, project_id=project_id)
        project_weigh(actor=actor, project=project, weight=self.body(WeightBody).weight)
        return Response(project_json(project))


def read_role(text: str) -> Role:
    """A role by its name; raises ValidationError (`role`)."""
    try:
        return Role(text)
    except ValueError as error:
        raise ValidationError({"role": f"Must be one of {', '.join(Role)}."}) from error


def given(value: Value | msgspec.UnsetType, kept: Value) -> Value:
    """A value that was sent, else the one that is kept."""
    return kept if isinstance(value, msgspec.UnsetType) else value


def member_json(row: Member) -> MemberJson:
    """A member for programs."""
    seen = row.last_seen
    return {
        "user_id": str(row.membership.user_id),
        "object": "member",
        "email": row.membership.user.email,
        "role": row.membership.role,
        "second_factor": row.second_factor,
        "last_seen_at": seen.isoformat() if seen else None,
    }


def invitation_json(row: Invitation) -> InvitationJson:
    """An invitation for programs, without its link."""
    return {
        "id": str(row.id),
        "object": "invitation",
        "email": row.email,
        "role": row.role,
        "state": row.state(timezone.now()),
        "invited_by": row.invited_by.email if row.invited_by else None,
        "expires_at": row.expires_at.isoformat(),
    }


def project_json(row: Project) -> ProjectJson:
    """A project for programs."""
    return {
        "id": str(row.id),
        "object": "project",
        "name": row.name,
        "safety_mode": row.safety_mode,
        "allow_content_logging": row.allow_content_logging,
        "weight": row.weight,
    }
