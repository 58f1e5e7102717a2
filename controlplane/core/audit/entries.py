"""Audit rows, written in the transaction of the change they tell of, or the change does not happen;
and how many changes one person or key may make in an organization within a minute.

Secrets never come near: callers pass only the facts listed at the call, and what looks like one of
our credentials all the same is cut to the part that names it.
"""

import re
import uuid
from datetime import timedelta
from types import EllipsisType
from typing import Protocol, TypedDict

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from rest_framework import exceptions

from controlplane.core.audit.origin import origin_now
from controlplane.core.models import AuditEntry
from controlplane.kernel.keys.format import ID_CHARS, SECRET_CHARS

Facts = dict[str, str | int | bool | None | list[str]]
_CREDENTIAL = re.compile(rf"(\w+_sluice_\w{{{ID_CHARS}}})_\w{{{SECRET_CHARS},}}")
WINDOW = timedelta(minutes=1)
RETRY_AFTER_S = 60
MESSAGE = "Too many changes in a minute. Try again in a minute."


class Actor(Protocol):
    """Who acts: a user, or the operator of the host at the command line."""

    @property
    def actor_id(self) -> uuid.UUID | None: ...
    @property
    def actor_label(self) -> str: ...


class Audited(Protocol):
    """What a row tells of."""

    @property
    def id(self) -> uuid.UUID: ...


class Whose(TypedDict):
    """Who asks, and in which organization, as services and selectors take both."""

    actor: Actor
    organization_id: uuid.UUID


class Operator:
    """Whoever runs commands on the host; may do anything, and is audited as `operator`."""

    actor_id: uuid.UUID | None = None
    actor_label = "operator"
    is_authenticated = True
    is_anonymous = False


OPERATOR = Operator()


class OutsideTransaction(RuntimeError):
    """An audit row was about to be written apart from its change."""


def audit_record(
    actor: Actor,
    action: str,
    *,
    subject: Audited,
    organization_id: uuid.UUID | None | EllipsisType = ...,
    detail: Facts | None = None,
    changed: tuple[Facts, Facts] | None = None,
) -> AuditEntry:
    """Add a row about `subject`, for its organization if it has one; needs an open transaction.

    What is the installation's has none, or the zero id. `changed` are its values before and
    after, of which those are kept that differ. Raises TooManyChanges where the actor changes too
    much at once.
    """
    if not transaction.get_connection().in_atomic_block:
        raise OutsideTransaction(action)
    if isinstance(organization_id, EllipsisType):
        own = getattr(subject, "organization_id", None) or getattr(subject, "organization", None)
        organization_id = own if own and own.int else None
    # The operator applies whole documents, also in a person's name: one request, many rows.
    if actor.actor_id is not None and organization_id and not isinstance(actor, Operator):
        require_unhurried(actor.actor_id, organization_id)
    before, after = _differences(*changed) if changed else (None, None)
    origin = origin_now()
    return AuditEntry.objects.create(
        actor_id=actor.actor_id,
        actor_label=actor.actor_label,
        organization_id=organization_id,
        action=action,
        subject_type=type(subject).__name__,
        subject_id=subject.id,
        detail=_clean(detail or {}),
        before=before,
        after=after,
        channel=origin.channel,
        address=origin.address,
        agent=_cut(origin.agent),
        credential=origin.credential,
    )


def _differences(before: Facts, after: Facts) -> tuple[Facts, Facts]:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return (
        _clean({name: before[name] for name in names if name in before}),
        _clean({name: after[name] for name in names if name in after}),
    )


def _clean(facts: Facts) -> Facts:
    return {name: _cut_fact(value) for name, value in facts.items()}


def _cut_fact(value: str | int | bool | list[str] | None) -> str | int | bool | list[str] | None:
    if isinstance(value, str):
        return _cut(value)
    return [_cut(each) for each in value] if isinstance(value, list) else value


def _cut(text: str) -> str:
    """The text, with no more of a credential than its id."""
    return _CREDENTIAL.sub(r"\1_…", text)


class TooManyChanges(exceptions.Throttled):
    """One more change would be beyond the bound: a 429, and nothing has changed."""

    def __init__(self) -> None:
        super().__init__(wait=RETRY_AFTER_S, detail=MESSAGE)


def require_unhurried(actor_id: uuid.UUID, organization_id: uuid.UUID) -> None:
    """Return if they may make one more change; raises TooManyChanges.

    Each change has its audit row, and those are counted. Changes at the same moment may pass
    together: this is a brake, not a counter.
    """
    lately = AuditEntry.objects.filter(
        organization_id=organization_id, actor_id=actor_id, created_at__gt=Now() - WINDOW
    )
    if lately.count() >= settings.CHANGES_PER_MIN_MAX:
        raise TooManyChanges
