"""Services of sessions: where someone is signed in, and how each of those ends.

A row goes with a session of Django's; ending one removes both: its next request is no one's.
"""

import uuid
from datetime import timedelta

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.core.audit.entries import Actor, audit_record
from controlplane.tenants.models import User, UserSession
from controlplane.tenants.people.models import DEVICE_CHARS_MAX

# Each page that is opened would be a write otherwise.
SEEN_STEP = timedelta(minutes=1)
SESSIONS_SHOWN_MAX = 100


def session_open(*, user: User, session_key: str, device: str, address: str | None) -> uuid.UUID:
    """Note where a user has signed in; rows of sessions that ran out go at this occasion."""
    now = timezone.now()
    old = now - timedelta(seconds=settings.SESSION_COOKIE_AGE)
    UserSession.objects.filter(user=user, last_seen_at__lt=old).delete()
    device = "".join(char for char in device if char.isprintable())[:DEVICE_CHARS_MAX]
    # A browser opens several pages at once with a new session.
    made, _ = UserSession.objects.get_or_create(
        session_key=session_key,
        defaults={"user": user, "device": device, "address": address, "last_seen_at": now},
    )
    return made.id


def session_seen(*, session_id: uuid.UUID, session_key: str, address: str | None) -> None:
    """Note that a session was used: at most once a minute, and at once under a new key."""
    now = timezone.now()
    due = Q(last_seen_at__lt=now - SEEN_STEP) | ~Q(session_key=session_key)
    UserSession.objects.filter(due, id=session_id).update(
        session_key=session_key, address=address, last_seen_at=now
    )


def session_list(*, user: User) -> list[UserSession]:
    """Sessions of a user that can still be used, the latest seen first."""
    rows = UserSession.objects.filter(user=user).order_by("-last_seen_at", "-id")
    found = list(rows[:SESSIONS_SHOWN_MAX])
    keys = [row.session_key for row in found]
    usable = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    alive = set(usable.values_list("session_key", flat=True))
    return [row for row in found if row.session_key in alive]


def session_end(*, user: User, session_id: uuid.UUID) -> bool:
    """End one of one's own sessions. False where it has ended before."""
    return _end(user, user, UserSession.objects.filter(user=user, id=session_id).first())


def session_signed_out(*, session_key: str) -> None:
    """Forget the session that signs itself out."""
    UserSession.objects.filter(session_key=session_key).delete()


def sessions_end(*, actor: Actor, user: User, keep: str | None = None) -> int:
    """End a user's sessions but the one with the key `keep`; returns how many."""
    rows = UserSession.objects.filter(user=user)
    if keep is not None:
        rows = rows.exclude(session_key=keep)
    return sum(_end(actor, user, row) for row in rows)


def _end(actor: Actor, user: User, row: UserSession | None) -> bool:
    if row is None:
        return False
    with transaction.atomic():
        deleted, _ = UserSession.objects.filter(id=row.id).delete()
        if deleted:
            Session.objects.filter(session_key=row.session_key).delete()
            audit_record(
                actor, "session.end", subject=row, detail={"user": user.email, "device": row.device}
            )
    return bool(deleted)
