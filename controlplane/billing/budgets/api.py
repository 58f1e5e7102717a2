"""Budgets under /api/billing/: what an organization, project or key may spend, by the calendar."""

from datetime import datetime
from typing import TypedDict
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist, ValidationError
from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.budgets import services
from controlplane.billing.budgets.models import BudgetPart
from controlplane.billing.budgets.selectors import BudgetRow, budget_list
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import Whole, operation
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action, organization_scope
from controlplane.kernel.ids import AnyId, ProjectId, id_of_type, public_id
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey, Organization, Project

EXAMPLE = {
    "allowance_nano": 50_000_000_000,
    "period": "month",
    "zone": "Europe/Berlin",
    "rollover": False,
    "alerts": [50, 80, 100],
}


class BudgetBody(services.BudgetDraft, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A budget of all, or of a project's requests to a `model`, or of each of its end users."""

    model: str = ""
    per_user: bool = False


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
    project: ProjectId | None
    model: str | None


class Budgets(MoneyView, at="budgets"):
    @operation(list_of=Whole(BudgetJson))
    def get(self, organization_id: UUID) -> Response:
        """List budgets, with the amount spent in the current period."""
        found = budget_list(actor=self.actor(), organization=organization_id)
        return self.listed(found, budget_json)


class OneBudget(MoneyView, at="budgets/<id:subject_id>"):
    @operation(body=BudgetBody, answer=BudgetJson, example=EXAMPLE, step_up=True)
    def put(self, organization_id: UUID, subject_id: UUID) -> BudgetJson:
        """Set a budget; spend of the current period counts."""
        actor = self.actor()
        require(actor, Action.BUDGET_SET, organization_id)
        draft = self.body(BudgetBody)
        subject = subject_of(organization_id, subject_id, draft.model, per_user=draft.per_user)
        services.budget_plan(actor=actor, subject=subject, draft=draft)
        return budget_json(_one(actor, organization_id, services.budget_id(subject)))

    @operation(step_up=True)
    def delete(self, organization_id: UUID, subject_id: UUID) -> Response:
        """Remove a budget; spend stays on record."""
        require(self.actor(), Action.BUDGET_SET, organization_id)
        services.budget_end(actor=self.actor(), subject=subject_of(organization_id, subject_id))
        return Response(status=204)


def subject_of(
    organization: UUID, subject: UUID, model: str = "", *, per_user: bool = False
) -> services.Subject:
    """The organization, project or key of that id, or the part of a project, also by the id of its
    budget; raises ObjectDoesNotExist for strangers'.
    """
    with organization_scope([organization]):
        part = BudgetPart.objects.filter(budget=subject, template=None).first()
        if part is not None:
            subject, model, per_user = part.project, part.model or "", not part.model
        project = Project.objects.filter(id=subject, organization_id=organization).first()
        if (model or per_user) and project is not None and not (model and per_user):
            return services.ProjectPart(project, model)
        if model or per_user:
            told = "Only a project's budget may be of a model or, instead, of each end user."
            raise ValidationError({"model" if model else "per_user": told})
        if subject == organization:
            return Organization.objects.get(id=subject)
        return project or ApiKey.objects.get(id=subject, organization_id=organization)


def budget_json(row: BudgetRow) -> BudgetJson:
    return answer_of(
        BudgetJson,
        row,
        id=id_of_type(row.scope, row.id),
        object="budget",
        project=row.project and public_id("proj", row.project),
    )


def _one(actor: Actor, organization: UUID, budget: UUID) -> BudgetRow:
    for row in budget_list(actor=actor, organization=organization):
        if row.id == budget:
            return row
    raise ObjectDoesNotExist("budget")
