"""What people do about alerts: acknowledge, assign, silence with an end, and try a channel out.

Each is audited. A silence keeps messages about new alerts back; where one still fires when it
ends, and nobody has acknowledged it, it is told then.
"""

import uuid
from datetime import datetime, timedelta
from functools import partial

from django.core.exceptions import ValidationError
from django.utils import timezone

from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.mail import NOT_EMAIL, is_email
from controlplane.core.permissions import Action
from controlplane.slos.channels.delivery import EMAIL
from controlplane.slos.channels.messages import ATTEMPTS_MAX
from controlplane.slos.channels.words import ASSIGNED, TEST
from controlplane.slos.models import (
    ADDRESS_CHARS_MAX,
    EVERYONE,
    Alert,
    Channel,
    Delivery,
    Objective,
    Silence,
)
from controlplane.slos.services import changing, seeing
from controlplane.tenants.access import require
from controlplane.tenants.models import Membership, User

SILENCE_MIN_MAX = 7 * 24 * 60
handling = partial(seeing, action=Action.SLO_HANDLE)


def alert_acknowledge(*, actor: Actor, organization: uuid.UUID, alert_id: uuid.UUID) -> bool:
    """Somebody has seen it; False where somebody had before."""
    with handling(actor, organization):
        alert = Alert.objects.get(id=alert_id, organization=organization)
        rows = Alert.objects.filter(id=alert_id, acknowledged_at=None)
        done = rows.update(acknowledged_at=timezone.now(), acknowledged_by=actor.actor_label)
        if done:
            facts: Facts = {"objective": alert.objective.name}
            audit_record(actor, "slo_alert.acknowledge", subject=alert, detail=facts)
    return bool(done)


def alert_assign(
    *, actor: Actor, organization: uuid.UUID, alert_id: uuid.UUID, email: str
) -> Alert:
    """Who takes care of it, by e-mail; empty is nobody. Somebody else is told by a message.

    Anyone who may handle alerts may take one; to give it to another needs the list of members.
    """
    with handling(actor, organization):
        alert = Alert.objects.select_for_update().get(id=alert_id, organization=organization)
        own = isinstance(actor, User) and email == actor.email
        if email and not own:
            if organization != EVERYONE:
                require(actor, Action.MEMBER_VIEW, organization)
            _check_person(organization, email)
        alert.assignee = email
        alert.save(update_fields=["assignee"])
        audit_record(actor, "slo_alert.assign", subject=alert, detail={"to": email})
        if email and not own:
            Delivery.objects.get_or_create(
                alert=alert,
                event=ASSIGNED,
                channel=None,
                address=email,
                defaults={
                    "organization": organization, "kind": EMAIL, "due_at": timezone.now(),
                },
            )  # fmt: skip
    return alert


def _check_person(organization: uuid.UUID, email: str) -> None:
    if not is_email(email):
        raise ValidationError({"email": NOT_EMAIL})
    people = User.objects.filter(email=email, is_active=True)
    if organization == EVERYONE:
        known = people.filter(is_staff=True).exists()
    else:
        members = Membership.objects.filter(organization_id=organization)
        known = people.filter(id__in=members.values("user_id")).exists()
    if not known:
        raise ValidationError({"email": "Must be the e-mail of a member."})


def objective_silence(
    *, actor: Actor, objective: Objective, minutes: int, reason: str = ""
) -> Silence | None:
    """Tell nobody of new alerts for so long from now; 0 minutes end the silence."""
    if not 0 <= minutes <= SILENCE_MIN_MAX:
        raise ValidationError({"minutes": f"Must be 0 to {SILENCE_MIN_MAX:,}."})
    if len(reason) > ADDRESS_CHARS_MAX:
        raise ValidationError({"reason": f"At most {ADDRESS_CHARS_MAX} characters."})
    now = timezone.now()
    with handling(actor, objective.organization):
        Silence.objects.filter(objective=objective, until__gt=now).update(until=now)
        if minutes:
            made = Silence.objects.create(
                organization=objective.organization,
                objective=objective,
                until=now + timedelta(minutes=minutes),
                by=actor.actor_label,
                reason=reason,
            )
        facts: Facts = {"name": objective.name, "minutes": minutes, "reason": reason}
        audit_record(actor, "objective.silence", subject=objective, detail=facts)
    return made if minutes else None


def silence_of(objective: Objective, now: datetime) -> Silence | None:
    """The one in force, for reads inside the organization's scope."""
    return Silence.objects.filter(objective=objective, until__gt=now).order_by("-until").first()


def channel_test(*, actor: Actor, organization: uuid.UUID, channel_id: uuid.UUID) -> Delivery:
    """Send a test there with the next messages; one at a time."""
    with changing(actor, organization):
        channel = Channel.objects.get(id=channel_id, organization=organization)
        waiting = Delivery.objects.filter(
            channel=channel, event=TEST, sent_at=None, attempts__lt=ATTEMPTS_MAX
        )
        if waiting.exists():
            raise ValidationError({"channel": "A test is still being sent there."})
        made = Delivery.objects.create(
            organization=organization,
            channel=channel,
            event=TEST,
            kind=channel.kind,
            due_at=timezone.now(),
        )
        audit_record(actor, "slo_channel.test", subject=channel, detail={"kind": channel.kind})
    return made
