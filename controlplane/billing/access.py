"""Who may see an organization's money."""

import uuid

from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.tenants.access import allows, require


def may_see_money(actor: Actor, organization_id: uuid.UUID) -> None:
    """Return for its members who see the ledger, and for those who grant credit anywhere."""
    if not allows(actor, Action.CREDIT_GRANT):
        require(actor, Action.LEDGER_VIEW, organization_id)
