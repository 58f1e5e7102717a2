"""Services of lost passwords: a link by mail to whoever asks, and one that an administrator makes.

Either sets a password once and ends all sessions of the account; a second factor is asked for as
ever. Who asks learns nothing of whether there is such an account.
"""

import uuid
from datetime import timedelta
from threading import BoundedSemaphore, Thread

import structlog
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, Operator
from controlplane.core.audit.origin import Origin, coming_from, origin_now
from controlplane.core.mail import mail_send
from controlplane.core.permissions import GRANTABLE, Action, Role, organization_scope, person_scope
from controlplane.tenants.access import allows, require, role_of
from controlplane.tenants.models import Membership, SetupLink, User
from controlplane.tenants.people.selectors import member_get
from controlplane.tenants.people.services import require_grantable
from controlplane.tenants.sign_in import accounts

MAILED_LIFETIME = timedelta(minutes=30)
# Links of one account: more would be a way to fill someone's mailbox.
LINKS_MAX = 3
LINKS_WINDOW = timedelta(hours=1)
# Mails on their way at once; who asks beyond that is not served, and may ask again.
MAILS_MAX = 4
_mails = BoundedSemaphore(MAILS_MAX)
_log = structlog.get_logger(__name__)


class AnonymousCaller:
    """Whoever asks for a link and has not shown who they are."""

    actor_id = None
    actor_label = "anonymous"


def password_link_ask(*, email: str, place: str) -> None:
    """Mail a link to the account's owner; `place` is the address before the link's token.

    Returns at once, whoever it is: how long a look-up and a mail take tells no one anything.
    """
    if not _mails.acquire(blocking=False):
        _log.warning("password link not mailed", reason="too many pending")
        return
    Thread(target=_mail_and_release, args=(email, place, origin_now()), daemon=True).start()


def _mail_and_release(email: str, place: str, origin: Origin) -> None:
    try:
        with coming_from(lambda: origin):
            password_link_mail(email=email, place=place)
    except DatabaseError as error:
        _log.warning("password link not mailed", error=str(error))
    finally:
        connection.close()
        _mails.release()


def password_link_mail(*, email: str, place: str) -> bool:
    """Make the link and send it; False where there is no one to send it to."""
    user = accounts.user_find(email=email)
    # Who comes by a provider alone is let in by the provider alone.
    if user is None or not user.is_active or not user.has_usable_password():
        return False
    with transaction.atomic():
        # The account's row is the lock: the bound holds however many ask at once.
        User.objects.select_for_update().get(id=user.id)
        since = timezone.now() - LINKS_WINDOW
        if SetupLink.objects.filter(user=user, created_at__gte=since).count() >= LINKS_MAX:
            return False
        token = accounts.setup_link_make(
            actor=AnonymousCaller(), user=user, lifetime=MAILED_LIFETIME
        )
    text = (
        f"A password reset was requested for {user.email} on Sluice.\n\n{place}{token}\n\n"
        "The link works once and expires in 30 minutes. If you did not request it, ignore this "
        "message: your password stays unchanged.\n"
    )
    return mail_send(to=[user.email], subject="Set a new password", text=text)


def member_for_link(*, actor: Actor, organization_id: uuid.UUID, user_id: uuid.UUID) -> Membership:
    """A membership as its members see it, and staff of the installation; raises DoesNotExist."""
    if not allows(actor, Action.USER_CREATE):
        return member_get(actor=actor, organization_id=organization_id, user_id=user_id)
    with organization_scope([organization_id]):
        rows = Membership.objects.select_related("user", "organization")
        return rows.get(organization_id=organization_id, user_id=user_id)


def member_link_create(*, actor: Actor, membership: Membership) -> str:
    """A token that lets a member set a password once; earlier ones stop working.

    For staff, and for those who may do all that the account may do, wherever it may do it. Of
    staff's own accounts, the operator alone: no one becomes a colleague who has to approve.
    """
    user, organization_id = membership.user, membership.organization_id
    if user.is_staff and not isinstance(actor, Operator):
        raise PermissionDenied(Action.MEMBER_RECOVER)
    by_member = not allows(actor, Action.USER_CREATE)
    if by_member:
        require(actor, Action.MEMBER_RECOVER, organization_id)
    with transaction.atomic():
        # The account's row is the lock: it gets no other role before the link is made.
        User.objects.select_for_update().get(id=user.id)
        if by_member:
            require_grantable(actor, organization_id, {Role(membership.role)})
            _require_all_of(actor, user)
        now = timezone.now()
        SetupLink.objects.filter(user=user, used_at=None).update(used_at=now)
        token = accounts.setup_link_make(
            actor=actor,
            user=user,
            lifetime=accounts.SETUP_LIFETIME,
            organization_id=organization_id,
            by_member=by_member,
        )
    accounts.setup_link_tell(actor=actor, user=user)
    return token


def _require_all_of(actor: Actor, user: User) -> None:
    """Raises PermissionDenied where the account is more than the actor may give."""
    if not isinstance(actor, User):
        raise PermissionDenied(Action.MEMBER_RECOVER)
    with person_scope(user.id):
        rows = Membership.objects.filter(user_id=user.id)
        held = list(rows.values_list("organization_id", "role"))
    for organization_id, role in held:
        own = role_of(actor, organization_id)
        if own is None or Role(role) not in GRANTABLE[own]:
            raise PermissionDenied(Action.MEMBER_RECOVER)
