"""Services of members: who is in an organization, in which role, how that ends; and of invitations,
a one-time link for an address and a role, shown once to who makes it.

An organization keeps an owner, and no one grants or takes a role beyond what their own allows. The
link names its organization, so that it is looked up within that one alone. It can grant no more
than its maker may grant on the day it is used.
"""

import secrets
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, Facts, Operator, audit_record
from controlplane.core.permissions import GRANTABLE, MATRIX, Action, Role, organization_scope
from controlplane.tenants.access import membership_of, permitted, require, role_of
from controlplane.tenants.models import AdminKey, ApiKey, Invitation, Membership, Organization, User
from controlplane.tenants.people.models import UNUSED
from controlplane.tenants.room import member_room, organization_lock
from controlplane.tenants.sign_in import accounts
from controlplane.tenants.sign_in.sessions import sessions_end

LIFETIME = timedelta(days=7)
OPEN_MAX = 100
SHOWN_MAX = 200
TOKEN_BYTES = 32
TOKEN_CHARS_MAX = 100


def membership_set(
    *, actor: Actor, organization: Organization, user: User, role: Role, issuer: str = ""
) -> Membership:
    """Make a user a member, or change their role; no one grants more than they may.

    `issuer` is the provider by whose rules it is, and which may take it back.
    """
    require(actor, Action.MEMBER_MANAGE, organization.id)
    held = membership_of(user, organization.id)
    before = held.role if held else None
    require_grantable(actor, organization.id, {role, before} - {None})
    with organization_scope([organization.id]):
        _keep_an_owner(organization, user, role)
        if before is None:
            member_room(organization.id)
        made, _ = Membership.objects.update_or_create(
            organization=organization, user=user, defaults={"role": role.value, "issuer": issuer}
        )
        accounts.member_links_end(user)
        if before is not None:
            _end_tokens(user)
        facts: Facts = {"user": user.email, "role": role.value, "before": before and before.value}
        audit_record(
            actor,
            "membership.set",
            subject=made,
            detail=facts | ({"issuer": issuer} if issuer else {}),
            changed=({"role": before and before.value}, {"role": role.value}),
        )
    return made


def membership_end(*, actor: Actor, membership: Membership) -> list[ApiKey]:
    """Remove a member at once; returns keys that they made and that go on working.

    Programs may depend on those, so that whoever removes the member decides about each.
    """
    organization, user = membership.organization, membership.user
    require(actor, Action.MEMBER_MANAGE, organization.id)
    require_grantable(actor, organization.id, {Role(membership.role)})
    now = timezone.now()
    with organization_scope([organization.id]):
        _keep_an_owner(organization, user, None)
        deleted, _ = Membership.objects.filter(
            organization=organization, user=user, role=membership.role
        ).delete()
        if not deleted:
            raise Membership.DoesNotExist
        _end_tokens(user)
        keys = ApiKey.objects.filter(created_by=user, revoked_at=None).order_by("-id")
        left = [key for key in keys if key.state(now) == "active"]
        facts: Facts = {"user": user.email, "role": membership.role}
        facts["keys_left"] = [key.redacted for key in left]
        audit_record(actor, "membership.end", subject=membership, detail=facts)
    return left


def user_deactivate(*, actor: Actor, user: User) -> bool:
    """Close an account: its sessions, sockets and Playground tokens end. False where it was so."""
    require(actor, Action.USER_CREATE)
    with transaction.atomic():
        # The condition decides a race; losing it is an ordinary answer.
        if not User.objects.filter(id=user.id, is_active=True).update(is_active=False):
            return False
        _end_tokens(user)
        ended = sessions_end(actor=actor, user=user)
        audit_record(
            actor, "user.deactivate", subject=user, detail={"email": user.email, "sessions": ended}
        )
    user.is_active = False
    return True


def person_behind(actor: Actor) -> User | None:
    """Whose rights to give roles count: a key's are its maker's."""
    person = actor.created_by if isinstance(actor, AdminKey) else actor
    return person if isinstance(person, User) else None


def require_grantable(actor: Actor, organization_id: UUID, roles: Iterable[Role | None]) -> None:
    """Return if the actor may give and take these roles; raises PermissionDenied.

    A key gives and takes those of its maker that may do nothing that the key itself may not.
    """
    if isinstance(actor, Operator):
        return
    person = person_behind(actor)
    own = role_of(person, organization_id) if person else None
    allowed = GRANTABLE[own] if own else frozenset()
    if isinstance(actor, AdminKey):
        allowed = frozenset(role for role in allowed if MATRIX[role] <= set(actor.actions))
    if not set(roles) <= allowed:
        raise PermissionDenied(Action.MEMBER_MANAGE)


