"""Audit rows, written in the transaction of the change they tell of, or the change does not happen.

Secrets never come near: callers pass only the facts listed at the call.
"""

import uuid
from typing import Protocol

from django.db import transaction

from controlplane.core.models import AuditEntry, BaseModel

Facts = dict[str, str | int | bool | None | list[str]]


class Actor(Protocol):
    """Who acts: a user, or the operator of the host at the command line."""

    @property
    def actor_id(self) -> uuid.UUID | None: ...
    @property
    def actor_label(self) -> str: ...


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
    subject: BaseModel,
    organization_id: uuid.UUID | None,
    detail: Facts | None = None,
) -> AuditEntry:
    """Add a row about `subject`; needs an open transaction."""
    if not transaction.get_connection().in_atomic_block:
        raise OutsideTransaction(action)
    return AuditEntry.objects.create(
        actor_id=actor.actor_id,
        actor_label=actor.actor_label,
        organization_id=organization_id,
        action=action,
        subject_type=type(subject).__name__,
        subject_id=subject.id,
        detail=detail or {},
    )
