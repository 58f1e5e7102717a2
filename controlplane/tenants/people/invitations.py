"""Services of invitations: a one-time link for an address and a role, shown once to who makes it.

The link names its organization, so that it is looked up within that one alone. It can grant no more
than its maker may grant on the day it is used.
"""

import secrets
import uuid
from datetime import timedelta

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action, Role
from controlplane.core.scope import organization_scope
from controlplane.tenants.access import require
from controlplane.tenants.models import Invitation, Membership, Organization, User
from controlplane.tenants.people.services import person_behind, require_grantable
from controlplane.tenants.room import member_room, organization_lock
from controlplane.tenants.sign_in.accounts import (
    account_of_invitation,
    email_clean,
    member_links_end,
    password_check,
    token_digest,
)

LIFETIME = timedelta(days=7)
OPEN_MAX = 100
SHOWN_MAX = 200
TOKEN_BYTES = 32
TOKEN_CHARS_MAX = 100


class BadInvitation(ValueError):
    """The link is unknown, used, withdrawn or too old; which of them is not told."""


def invitation_create(
    *, actor: Actor, organization: Organization, email: str, role: Role
) -> tuple[Invitation, str]:
    """An invitation and its token, known here and never again; an earlier one to them ends."""
    require(actor, Action.MEMBER_MANAGE, organization.id)
    require_grantable(actor, organization.id, {role})
    email = email_clean(email)
    token, now = f"{organization.id.hex}.{secrets.token_urlsafe(TOKEN_BYTES)}", timezone.now()
    with organization_scope([organization.id]):
        # Its row is the lock: the bounds hold however many invite at once.
        organization_lock(organization.id)
        if Membership.objects.filter(organization=organization, user__email=email).exists():
            raise ValidationError({"email": "This person is already a member."})
        mine = Invitation.objects.filter(
            organization=organization, accepted_at=None, withdrawn_at=None
        )
        mine.filter(email=email).update(withdrawn_at=now)
        if mine.filter(expires_at__gt=now).count() >= OPEN_MAX:
            raise ValidationError(
                {"email": f"At most {OPEN_MAX} open invitations; withdraw one first."}
            )
        member_room(organization.id)
        made = Invitation.objects.create(
            organization=organization,
            email=email,
            role=role.value,
            digest=token_digest(token),
            invited_by=person_behind(actor),
            expires_at=now + LIFETIME,
        )
        _audit(actor, "invitation.create", made)
    return made, token


def invitation_withdraw(*, actor: Actor, invitation: Invitation) -> bool:
    """End an open invitation. False where it was used or over before."""
    require(actor, Action.MEMBER_MANAGE, invitation.organization_id)
    with organization_scope([invitation.organization_id]):
        # The condition decides between a withdrawal and a use at the same moment.
        changed = Invitation.objects.filter(
            id=invitation.id, accepted_at=None, withdrawn_at=None
        ).update(withdrawn_at=timezone.now())
        if changed:
            _audit(actor, "invitation.withdraw", invitation)
    return bool(changed)


def invitation_list(*, actor: Actor, organization_id: uuid.UUID) -> list[Invitation]:
    """An organization's invitations that no one has used, newest first."""
    require(actor, Action.MEMBER_MANAGE, organization_id)
    with organization_scope([organization_id]):
        rows = Invitation.objects.filter(
            organization_id=organization_id, accepted_at=None, withdrawn_at=None
        )
        return list(rows.select_related("invited_by").order_by("-id")[:SHOWN_MAX])


def invitation_get(
    *, actor: Actor, organization_id: uuid.UUID, invitation_id: uuid.UUID
) -> Invitation:
    """One invitation; raises DoesNotExist for those of strangers."""
    require(actor, Action.MEMBER_MANAGE, organization_id)
    with organization_scope([organization_id]):
        return Invitation.objects.get(id=invitation_id, organization_id=organization_id)


def invitation_of(*, token: str) -> Invitation | None:
    """The open invitation of a link, with its organization."""
    name, _, _ = token.partition(".")
    if len(token) > TOKEN_CHARS_MAX or len(name) != 32:
        return None
    try:
        organization_id = uuid.UUID(hex=name)
    except ValueError:
        return None
    with organization_scope([organization_id]):
        rows = Invitation.objects.select_related("organization").filter(
            organization_id=organization_id,
            digest=token_digest(token),
            accepted_at=None,
            withdrawn_at=None,
            expires_at__gt=timezone.now(),
        )
        return rows.first()


def invitation_accept(*, token: str, user: User) -> Organization:
    """Make a user the member that the link is for; raises BadInvitation.

    The account must have the address that was invited: a link passed on opens nothing.
    """
    invitation = invitation_of(token=token)
    if invitation is None or invitation.email != user.email or not user.is_active:
        raise BadInvitation
    _require_maker(invitation)
    now, organization = timezone.now(), invitation.organization
    with organization_scope([organization.id]):
        # The condition decides between two who use the link at once.
        used = Invitation.objects.filter(
            id=invitation.id, accepted_at=None, withdrawn_at=None, expires_at__gt=now
        ).update(accepted_at=now)
        if not used:
            raise BadInvitation
        Membership.objects.get_or_create(
            organization=organization, user=user, defaults={"role": invitation.role}
        )
        member_links_end(user)
        _audit(user, "invitation.accept", invitation)
    return organization


def invitation_sign_up(*, token: str, password: str | None) -> User:
    """Make the account that the link is for and accept; None as password for single sign-on.

    Raises BadInvitation, and ValidationError (`password`).
    """
    invitation = invitation_of(token=token)
    if invitation is None:
        raise BadInvitation
    if password is not None:
        password_check(password, User(email=invitation.email))
    with transaction.atomic():
        # Two who use the link at once wait here for each other; the second finds it used.
        with organization_scope([invitation.organization_id]):
            Invitation.objects.select_for_update().get(id=invitation.id)
        if User.objects.filter(email=invitation.email).exists():
            raise BadInvitation
        made = account_of_invitation(email=invitation.email, password=password)
        invitation_accept(token=token, user=made)
    return made


def _require_maker(invitation: Invitation) -> None:
    # Whoever has left, or may grant less by now, invites no one any more.
    maker = invitation.invited_by
    if maker is None:
        return
    try:
        require_grantable(maker, invitation.organization_id, {Role(invitation.role)})
    except PermissionDenied as error:
        raise BadInvitation from error


def _audit(actor: Actor, action: str, invitation: Invitation) -> None:
    audit_record(
        actor,
        action,
        subject=invitation,
        organization_id=invitation.organization_id,
        detail={"email": invitation.email, "role": invitation.role},
    )
