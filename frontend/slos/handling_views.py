"""What people do about alerts and channels: acknowledge, assign, silence, send a test."""

import uuid

from django.core.exceptions import ValidationError
from django.http import HttpRequest

from controlplane.core.permissions import Action
from controlplane.slos import handling, selectors
from controlplane.slos.models import EVERYONE
from frontend.shared.access import Viewer
from frontend.shared.forms import changes

SILENCES = ((60, "1 hour"), (240, "4 hours"), (1_440, "1 day"), (10_080, "7 days"))
INSTALLATION = "installation"


@changes("slos/alerts/<alert:alert_id>", Action.SLO_VIEW, "slos")
def slo_alert_handle(request: HttpRequest, viewer: Viewer, alert_id: uuid.UUID) -> str:
    """Acknowledge it, or say who takes care of it."""
    organization = asked_of(request, viewer)
    act = request.POST.get("act", "")
    if act == "acknowledge":
        first = handling.alert_acknowledge(
            actor=viewer.user, organization=organization, alert_id=alert_id
        )
        return "The alert is acknowledged." if first else "It was already acknowledged."
    emails = {"take": viewer.user.email, "assign": request.POST.get("email", "").strip()}
    if act not in emails:
        raise ValidationError({"act": "Must be acknowledge, take or assign."})
    made = handling.alert_assign(
        actor=viewer.user, organization=organization, alert_id=alert_id, email=emails[act]
    )
    return f"Assigned to {made.assignee}." if made.assignee else "Assigned to nobody."


@changes("slos/<objective:objective_id>/silence", Action.SLO_VIEW, "slo", "objective_id")
def slo_silence(request: HttpRequest, viewer: Viewer, objective_id: uuid.UUID) -> str:
    """Tell nobody of new alerts for a while, or end that."""
    text = request.POST.get("minutes", "")
    if not (text.isascii() and text.isdecimal()):
        raise ValidationError({"minutes": "Must be a whole number."})
    found = selectors.objective_get(
        actor=viewer.user, organization=asked_of(request, viewer), objective_id=objective_id
    )
    made = handling.objective_silence(
        actor=viewer.user,
        objective=found,
        minutes=int(text),
        reason=request.POST.get("reason", "").strip(),
    )
    if made is None:
        return "The silence has ended."
    return f"Nobody is notified of new alerts until {made.until:%Y-%m-%d %H:%M} UTC."


@changes("slos/channels/<channel:channel_id>/test", Action.SLO_VIEW, "slos")
def slo_channel_test(request: HttpRequest, viewer: Viewer, channel_id: uuid.UUID) -> str:
    """Send a test to a channel."""
    handling.channel_test(
        actor=viewer.user, organization=asked_of(request, viewer), channel_id=channel_id
    )
    return "A test is sent within ten seconds; see the result under Messages."


def asked_of(request: HttpRequest, viewer: Viewer) -> uuid.UUID:
    """Whose objectives a form is about."""
    return EVERYONE if request.POST.get("of") == INSTALLATION else viewer.organization.id
