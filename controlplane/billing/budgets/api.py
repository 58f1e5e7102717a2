"""Budgets under /api/billing/: what an organization, project or key may spend, by the calendar."""

from datetime import datetime
from typing import TypedDict
from uuid import UUID

import msgspec
from django.core.exceptions import ObjectDoesNotExist
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.budgets.selectors import BudgetRow, budget_list
from controlplane.billing.budgets.services import (
    BudgetDraft,
    Subject,
    budget_end,
    budget_id,
    budget_plan,
)
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import Whole, operation
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.kernel.ids import AnyId, id_of_type
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey, Organization, Project

EXAMPLE = {
    "allowance_nano": 50_000_000_000,
    "period": "month",
    "zone": "Europe/Berlin",
    "rollover": False,
    "alerts": [50, 80, 100],
}


class BudgetBody(msgspec.Struct, forbid_unknown_fields=True):
    """`period` is none, day, week or month; it begins by the clock of `zone`, an IANA name.

    With `rollover` an unused rest is added to the next period, at most one allowance. `alerts` are
    percentages at which members are told.
    """

    allowance_nano: int
    period: str = "none"
    zone: str = "UTC"
    rollover: bool = False
    alerts: list[int] = []


class BudgetJson(TypedDict):
    """A limit in nano-USD; `spent` and `carried` are of the period that began at `began_at`."""

    id: AnyId
    object: str
    scope: str
    allowance_nano: int
    carried_nano: int
    spent_nano: int
    held_nano: int
    room_nano: int
    period: str
    zone: str
    rollover: bool
    began_at: datetime | None
    turns_at: datetime | None
    alerts: list[int]
    raised: list[int]


class Budgets(MoneyView):
    """`GET budgets`: every limit of the organization."""

    @operation(list_of=Whole(BudgetJson))
    def get(self, request: Request, organization_id: UUID) -> Response:
        """List budgets, with the amount spent in the current period."""
        found = budget_list(actor=self.actor(), organization=organization_id)
        return self.listed(found, budget_json)


class OneBudget(MoneyView):
    """`PUT | DELETE budgets/<id>`: by the id of the organization, project or key that it limits."""

    step_up_methods = frozenset({"PUT", "DELETE"})

    @operation(body=BudgetBody, answer=BudgetJson, example=EXAMPLE)
    def put(self, request: Request, organization_id: UUID, subject_id: UUID) -> Response:
        """Set a budget; spend of the current period counts."""
        actor = self.actor()
        require(actor, Action.BUDGET_SET, organization_id)
        wanted = self.body(BudgetBody)
        subject = subject_of(organization_id, subject_id)
        draft = BudgetDraft(**msgspec.structs.asdict(wanted) | {"alerts": tuple(wanted.alerts)})
        budget_plan(actor=actor, subject=subject, draft=draft)
        return Response(budget_json(_one(actor, organization_id, budget_id(subject))))

    @operation()
    def delete(self, request: Request, organization_id: UUID, subject_id: UUID) -> Response:
        """Remove a budget; spend stays on record."""
        require(self.actor(), Action.BUDGET_SET, organization_id)
        budget_end(actor=self.actor(), subject=subject_of(organization_id, subject_id))
        return Response(status=204)


def subject_of(organization: UUID, subject: UUID) -> Subject:
    """The organization, project or key of that id; raises ObjectDoesNotExist for strangers'."""
    with organization_scope([organization]):
        if subject == organization:
            return Organization.objects.get(id=subject)
        project = Project.objects.filter(id=subject, organization_id=organization).first()
        return project or ApiKey.objects.get(id=subject, organization_id=organization)


def budget_json(row: BudgetRow) -> BudgetJson:
    return answer_of(
        BudgetJson,
        row,
        id=id_of_type(row.scope, row.id),
        object="budget",
        allowance_nano=row.allowance,
        carried_nano=row.carried,
        spent_nano=row.spent,
        held_nano=row.held,
        room_nano=row.room,
    )


def _one(actor: Actor, organization: UUID, budget: UUID) -> BudgetRow:
    for row in budget_list(actor=actor, organization=organization):
        if row.id == budget:
            return row
    raise ObjectDoesNotExist("budget")
