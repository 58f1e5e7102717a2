"""Decisions under /api/billing/: what waits for a second person, and that person's word."""

from uuid import UUID

from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.approvals.selectors import grant_get, grants_pending
from controlplane.billing.approvals.shapes import GrantJson, grant_json
from controlplane.billing.decisions.services import DECISIONS
from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.tenants.access import require


class GrantDecision(MoneyView):
    @operation(answer=GrantJson, step_up=True)
    def post(self, grant_id: UUID, decision: str) -> GrantJson:
        """Approve or refuse a pending grant; 403 for the person who requested it."""
        require(self.actor(), Action.CREDIT_GRANT)
        grant = grant_get(**self.whose(), grant_id=grant_id)
        return grant_json(DECISIONS[decision](actor=self.actor(), grant=grant))


class PendingGrants(ApiView, at="api/billing/grants"):
    @operation(list_of=Whole(GrantJson))
    def get(self) -> Response:
        """List pending grants, oldest first."""
        return self.listed(grants_pending(actor=self.actor()), grant_json)