def _keep_an_owner(organization: Organization, user: User, role: Role | None) -> None:
    # The organization's row is the lock: two owners cannot demote each other at once.
    Organization.objects.select_for_update().get(id=organization.id)
    owners = set(
        Membership.objects.filter(organization=organization, role=Role.OWNER.value).values_list(
            "user_id", flat=True
        )
    )
    if role != Role.OWNER and owners == {user.id}:
        raise ValidationError({"role": "An organization must have at least one owner."})


def _end_tokens(user: User) -> None:
    # Signed tokens cannot be taken back one by one: gateways refuse all made before now.
    User.objects.filter(id=user.id).update(tokens_from=timezone.now())


class BadInvitation(ValueError):
    """The link is unknown, used, withdrawn or too old; which of them is not told."""


def invitation_create(
    *, actor: Actor, organization: Organization, email: str, role: Role
) -> tuple[Invitation, str]:
    """An invitation and its token, known here and never again; an earlier one to them ends."""
    require(actor, Action.MEMBER_MANAGE, organization.id)
    require_grantable(actor, organization.id, {role})
    email = accounts.email_clean(email)
    token, now = f"{organization.id.hex}.{secrets.token_urlsafe(TOKEN_BYTES)}", timezone.now()
    with organization_scope([organization.id]):
        # Its row is the lock: the bounds hold however many invite at once.
        organization_lock(organization.id)
        if Membership.objects.filter(organization=organization, user__email=email).exists():
            raise ValidationError({"email": "This person is already a member."})
        mine = Invitation.objects.filter(UNUSED, organization=organization)
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
            digest=accounts.token_digest(token),
            invited_by=person_behind(actor),
            expires_at=now + LIFETIME,
        )
        _audit(actor, "invitation.create", made)
    return made, token


def invitation_withdraw(*, actor: Actor, invitation: Invitation) -> bool:
    """End an open invitation. False where it was used or over before."""
    with permitted(actor, Action.MEMBER_MANAGE, invitation.organization_id):
        # The condition decides between a withdrawal and a use at the same moment.
        unused = Invitation.objects.filter(UNUSED, id=invitation.id)
        changed = unused.update(withdrawn_at=timezone.now())
        if changed:
            _audit(actor, "invitation.withdraw", invitation)
    return bool(changed)


def invitation_list(*, actor: Actor, organization_id: UUID) -> list[Invitation]:
    """An organization's invitations that no one has used, newest first."""
    with permitted(actor, Action.MEMBER_MANAGE, organization_id):
        rows = Invitation.objects.filter(UNUSED, organization_id=organization_id)
        return list(rows.select_related("invited_by").order_by("-id")[:SHOWN_MAX])


def invitation_get(*, actor: Actor, organization_id: UUID, invitation_id: UUID) -> Invitation:
    """One invitation; raises DoesNotExist for those of strangers."""
    with permitted(actor, Action.MEMBER_MANAGE, organization_id):
        return Invitation.objects.get(id=invitation_id, organization_id=organization_id)


def invitation_of(*, token: str) -> Invitation | None:
    """The open invitation of a link, with its organization."""
    name, _, _ = token.partition(".")
    if len(token) > TOKEN_CHARS_MAX or len(name) != 32:
        return None
    try:
        organization_id = UUID(hex=name)
    except ValueError:
        return None
    with organization_scope([organization_id]):
        rows = Invitation.objects.filter(UNUSED, organization_id=organization_id)
        rows = rows.filter(digest=accounts.token_digest(token), expires_at__gt=timezone.now())
        return rows.select_related("organization").first()


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
        unused = Invitation.objects.filter(UNUSED, id=invitation.id, expires_at__gt=now)
        if not unused.update(accepted_at=now):
            raise BadInvitation
        held, made = Membership.objects.select_for_update().get_or_create(
            organization=organization, user=user, defaults={"role": invitation.role}
        )
        adds = not MATRIX[Role(invitation.role)] < MATRIX[Role(held.role)]
        # What a group gave goes with it; what a person gave stays, unless a group gives all of it.
        if not made and held.issuer and adds:
            held.role, held.issuer = invitation.role, ""
            held.save(update_fields=["role", "issuer"])
        accounts.member_links_end(user)
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
        accounts.password_check(password, User(email=invitation.email))
    with transaction.atomic():
        # Two who use the link at once wait here for each other; the second finds it used.
        with organization_scope([invitation.organization_id]):
            Invitation.objects.select_for_update().get(id=invitation.id)
        if User.objects.filter(email=invitation.email).exists():
            raise BadInvitation
        made = accounts.account_of_invitation(email=invitation.email, password=password)
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
    facts: Facts = {"email": invitation.email, "role": invitation.role}
    audit_record(actor, action, subject=invitation, detail=facts)
