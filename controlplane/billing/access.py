"""Who may see an organization's money."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action, organization_scope
from controlplane.tenants.access import allows, require


def may_see_money(actor: Actor, organization_id: uuid.UUID) -> None:
    """Return for its members who see the ledger, and for those who grant credit anywhere."""
    if not allows(actor, Action.CREDIT_GRANT):
        require(actor, Action.LEDGER_VIEW, organization_id)


@contextmanager
def money_scope(actor: Actor, organization_id: uuid.UUID) -> Iterator[None]:
    """The organization's scope, for them."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        yield
