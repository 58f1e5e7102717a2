"""Months under /api/billing/organizations/<id>/periods: which are closed, and closing one."""

import uuid
from datetime import datetime
from typing import TypedDict

from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.approvals.shapes import WAITS
from controlplane.billing.months.closes import period_close_ask
from controlplane.billing.months.models import PeriodCloseJob
from controlplane.billing.months.periods import Month, Period, month_get, month_list
from controlplane.billing.months.tasks import period_close_enqueue
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import Whole, operation
from controlplane.core.permissions import Action
from controlplane.tenants.access import require

DONE = 200


class CloseJobJson(TypedDict):
    """A close by a worker: waiting, running, done or failed, and up to where it has read."""

    state: str
    reached_at: datetime | None
    asked_by: str
    error: str


class MonthJson(TypedDict):
    """A month and its state: open, closing (it is over) or closed, with its control totals."""

    period: str
    state: str
    closed_by: str | None
    closed_at: datetime | None
    transfers: int | None
    entries: int | None
    totals: dict[str, list[int]] | None
    digest: str | None
    job: CloseJobJson | None


class Months(MoneyView, at="periods"):
    @operation(list_of=Whole(MonthJson))
    def get(self, organization_id: uuid.UUID) -> Response:
        """List the last thirteen months."""
        found = month_list(actor=self.actor(), organization=organization_id)
        return self.listed(found, month_json, "period")


class MonthClose(MoneyView, at="periods/<str:period>/close"):
    @operation(answer={DONE: MonthJson, WAITS: MonthJson}, step_up=True)
    def post(self, organization_id: uuid.UUID, period: str) -> Response:
        """Close a month; 202 if a worker closes it, 400 with the reason if it cannot be closed."""
        actor = self.actor()
        require(actor, Action.PERIOD_CLOSE, organization_id)
        wanted = Period(period)
        made = period_close_ask(
            actor=actor, organization=organization_id, period=wanted, enqueue=period_close_enqueue
        )
        status = WAITS if isinstance(made, PeriodCloseJob) else DONE
        month = month_get(actor=actor, organization=organization_id, period=wanted)
        return Response(month_json(month), status=status)


def month_json(month: Month) -> MonthJson:
    close, job = month.close, month.job
    return {
        "period": month.period.name,
        "state": month.state.value,
        "closed_by": close.closed_by if close else None,
        "closed_at": close.closed_at if close else None,
        "transfers": close.transfers if close else None,
        "entries": close.entries if close else None,
        "totals": close.totals if close else None,
        "digest": month.digest or None,
        "job": answer_of(CloseJobJson, job, asked_by=job.asked_label) if job else None,
    }
