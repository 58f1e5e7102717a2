"""Spend: today, the month and where it leads, by whom and on what; budgets; the ledger's health."""

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.billing.budgets.selectors import budget_list
from controlplane.billing.cells import NANO_PLACES, Column, Value, columns, decimal_text
from controlplane.billing.ledger import spend
from controlplane.billing.ledger.health import TIMELY_S, LedgerHealth, ledger_health
from controlplane.billing.ledger.hours import Dimension
from controlplane.billing.months.periods import Period, period_of
from controlplane.core.permissions import Action
from controlplane.kernel.ids import id_of_type
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.tenants.models import ApiKey
from controlplane.tenants.selectors import apikey_list, key_names, project_list
from frontend.money import spend_figures
from frontend.money.budget_views import limited_names
from frontend.shared import formats
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time
from frontend.shared.months import month_from
from frontend.shared.panels import columns_csv

DAY = timedelta(days=1)
PANELS = {"project": "Projects", "key": "Keys", "model": "Models"}
# Of these the dearest alone are read, and shown where requests name any.
OF_REQUESTS: dict[str, Dimension] = {"end_user": "end_user", "labels": "labels"}
ID_CHARS_SHOWN = 13
UNNAMED = "(none named)"
ROW_COLUMNS = columns("""
    name            free   Project, key or model.
    requests        number Requests charged.
    uncached_tokens number Input computed.
    cached_tokens   number Input read from the cache.
    output_tokens   number Output.
    usd             number Charged.
    nano_usd        number The same in nano-USD.
    before_usd      number Of the month before, up to the same time.
""")
DAY_COLUMNS = columns("""
    day      time   Day of UTC.
    usd      number Charged.
    nano_usd number The same in nano-USD.
""")
TOKEN_COLUMNS = columns("""
    kind     text   Token type.
    tokens   number How many.
    usd      number Before each line's rounding.
    nano_usd number The same in nano-USD.
""")


@dataclass(frozen=True)
class Asked:
    """A month, what was spent in it so far, and in the month before up to the same time."""

    period: Period
    month: spend.Spend
    before: spend.Spend
    as_of: datetime

    @property
    def present(self) -> bool:
        return self.as_of < self.period.end

    @property
    def today_nano(self) -> int:
        return self.month.days.get(self.as_of.date(), 0)

    @property
    def change(self) -> str:
        return formats.change_words(self.month.nano, self.before.nano)


@page("spend", Action.LEDGER_VIEW, "GET", name="spend")
def spend_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    now = timezone.now().astimezone(UTC)
    period, complaint = month_from(request.GET, now)
    context: dict[str, object] = {"period": period}
    try:
        asked = _read(viewer, period, now)
        context |= _month_context(viewer, asked)
        if asked.present:
            context |= {"forecast": _forecast(viewer, asked)}
    except TooMuchToRead:
        complaint = "The query for this month timed out. Reload the page in a moment."
    context |= {
        "complaint": complaint,
        "before": period.before,
        "after": period.after if period < period_of(now) else None,
        "budgets": _budgets(viewer, now),
        "health": _health(viewer, now),
        "timely_s": TIMELY_S,
        "rate_days": spend.RATE_DAYS,
        "now": now,
    }
    return show(request, viewer, "spend", "money/spend.html", context)


@page("spend/<slug:panel>.csv", Action.LEDGER_VIEW, "GET")
def spend_csv(request: HttpRequest, viewer: Viewer, panel: str) -> HttpResponse:
    if panel not in (*PANELS, *OF_REQUESTS, "days", "tokens"):
        raise Http404
    period, complaint = month_from(request.GET, timezone.now().astimezone(UTC))
    try:
        asked = _read(viewer, period, timezone.now().astimezone(UTC))
    except TooMuchToRead:
        complaint = "The query for this month timed out."
    if complaint:
        return HttpResponse(complaint, status=400, content_type="text/plain; charset=utf-8")
    head, rows = _cells(viewer, asked, panel)
    return columns_csv(head, rows, f"sluice-spend-{panel}-{period}")


def _read(viewer: Viewer, period: Period, now: datetime) -> Asked:
    end = min(period.end, spend.hour_after(now))
    before = period.before
    same = min(before.end, before.start + (end - period.start))
    actor, organization = viewer.user, viewer.organization.id
    return Asked(
        period,
        spend.spend_read(actor=actor, organization=organization, start=period.start, end=end),
        spend.spend_read(actor=actor, organization=organization, start=before.start, end=same),
        now,
    )


