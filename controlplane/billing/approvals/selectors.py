"""Grants, for those who may see the money."""

import uuid

from controlplane.billing.access import money_scope
from controlplane.billing.approvals.models import GrantState, WalletGrant
from controlplane.core.answers import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action, organization_scope
from controlplane.tenants.access import require
from controlplane.tenants.selectors import organization_names

PENDING_MAX = 200


def grant_list(
    *, actor: Actor, organization_id: uuid.UUID, ask: PageAsk = FIRST_PAGE
) -> Page[WalletGrant]:
    with money_scope(actor, organization_id):
        return page_read(WalletGrant.objects.filter(organization=organization_id), ask)


def grants_pending(*, actor: Actor) -> list[WalletGrant]:
    """Those of every organization that wait for a second person, oldest first."""
    require(actor, Action.CREDIT_GRANT)
    with organization_scope(organization_names(actor=actor)):
        rows = WalletGrant.objects.filter(state=GrantState.PENDING)
        return list(rows.order_by("id")[:PENDING_MAX])


def grant_get(*, actor: Actor, organization_id: uuid.UUID, grant_id: uuid.UUID) -> WalletGrant:
    """One grant; raises DoesNotExist."""
    with money_scope(actor, organization_id):
        return WalletGrant.objects.get(id=grant_id, organization=organization_id)
