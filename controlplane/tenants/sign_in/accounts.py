"""Services of accounts: staff make them, their owners set the password through a one-time link.

There is no default password and no sign-up.
"""

import secrets
import uuid
from datetime import timedelta
from hashlib import sha256

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.mail import NOT_EMAIL, is_email, mail_send
from controlplane.core.permissions import Action
from controlplane.tenants.access import require
from controlplane.tenants.models import SetupLink, User
from controlplane.tenants.sign_in.sessions import sessions_end

SETUP_TOKEN_BYTES = 32
SETUP_LIFETIME = timedelta(days=1)
SETUP_PATH = "/setup/"


class BadSetupLink(ValueError):
    """The link is unknown, used or expired; which of them is not told."""


def user_find(*, email: str) -> User | None:
    return User.objects.filter(email=email.strip().lower()).first()


def user_create(*, actor: Actor, email: str, is_staff: bool = False) -> User:
    require(actor, Action.USER_CREATE)
    email = email_clean(email)
    with transaction.atomic():
        if User.objects.filter(email=email).exists():
            raise ValidationError({"email": "An account with this address already exists."})
        made = User(email=email, is_staff=is_staff)
        made.set_unusable_password()
        made.save(force_insert=True)
        audit_record(
            actor, "user.create", subject=made, detail={"email": email, "is_staff": is_staff}
        )
    return made


def email_clean(email: str) -> str:
    """An address as accounts have it; raises ValidationError (`email`)."""
    email = email.strip().lower()
    if not is_email(email):
        raise ValidationError({"email": NOT_EMAIL})
    return email


def account_of_invitation(*, email: str, password: str | None) -> User:
    """The account of someone invited, in the transaction that accepts; None sets no password."""
    made = User(email=email)
    made.set_password(password)
    made.save(force_insert=True)
    audit_record(made, "user.create", subject=made, detail={"email": email})
    return made


def setup_link_create(*, actor: Actor, user: User) -> str:
    """A token that lets `user` set a password once; earlier ones stop working."""
    require(actor, Action.USER_CREATE)
    with transaction.atomic():
        SetupLink.objects.filter(user=user, used_at=None).update(used_at=timezone.now())
        return setup_link_make(actor=actor, user=user, lifetime=SETUP_LIFETIME)


def setup_link_make(
    *,
    actor: Actor,
    user: User,
    lifetime: timedelta,
    organization_id: uuid.UUID | None = None,
    by_member: bool = False,
) -> str:
    """The token of one more link, in the caller's transaction; who may is theirs to say."""
    token = secrets.token_urlsafe(SETUP_TOKEN_BYTES)
    made = SetupLink.objects.create(
        user=user,
        digest=token_digest(token),
        expires_at=timezone.now() + lifetime,
        by_member=by_member,
    )
    audit_record(
        actor,
        "setup_link.create",
        subject=made,
        organization_id=organization_id,
        detail={"email": user.email},
    )
    return token


def member_links_end(user: User) -> None:
    """End the account's open links that members made, since it may do more now.

    Call it in the transaction that gives a role. Its row is the lock: no link is made meanwhile by
    rights that were checked before.
    """
    User.objects.select_for_update().get(id=user.id)
    links = SetupLink.objects.filter(user=user, used_at=None, by_member=True)
    links.update(used_at=timezone.now())


def setup_link_tell(*, actor: Actor, user: User) -> bool:
    """Mail the account's owner that someone else has made a link; after the commit."""
    if actor.actor_id == user.id:
        return False
    text = (
        f"A one-time link that sets a new password of {user.email} on Sluice was created by "
        f"{actor.actor_label}. It works once and expires in one day.\n\nIf you did not request "
        "it, contact the operator of this installation now.\n"
    )
    subject = "A link to set your password was created"
    return mail_send(to=[user.email], subject=subject, text=text)


def setup_link_user(*, token: str) -> User | None:
    """Whose password a link would set; None where it is no good."""
    found = SetupLink.objects.select_related("user").filter(
        digest=token_digest(token),
        used_at=None,
        expires_at__gt=timezone.now(),
        user__is_active=True,
    )
    link = found.first()
    return link.user if link else None


def setup_link_consume(*, token: str, password: str) -> User:
    """Set the password and spend the link; raises BadSetupLink, or ValidationError (`password`)."""
    user = setup_link_user(token=token)
    if user is None:
        raise BadSetupLink
    password_check(password, user)
    # Before the transaction: hashing is slow on purpose, and the database ends idle transactions.
    user.set_password(password)
    now = timezone.now()
    with transaction.atomic():
        # The condition decides between two who use the link at once.
        spent = SetupLink.objects.filter(
            digest=token_digest(token), used_at=None, expires_at__gt=now
        ).update(used_at=now)
        if not spent:
            raise BadSetupLink
        _password_save(user, keep=None)
    return user


def password_change(*, user: User, before: str, password: str, session_key: str) -> None:
    """Change one's own password; all other sessions end. Raises ValidationError by field."""
    if not user.check_password(before):
        raise ValidationError({"before": "The password is incorrect."})
    password_check(password, user)
    user.set_password(password)
    with transaction.atomic():
        _password_save(user, keep=session_key)


def password_check(password: str, user: User) -> None:
    """Raises ValidationError (`password`) for one that is short, common or like the address."""
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise ValidationError({"password": error.messages}) from error


def _password_save(user: User, *, keep: str | None) -> None:
    user.save(update_fields=["password"])
    SetupLink.objects.filter(user=user, used_at=None).update(used_at=timezone.now())
    ended = sessions_end(actor=user, user=user, keep=keep)
    audit_record(user, "user.set_password", subject=user, detail={"sessions_ended": ended})


def token_digest(token: str) -> bytes:
    # 256 random bits need no slow hash and no pepper.
    return sha256(token.encode("utf-8", "replace")).digest()