def _month_context(viewer: Viewer, asked: Asked) -> dict[str, object]:
    panels = [
        (panel, words, spend_figures.shown_rows(_rows(viewer, asked, panel)))
        for panel, words in PANELS.items()
    ]
    for panel, words in (("end_user", "End users"), ("labels", "Labels")):
        rows = _rows(viewer, asked, panel)
        if any(row.name != UNNAMED for row in rows):
            panels.append((panel, words, spend_figures.shown_rows(rows)))
    return {
        "asked": asked,
        "panels": panels,
        "tokens": spend_figures.token_rows(asked.month.lines),
        "bars": spend_figures.day_bars(asked.month.days),
        "requests": sum(line.requests for line in asked.month.lines),
    }


def _forecast(viewer: Viewer, asked: Asked) -> int | None:
    today = asked.as_of.date()
    midnight = asked.as_of.replace(hour=0, minute=0, second=0, microsecond=0)
    week = spend.spend_read(
        actor=viewer.user,
        organization=viewer.organization.id,
        start=midnight - spend.RATE_DAYS * DAY,
        end=midnight,
    )
    return spend.forecast_nano(
        {**week.days, **asked.month.days},
        start=asked.period.start.date(),
        today=today,
        until=asked.period.end.date(),
    )


def _rows(viewer: Viewer, asked: Asked, panel: str) -> list[spend_figures.SpendRow]:
    """Rows of a panel; the link of each leads to its requests of the month."""
    if panel in OF_REQUESTS:
        actor, own, by = viewer.user, viewer.organization.id, OF_REQUESTS[panel]
        month, before = (spend.spend_top(actor, own, of, by) for of in (asked.month, asked.before))
        asked = replace(asked, month=month, before=before)
    names = _names(viewer, panel)
    range_query = {
        "from": asked.month.start.strftime("%Y-%m-%dT%H:%M:%S"),
        "to": asked.month.end.strftime("%Y-%m-%dT%H:%M:%S"),
    }

    def name(of: object) -> str:
        if panel in OF_REQUESTS:
            return str(of) or UNNAMED
        return str(of) if panel == "model" else names.get(of, _unknown(of, panel))

    def query(of: object) -> str:
        text = id_of_type(panel, of) if isinstance(of, uuid.UUID) else str(of)
        if panel == "labels" or (panel == "end_user" and not text):
            return ""
        return urlencode({**range_query, panel.removeprefix("end_"): text})

    return spend_figures.spend_rows(asked.month, asked.before, attrgetter(panel), name, query)


def _names(viewer: Viewer, panel: str) -> dict[object, str]:
    if panel == "project":
        return {one.id: one.name for one in project_list(user=viewer.user)}
    if panel != "key":
        return {}
    names = key_names(user=viewer.user, organization_id=viewer.organization.id)
    return dict(names.items())


def _keys(viewer: Viewer) -> list[ApiKey]:
    organization = viewer.organization.id
    return apikey_list(user=viewer.user, organization_id=organization)


def _unknown(of: object, panel: str) -> str:
    """What has no name any more; a Playground token has its user's id where a key's would be."""
    text = id_of_type(panel, of)[:ID_CHARS_SHOWN] if isinstance(of, uuid.UUID) else str(of)
    return f"Playground / deleted key, {text}" if panel == "key" else text


def _budgets(viewer: Viewer, now: datetime) -> list[spend_figures.BudgetUse]:
    actor, organization = viewer.user, viewer.organization
    keys = _keys(viewer)
    names = limited_names(viewer, keys)
    rates = spend.spend_rates(actor=actor, organization=organization.id, now=now)
    # A rotated key spends from the first one's budget.
    for key in keys:
        if key.limits_id != key.id and key.id in rates:
            rates[key.limits_id] = rates.get(key.limits_id, 0) + rates[key.id]
    rows = budget_list(actor=actor, organization=organization.id)
    return spend_figures.budget_uses(rows, names=names, rates=rates, now=now)


def _health(viewer: Viewer, now: datetime) -> LedgerHealth | None:
    organization = viewer.organization.id
    return in_time(lambda: ledger_health(actor=viewer.user, organization=organization, now=now))


def _cells(
    viewer: Viewer, asked: Asked, panel: str
) -> tuple[tuple[Column, ...], list[list[Value]]]:
    if panel == "days":
        days = sorted(asked.month.days.items())
        return DAY_COLUMNS, [[str(day), _usd(nano), nano] for day, nano in days]
    if panel == "tokens":
        kinds = spend_figures.token_rows(asked.month.lines)
        return TOKEN_COLUMNS, [[one.name, one.tokens, _usd(one.nano), one.nano] for one in kinds]
    return ROW_COLUMNS, [_row_cells(row) for row in _rows(viewer, asked, panel)]


def _row_cells(row: spend_figures.SpendRow) -> list[Value]:
    tokens = (row.uncached, row.cached, row.output)
    return [row.name, row.requests, *tokens, _usd(row.nano), row.nano, _usd(row.before_nano)]


def _usd(nano: int) -> str:
    return decimal_text(nano, NANO_PLACES)
