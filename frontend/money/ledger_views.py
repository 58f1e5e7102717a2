"""Ledger: the accounts, what was booked besides requests, months to close, differences."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.billing.ledger.accounts import account_text
from controlplane.billing.ledger.hours import sealed_through
from controlplane.billing.ledger.selectors import (
    account_list,
    charges_on,
    entry_list,
    reconciliation_list,
)
from controlplane.billing.months.closes import period_close_ask
from controlplane.billing.months.models import PeriodCloseJob
from controlplane.billing.months.periods import Month, Period, PeriodState, month_list
from controlplane.billing.months.tasks import period_close_enqueue
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time
from frontend.shared.forms import changes, page_asked


@page("ledger", Action.LEDGER_VIEW, "GET")
def ledger(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The books; of one account, where the URL names it, with its lines."""
    actor, organization = viewer.user, viewer.organization.id
    known = in_time(lambda: account_list(actor=actor, organization=organization))
    named = request.GET.get("account")
    account = next((one for one in known or () if account_text(one.name) == named), None)
    wanted = account.name if account else ""
    of: dict[str, Any] = {"actor": actor, "organization": organization, "account": wanted}
    entries = entry_list(**of, ask=page_asked(request, "entry"))
    months = month_list(actor=actor, organization=organization)
    context = {
        "accounts": known,
        "account": account,
        "lines": in_time(lambda: charges_on(**of)) if account else None,
        "sealed": sealed_through(),
        "entries": entries.rows,
        "next": public_id("entry", entries.rows[-1].id) if entries.has_more else None,
        "months": months,
        **_closing(months),
        "closes": viewer.may(Action.PERIOD_CLOSE),
        "reconciliations": reconciliation_list(actor=actor, organization=organization),
    }
    return show(request, viewer, "ledger", "money/ledger.html", context)


@page("ledger/months", Action.LEDGER_VIEW, "GET")
def ledger_months(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The months alone, while one of them is being closed."""
    months = month_list(actor=viewer.user, organization=viewer.organization.id)
    context = {"viewer": viewer, "months": months, **_closing(months)}
    return render(request, "money/parts/ledger_month_rows.html", context)


@changes("ledger/close", Action.PERIOD_CLOSE, "ledger", confirmed=True)
def ledger_close(request: HttpRequest, viewer: Viewer) -> str:
    closed = period_close_ask(
        actor=viewer.user,
        organization=viewer.organization.id,
        period=Period(request.POST.get("period", "")),
        enqueue=period_close_enqueue,
    )
    if isinstance(closed, PeriodCloseJob):
        return f"{closed.period} is large; a worker is closing it. See the list of months."
    return f"{closed.period} is closed and accepts no more entries."


def _closing(months: list[Month]) -> dict[str, object]:
    """Which is closed next, the oldest that is over; and whether one is being closed just now."""
    over = [one for one in months if one.state == PeriodState.CLOSING]
    return {
        "closable": [
            (one.period.name,) * 2 for one in over[-1:] if one.job is None or not one.job.at_work
        ],
        "closing": any(one.job is not None and one.job.at_work for one in over),
    }
