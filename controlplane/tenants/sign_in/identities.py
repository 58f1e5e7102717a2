"""Services of outside identities: whose account a provider's subject is, and in which roles.

No one signs up: an identity opens the account it is linked to. It is linked once, to an account in
an organization or to an invitation, by an address that the provider vouches for; or it is let in by
the roles that the operator gives to groups. Those are given, changed and taken back at each
sign-in; what people have given is left as it is.
"""

from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.core.audit.entries import Operator, audit_record
from controlplane.core.mail import is_email, mail_send
from controlplane.core.permissions import Role, organization_scope, person_scope
from controlplane.kernel.ids import uuid_of
from controlplane.tenants.models import ApiKey, Membership, Organization, OutsideIdentity, User
from controlplane.tenants.people.services import (
    BadInvitation,
    invitation_accept,
    invitation_of,
    membership_end,
    membership_set,
)
from controlplane.tenants.selectors import organization_list
from controlplane.tenants.sign_in.accounts import account_of_invitation, user_find
from controlplane.tenants.sign_in.providers import OidcProvider

_log = structlog.get_logger(__name__)


class NotInvited(Exception):
    """The provider knows this person, and no one here has let them in."""


class RoleRules(Operator):
    """The operator's rules, on whose behalf a sign-in gives and takes roles."""

    actor_label = "single sign-on"


@dataclass(frozen=True)
class Identity:
    """Who the provider says it is; `email` only where it may be believed, else empty."""

    provider: OidcProvider
    subject: str
    email: str
    groups: frozenset[str]
    # When they last showed the provider who they are, in Unix seconds; 0 where it does not say.
    shown_at_s: float


def identity_user(identity: Identity, *, token: str = "") -> User:
    """The user of an identity, in the roles of its groups; `token` is an invitation's.

    Raises NotInvited, and BadInvitation for a link that is no good for them.
    """
    issuer, email = identity.provider.issuer, identity.email
    rows = OutsideIdentity.objects.select_related("user")
    found = rows.filter(issuer=issuer, subject=identity.subject).first()
    known = found.user if found else None
    if known is not None:
        if not known.is_active:
            raise NotInvited
        if token:
            invitation_accept(token=token, user=known)
        _roles_apply(known, identity)
        return known
    if not email:
        raise NotInvited
    with transaction.atomic():
        user = _invited(email, token) if token else _member(email) or _newcomer(identity)
        # One account is one person's at the provider: another subject of that address is another.
        if user.outside_identities.filter(issuer=issuer).exists():
            raise NotInvited
        made = OutsideIdentity.objects.create(user=user, issuer=issuer, subject=identity.subject)
        audit_record(user, "identity.link", subject=made, detail={"issuer": issuer, "email": email})
        _roles_apply(user, identity)
        # No room, or no such organization.
        if not organization_list(user=user):
            raise NotInvited
    return user


def _invited(email: str, token: str) -> User:
    invitation = invitation_of(token=token)
    if invitation is None or invitation.email != email:
        raise BadInvitation
    user = user_find(email=email) or account_of_invitation(email=email, password=None)
    invitation_accept(token=token, user=user)
    return user


def _member(email: str) -> User | None:
    user = user_find(email=email)
    return user if user and user.is_active and organization_list(user=user) else None


def _newcomer(identity: Identity) -> User:
    email = identity.email
    # An account without an organization was taken out of it, or was never let in.
    if not _wanted(identity) or not is_email(email) or user_find(email=email) is not None:
        raise NotInvited
    return account_of_invitation(email=email, password=None)


def _wanted(identity: Identity) -> dict[UUID, Role]:
    """By organization the first role, in the order of `Role`, that a rule gives them."""
    found: dict[UUID, Role] = {}
    for rule in identity.provider.roles:
        if rule.group is None or rule.group in identity.groups:
            place = uuid_of(rule.organization, "org")
            found[place] = min(found.get(place, rule.role), rule.role, key=list(Role).index)
    return found


def _roles_apply(user: User, identity: Identity) -> None:
    issuer, wanted = identity.provider.issuer, _wanted(identity)
    # Whose roles stay: people's, and those of other providers that are still there.
    others = {"", *(each.issuer for each in settings.OIDC_PROVIDERS)} - {issuer}
    with person_scope(user.id):
        rows = Membership.objects.filter(user_id=user.id).exclude(issuer__in=others)
        granted = dict(rows.values_list("organization_id", "role"))
    for place in sorted(granted.keys() | wanted.keys()):
        if granted.get(place) == wanted.get(place):
            continue
        try:
            with organization_scope([place]):
                # Its row is the lock: whoever gives the person a role meanwhile has given it
                # before or after.
                organization = Organization.objects.select_for_update(no_key=True).get(id=place)
                rows = Membership.objects.select_related("user", "organization")
                held = rows.filter(user_id=user.id, organization_id=place).first()
                if held is None or held.issuer not in others:
                    _role_apply(user, organization, held, wanted.get(place), issuer)
        # It is full, would have no owner left, or is not there: the others still count.
        except (ValidationError, Organization.DoesNotExist) as error:
            _log.warning(
                "role of single sign-on not applied", organization=str(place), detail=str(error)
            )


def _role_apply(
    user: User, organization: Organization, held: Membership | None, role: Role | None, issuer: str
) -> None:
    if role is not None and (held is None or (held.role, held.issuer) != (role, issuer)):
        membership_set(
            actor=RoleRules(), organization=organization, user=user, role=role, issuer=issuer
        )
    elif role is None and held is not None:
        left = membership_end(actor=RoleRules(), membership=held)
        if left:
            _owners_tell(user, organization, left)


def _owners_tell(user: User, organization: Organization, left: list[ApiKey]) -> None:
    """Mail who may decide about keys that go on without their maker, once it is so."""
    rows = Membership.objects.filter(organization=organization, role=Role.OWNER.value)
    to = list(rows.filter(user__is_active=True).values_list("user__email", flat=True))
    keys = "\n".join(f"{key.label} ({key.redacted})" for key in left)
    text = (
        f"{user.email} has lost the role in {organization.name} that single sign-on gave. API keys "
        f"that they made still work:\n\n{keys}\n\nRevoke those that no program needs: "
        f"{settings.PAGES_URL}/keys\n"
    )
    subject = f"Keys of {user.email} still work"
    transaction.on_commit(partial(mail_send, to=to, subject=subject, text=text))
