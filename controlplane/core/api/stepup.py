"""Step-up: for money and secrets a session must have shown recently that its owner is at the keys.

Bound to the session: what confirms one of a user's sessions opens no other.
"""

from collections.abc import MutableMapping
from typing import Any

from django.core.exceptions import PermissionDenied

from controlplane.kernel.clock import wall_s

CONFIRMED_S_MAX = 15 * 60
_CONFIRMED = "confirmed_at_s"
_BEGUN = "begun_at_s"
Session = MutableMapping[str, Any]


class StepUpRequired(PermissionDenied):
    """The caller may do this, once they have confirmed that it is them, at `/confirm`."""

    code = "step_up_required"
    message = "Confirm your identity first: you signed in too long ago for this action."


class SecondFactorRequired(PermissionDenied):
    """The caller may do this, once they have a second factor: their organization requires one."""

    code = "second_factor_required"
    message = "This organization requires a second factor: add one to your account."


def session_confirm(session: Session, at_s: float | None = None) -> None:
    now_s = wall_s()
    session[_CONFIRMED] = now_s if at_s is None else min(at_s, now_s)


def recently_confirmed(session: Session) -> bool:
    """Whether that was within the last `CONFIRMED_S_MAX` seconds."""
    return _lately(session.get(_CONFIRMED))


def begin_note(session: Session) -> None:
    """Note that someone has signed in just now, whatever they have shown."""
    session[_BEGUN] = wall_s()


def recently_begun(session: Session) -> bool:
    """Whether the sign-in was within the last `CONFIRMED_S_MAX` seconds."""
    return _lately(session.get(_BEGUN))


def _lately(at_s: object) -> bool:
    # A time ahead of the clock is none: it would last for ever.
    return isinstance(at_s, int | float) and 0 <= wall_s() - at_s <= CONFIRMED_S_MAX
