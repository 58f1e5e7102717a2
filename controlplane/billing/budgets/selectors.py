"""Budgets as pages, jobs and programs read them. Changes nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from controlplane.billing.budgets.models import (
    UNLIMITED_NANO,
    Budget,
    BudgetAlert,
    BudgetPart,
    BudgetPeriod,
)
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.telemetry.reading import bounded_read
from controlplane.tenants.access import permitted

HUNDRED = 100


@dataclass(frozen=True)
class BudgetRow:
    """A budget as people read it; nothing in it is only for the hot path.

    That of every end user of a project has the scope `users`, those of its models `model`.
    """

    id: UUID
    scope: str
    allowance: int
    carried: int
    spent: int
    held: int
    room: int
    period: str
    zone: str
    rollover: bool
    began_at: datetime | None
    turns_at: datetime | None
    alerts: list[int]
    raised: list[int]
    project: UUID | None = None
    model: str | None = None

    @property
    def available(self) -> int:
        return self.allowance + self.carried

    @property
    def percent(self) -> int:
        """How much of that is spent, rounded down."""
        return self.spent * HUNDRED // self.available if self.available else HUNDRED


def budgets_of(subjects: Iterable[UUID]) -> dict[UUID, Budget]:
    """With what was agreed on about each."""
    rows = Budget.objects.filter(id__in=list(subjects)).select_related("terms")
    return {budget.id: budget for budget in rows}


def budget_parts_of(projects: Iterable[UUID]) -> list[BudgetPart]:
    """The parts of projects that have budgets, or had, by the name of the model."""
    found = BudgetPart.objects.filter(template=None, project__in=list(projects))
    return list(found.order_by("model"))


def budget_map(*, organization: UUID, subjects: Iterable[UUID]) -> dict[UUID, Budget]:
    """Budgets of an organization by the id of what they limit."""
    with bounded_read([organization]):
        return budgets_of(subjects)


def budget_list(*, actor: Actor, organization: UUID) -> list[BudgetRow]:
    """Every limit in force, the organization's first; each with what is spent and reached."""
    with permitted(actor, Action.LEDGER_VIEW, organization):
        rows = Budget.objects.filter(organization=organization, lim__lt=UNLIMITED_NANO)
        found = list(rows.exclude(scope__in=["wallet", "user"]).select_related("terms"))
        parts = {one.budget: one for one in BudgetPart.objects.filter(template=None)}
        raised: dict[tuple[UUID, datetime], list[int]] = {}
        for alert in BudgetAlert.objects.filter(budget__in=[one.id for one in found]):
            raised.setdefault((alert.budget, alert.began_at), []).append(alert.percent)
    order = ("organization", "project", "users", "model", "key")
    return sorted(
        (_budget_row(one, raised, parts.get(one.id)) for one in found),
        key=lambda row: (order.index(row.scope), row.id),
    )


def _budget_row(
    budget: Budget, raised: dict[tuple[UUID, datetime], list[int]], part: BudgetPart | None
) -> BudgetRow:
    terms = getattr(budget, "terms", None)
    began = terms.began_at if terms else None
    return BudgetRow(
        id=budget.id,
        scope=budget.scope,
        allowance=terms.allowance if terms else budget.lim,
        carried=terms.carried if terms else 0,
        spent=budget.posted - (terms.base + terms.given if terms else 0),
        held=budget.held,
        room=budget.room_nano,
        period=terms.period if terms else BudgetPeriod.NONE.value,
        zone=terms.zone if terms else "UTC",
        rollover=bool(terms and terms.rollover),
        began_at=began,
        turns_at=terms.turns_at if terms else None,
        alerts=sorted(terms.alerts) if terms else [],
        raised=sorted(raised.get((budget.id, began), [])) if began else [],
        project=part.project if part else None,
        model=part.model if part else None,
    )
