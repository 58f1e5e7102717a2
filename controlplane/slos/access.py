"""Who may see and change objectives: members their organization's, staff the installation's."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.slos.models import EVERYONE
from controlplane.tenants.access import require


@contextmanager
def seeing(actor: Actor, organization: uuid.UUID) -> Iterator[None]:
    """The organization's scope, for who may look."""
    _require(actor, Action.SLO_VIEW, organization)
    with organization_scope([organization]):
        yield


@contextmanager
def changing(actor: Actor, organization: uuid.UUID) -> Iterator[None]:
    """The organization's scope, for who may change its objectives."""
    _require(actor, Action.SLO_MANAGE, organization)
    with organization_scope([organization]):
        yield


def _require(actor: Actor, action: Action, organization: uuid.UUID) -> None:
    if organization == EVERYONE:
        require(actor, Action.SLO_INSTALLATION)
    else:
        require(actor, action, organization)
