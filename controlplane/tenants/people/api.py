"""Members, invitations and projects under /api/organizations/<id>/."""

from datetime import datetime
from typing import TypedDict
from uuid import UUID

import msgspec
from django.core.exceptions import ValidationError
from django.utils import timezone
from rest_framework.response import Response

from controlplane.core.answers import Changed, answer_of
from controlplane.core.api.schema import CREATED, Whole, operation
from controlplane.core.api.views import OF_ORGANIZATION, ApiView
from controlplane.core.permissions import Action, Role
from controlplane.kernel.ids import InvitationId, UserId, public_id
from controlplane.tenants.access import require
from controlplane.tenants.models import Invitation
from controlplane.tenants.people import services
from controlplane.tenants.people.selectors import Member, member_get, member_list, organization_of
from controlplane.tenants.people.services import membership_end, membership_set
from controlplane.tenants.sign_in.accounts import SETUP_PATH
from controlplane.tenants.sign_in.factors import second_factor_require
from controlplane.tenants.sign_in.recovery import member_for_link, member_link_create

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


class MemberJson(TypedDict):
    """A member; `last_seen_at` is null where they are signed in nowhere."""

    user_id: UserId
    object: str
    email: str
    role: str
    second_factor: bool
    last_seen_at: datetime | None


class SecurityJson(TypedDict):
    """What an organization requires of its members."""

    object: str
    second_factor_required: bool


class EndedJson(TypedDict):
    """Keys that the removed member has made and that go on working."""

    user_id: UserId
    keys_left: list[str]


class InvitationJson(TypedDict):
    """An invitation; `state` is open or expired."""

    id: InvitationId
    object: str
    email: str
    role: str
    state: str
    invited_by: str | None
    expires_at: datetime


class NewInvitationJson(InvitationJson):
    """With the path of its link, which only this answer has."""

    path: str


class PasswordLinkJson(TypedDict):
    """Whose password the link sets, and its path at the address of the pages."""

    user_id: UserId
    path: str


class Members(ApiView, at=f"{OF_ORGANIZATION}/members"):
    @operation(list_of=Whole(MemberJson))
    def get(self) -> Response:
        """List members, for those who manage them."""
        rows = member_list(**self.whose())
        return self.listed(rows, member_json, "user_id")


class OneMember(ApiView, at=f"{OF_ORGANIZATION}/members/<user:user_id>"):
    @operation(body=RoleBody, answer=MemberJson, step_up=True)
    def put(self, organization_id: UUID, user_id: UUID) -> MemberJson:
        """Set the role of a member, within the caller's own permissions."""
        actor = self.actor()
        found = member_get(actor=actor, organization_id=organization_id, user_id=user_id)
        role = read_role(self.body(RoleBody).role)
        membership_set(actor=actor, organization=found.organization, user=found.user, role=role)
        rows = member_list(actor=actor, organization_id=organization_id)
        return member_json(next(r for r in rows if r.membership.user_id == user_id))

    @operation(answer=EndedJson, step_up=True)
    def delete(self, organization_id: UUID, user_id: UUID) -> EndedJson:
        """Remove a member; returns the keys that they created, which stay active."""
        actor = self.actor()
        found = member_get(actor=actor, organization_id=organization_id, user_id=user_id)
        left = membership_end(actor=actor, membership=found)
        return {"user_id": public_id("user", user_id), "keys_left": [key.redacted for key in left]}


class PasswordLink(ApiView, at=f"{OF_ORGANIZATION}/members/<user:user_id>/password-link"):
    @operation(answer={CREATED: PasswordLinkJson}, step_up=True)
    def post(self, organization_id: UUID, user_id: UUID) -> Response:
        """Create a one-time password link, valid for a day; returned only once."""
        actor = self.actor()
        found = member_for_link(actor=actor, organization_id=organization_id, user_id=user_id)
        token = member_link_create(actor=actor, membership=found)
        body = {"user_id": public_id("user", user_id), "path": f"{SETUP_PATH}{token}"}
        return Response(body, status=CREATED, headers={"Cache-Control": "no-store"})


class Security(ApiView, at=f"{OF_ORGANIZATION}/security"):
    @operation(answer=SecurityJson)
    def get(self, organization_id: UUID) -> Response:
        """Get the security settings of an organization."""
        return self._answer(organization_id)

    @operation(body=SecurityBody, answer=SecurityJson, step_up=True)
    def put(self, organization_id: UUID) -> Response:
        """Set whether members need a second factor."""
        require(self.actor(), Action.SECURITY_SET, organization_id)
        required = self.body(SecurityBody).second_factor_required
        second_factor_require(**self.whose(), required=required)
        return self._answer(organization_id)

    def _answer(self, organization_id: UUID) -> Response:
        found = organization_of(**self.whose())
        body: SecurityJson = {
            "object": "organization.security",
            "second_factor_required": found.second_factor_required,
        }
        return Response(body)


class Invitations(ApiView, at=f"{OF_ORGANIZATION}/invitations"):
    @operation(list_of=Whole(InvitationJson))
    def get(self) -> Response:
        """List invitations without their links."""
        rows = services.invitation_list(**self.whose())
        return self.listed(rows, invitation_json)

    @operation(body=InvitationBody, answer={CREATED: NewInvitationJson}, step_up=True)
    def post(self, organization_id: UUID) -> Response:
        """Invite a person; the link works once, for seven days, and replaces earlier ones."""
        actor = self.actor()
        organization = organization_of(actor=actor, organization_id=organization_id)
        wanted = self.body(InvitationBody)
        made, token = services.invitation_create(
            actor=actor, organization=organization, email=wanted.email, role=read_role(wanted.role)
        )
        body = {**invitation_json(made), "path": f"{INVITATION_PATH}{token}"}
        return Response(body, status=CREATED, headers={"Cache-Control": "no-store"})


class OneInvitation(ApiView, at=f"{OF_ORGANIZATION}/invitations/<invite:invitation_id>"):
    @operation(answer=Changed)
    def delete(self, organization_id: UUID, invitation_id: UUID) -> Changed:
        """Withdraw an invitation; its link stops working."""
        actor = self.actor()
        found = services.invitation_get(
            actor=actor, organization_id=organization_id, invitation_id=invitation_id
        )
        changed = services.invitation_withdraw(actor=actor, invitation=found)
        return {"id": public_id("invite", found.id), "changed": changed}


def read_role(text: str) -> Role:
    """A role by its name; raises ValidationError (`role`)."""
    try:
        return Role(text)
    except ValueError as error:
        raise ValidationError({"role": f"Must be one of {', '.join(Role)}."}) from error


def member_json(row: Member) -> MemberJson:
    return {
        "user_id": public_id("user", row.membership.user_id),
        "object": "member",
        "email": row.membership.user.email,
        "role": row.membership.role,
        "second_factor": row.second_factor,
        "last_seen_at": row.last_seen,
    }


def invitation_json(row: Invitation) -> InvitationJson:
    return answer_of(
        InvitationJson,
        row,
        object="invitation",
        state=row.state(timezone.now()),
        invited_by=row.invited_by and row.invited_by.email,
    )
