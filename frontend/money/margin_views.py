"""Margin: a month's revenue and cost by pool, model and tenant, and the same as CSV; staff."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from controlplane.billing.cells import NANO_PLACES, Cell, Column, decimal_text
from controlplane.billing.ledger.hours import sealed_through
from controlplane.billing.margin.api import month_bounds
from controlplane.billing.margin.selectors import Margin, MarginLine, margin_read
from controlplane.billing.months.periods import Period, period_of
from controlplane.catalog.selectors import model_list, price_in_force
from controlplane.core.permissions import Action
from controlplane.kernel.price import Price
from controlplane.telemetry.reading import TooMuchToRead
from frontend.money.months import month_from
from frontend.shared import formats
from frontend.shared.access import Viewer, page, show
from frontend.shared.panels import columns_csv

MS_PER_HOUR = 3_600_000
NANO_PER_MILLION_PICO = 1_000
COLUMNS = (
    Column("kind", Cell.TEXT, "pool, model or tenant."),
    Column("name", Cell.FREE, "Its name."),
    Column("id", Cell.TEXT, "A tenant's id."),
    Column(
        "revenue_usd", Cell.NUMBER, "What requests were charged; a pool has those that it served."
    ),
    Column("served_usd", Cell.NUMBER, "GPU time with requests under way."),
    Column("idle_usd", Cell.NUMBER, "GPU time without; of pools alone."),
    Column("purchase_usd", Cell.NUMBER, "What tokens of hosted models cost to buy."),
    Column("margin_usd", Cell.NUMBER, "Revenue less all three."),
    Column("uncached_tokens", Cell.NUMBER, "Input computed."),
    Column("cached_tokens", Cell.NUMBER, "Input read from the cache."),
    Column("output_tokens", Cell.NUMBER, "Output."),
    Column("card_hours", Cell.NUMBER, "Hours times cards; of pools alone."),
)


@dataclass(frozen=True)
class MarginRow:
    line: MarginLine
    price: Price | None = None

    @property
    def margin_percent(self) -> str:
        return formats.percent(self.line.margin_nano, self.line.revenue_nano)

    @property
    def busy_percent(self) -> str:
        return formats.percent(self.line.busy_ms, self.line.up_ms)

    @property
    def card_hours(self) -> str:
        return f"{self.line.card_ms / MS_PER_HOUR:,.1f}"

    @property
    def loses(self) -> bool:
        return self.line.margin_nano < 0

    @property
    def prices(self) -> list[tuple[str, int]]:
        """What a million tokens are sold for now, in nano-USD."""
        if self.price is None:
            return []
        rates = (("in", self.price.input_pico), ("out", self.price.output_pico))
        return [(word, pico * NANO_PER_MILLION_PICO) for word, pico in rates]


@page(Action.MARGIN_VIEW)
@require_GET
def margin_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    now = datetime.now(UTC)
    period, complaint = month_from(request.GET, now)
    found = _read(viewer, period, now)
    if found is None:
        complaint = "The query for this month timed out. Try again in a minute."
    prices = {model.name: price_in_force(model=model, at=now) for model in model_list()}
    latest = period_of(now)
    context = {
        "period": period,
        "before": period_of(period.start - timedelta(days=1)),
        "after": period_of(period.end) if period < latest else None,
        "complaint": complaint,
        "total": MarginRow(found.total) if found else None,
        "pools": [MarginRow(line) for line in found.pools] if found else [],
        "models": [MarginRow(line, prices.get(line.name)) for line in found.models]
        if found
        else [],
        "tenants": [MarginRow(line) for line in found.tenants] if found else [],
        "guessed": [line.name for line in found.pools if _guessed(found, line)] if found else [],
        "sealed": sealed_through(),
    }
    return show(request, viewer, "margin", "money/margin.html", context)


@page(Action.MARGIN_VIEW)
@require_GET
def margin_csv(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    now = datetime.now(UTC)
    period, complaint = month_from(request.GET, now)
    found = None if complaint else _read(viewer, period, now)
    if found is None:
        told = complaint or "The query for this month timed out."
        return HttpResponse(told, status=400, content_type="text/plain; charset=utf-8")
    kinds = (("pool", found.pools), ("model", found.models), ("tenant", found.tenants))
    rows = (_values(kind, line) for kind, lines in kinds for line in lines)
    return columns_csv(COLUMNS, rows, f"sluice-margin-{period}")


def _read(viewer: Viewer, period: Period, now: datetime) -> Margin | None:
    start, end = month_bounds(period, now)
    try:
        return margin_read(actor=viewer.user, start=start, end=end)
    except TooMuchToRead:
        return None


def _guessed(found: Margin, line: MarginLine) -> bool:
    """Whether a pool's cost went by token counts, since nothing was measured."""
    return bool(line.served_nano) and line.name not in found.measured


def _values(kind: str, line: MarginLine) -> list[str | int | None]:
    amounts = (
        line.revenue_nano,
        line.served_nano,
        line.idle_nano,
        line.purchase_nano,
        line.margin_nano,
    )
    return [
        kind,
        line.name,
        line.id,
        *(decimal_text(nano, NANO_PLACES) for nano in amounts),
        line.uncached,
        line.cached,
        line.output,
        f"{line.card_ms / MS_PER_HOUR:.6f}",
    ]
