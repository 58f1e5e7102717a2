"""Services of outside identities: whose account an identity provider's subject is.

No one signs up: an identity opens the account it is linked to. It is linked once, to an account in
an organization or to an invitation, by an address that the provider vouches for; or it is let in by
the domain and role that the operator has set.
"""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.core.audit.entries import Facts, audit_record
from controlplane.core.mail import is_email
from controlplane.core.permissions import Role, organization_scope
from controlplane.kernel.ids import uuid_of
from controlplane.tenants.models import Membership, OutsideIdentity, User
from controlplane.tenants.people.services import BadInvitation, invitation_accept, invitation_of
from controlplane.tenants.room import member_room
from controlplane.tenants.selectors import organization_list
from controlplane.tenants.sign_in.accounts import account_of_invitation, user_find


class NotInvited(Exception):
    """The provider knows this person, and no one here has let them in."""


def identity_user(*, issuer: str, subject: str, email: str, token: str = "") -> User:
    """The user of an identity; `email` is empty unless vouched for, `token` an invitation's.

    Raises NotInvited, and BadInvitation for a link that is no good for them.
    """
    rows = OutsideIdentity.objects.select_related("user")
    found = rows.filter(issuer=issuer, subject=subject).first()
    known = found.user if found else None
    if known is not None:
        if not known.is_active:
            raise NotInvited
        if token:
            invitation_accept(token=token, user=known)
        return known
    if not email:
        raise NotInvited
    with transaction.atomic():
        user = _invited(email, token) if token else _member(email) or _of_domain(email)
        # One account is one person's at the provider: another subject of that address is another.
        if user.outside_identities.filter(issuer=issuer).exists():
            raise NotInvited
        made = OutsideIdentity.objects.create(user=user, issuer=issuer, subject=subject)
        audit_record(user, "identity.link", subject=made, detail={"issuer": issuer, "email": email})
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


def _of_domain(email: str) -> User:
    if not settings.OIDC_DOMAIN or email.rpartition("@")[2] != settings.OIDC_DOMAIN:
        raise NotInvited
    if not is_email(email) or user_find(email=email) is not None:
        # An account without an organization was taken out of it, or was never let in.
        raise NotInvited
    organization_id = uuid_of(settings.OIDC_ORGANIZATION, "org")
    with organization_scope([organization_id]):
        try:
            member_room(organization_id)
        except ValidationError:
            raise NotInvited from None
        user = account_of_invitation(email=email, password=None)
        made = Membership.objects.create(
            organization_id=organization_id, user=user, role=Role(settings.OIDC_ROLE).value
        )
        facts: Facts = {"user": user.email, "role": made.role, "before": None}
        audit_record(user, "membership.set", subject=made, detail=facts)
    return user
