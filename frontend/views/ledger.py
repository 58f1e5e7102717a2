"""Ledger: the accounts, what was booked besides requests, months to close, differences."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from controlplane.billing.close_jobs import period_close_ask
from controlplane.billing.hours import sealed_through
from controlplane.billing.ledger_selectors import (
    Month,
    account_list,
    entry_list,
    month_list,
    reconciliation_list,
)
from controlplane.billing.models_closes import PeriodCloseJob
from controlplane.billing.periods import Period, PeriodState
from controlplane.billing.tasks import period_close_enqueue
from controlplane.core.paging import page_ask
from controlplane.core.permissions import Action
from controlplane.telemetry.reading import TooMuchToRead
from frontend.access import Viewer, page
from frontend.money import say_wrong
from frontend.stepup import stepped_up


@page(Action.LEDGER_VIEW)
@require_GET
def ledger(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The books of the organization shown."""
    actor, organization = viewer.user, viewer.organization.id
    try:
        ask = page_ask(request.GET.dict())
    except ValidationError as error:
        raise Http404 from error
    entries = entry_list(actor=actor, organization=organization, ask=ask)
    months = month_list(actor=actor, organization=organization)
    try:
        accounts = account_list(actor=actor, organization=organization)
    except TooMuchToRead:
        accounts = None
    context = {
        "viewer": viewer,
        "here": "ledger",
        "accounts": accounts,
        "sealed": sealed_through(),
        "entries": entries.rows,
        "next": entries.rows[-1].id if entries.has_more else None,
        "months": months,
        **_closing(months),
        "closes": viewer.may(Action.PERIOD_CLOSE),
        "reconciliations": reconciliation_list(actor=actor, organization=organization),
    }
    return render(request, "pages/ledger.html", context)


@page(Action.LEDGER_VIEW)
@require_GET
def ledger_months(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The months alone, while one of them is being closed."""
    months = month_list(actor=viewer.user, organization=viewer.organization.id)
    context = {"viewer": viewer, "months": months, **_closing(months)}
    return render(request, "parts/ledger_month_rows.html", context)


@page(Action.PERIOD_CLOSE)
@stepped_up
@require_POST
def ledger_close(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Close a month for good."""
    try:
        closed = period_close_ask(
            actor=viewer.user,
            organization=viewer.organization.id,
            period=Period(request.POST.get("period", "")),
            enqueue=period_close_enqueue,
        )
    except ValidationError as error:
        say_wrong(request, error)
        return redirect("ledger")
    if isinstance(closed, PeriodCloseJob):
        messages.info(request, f"{closed.period} is large: a worker closes it, as the months tell.")
    else:
        messages.success(request, f"{closed.period} is closed; nothing is booked into it any more.")
    return redirect("ledger")


def _closing(months: list[Month]) -> dict[str, object]:
    """Which is closed next, the oldest that is over; and whether one is being closed just now."""
    over = [one for one in months if one.state == PeriodState.CLOSING]
    return {
        "closable": [one for one in over[-1:] if one.job is None or not one.job.at_work],
        "closing": any(one.job is not None and one.job.at_work for one in over),
    }
