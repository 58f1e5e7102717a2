"""Margin: a month's revenue and cost by pool, model and tenant, and the same as CSV; staff."""

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse

from controlplane.billing.cells import NANO_PLACES, columns, decimal_text
from controlplane.billing.ledger.hours import sealed_through
from controlplane.billing.margin.api import month_bounds
from controlplane.billing.margin.selectors import Margin, MarginLine, margin_read
from controlplane.billing.months.periods import Period, period_of
from controlplane.catalog.selectors import model_list, price_in_force
from controlplane.core.permissions import Action
from controlplane.kernel.price import Price
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time
from frontend.shared.months import month_from
from frontend.shared.panels import columns_csv

NANO_PER_MILLION_PICO = 1_000
COLUMNS = columns("""
    kind            text   pool, model or tenant.
    name            free   Its name.
    id              text   A tenant's id.
    revenue_usd     number What requests were charged; a pool has those that it served.
    served_usd      number GPU time with requests under way.
    idle_usd        number GPU time without; of pools alone.
    purchase_usd    number What tokens of hosted models cost to buy.
    margin_usd      number Revenue less all three.
    uncached_tokens number Input computed.
    cached_tokens   number Input read from the cache.
    output_tokens   number Output.
    card_hours      number Hours times cards; of pools alone.
""")


@page("margin", Action.MARGIN_VIEW, "GET", name="margin")
def margin_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    now = datetime.now(UTC)
    period, complaint = month_from(request.GET, now)
    found = _read(viewer, period, now)
    if found is None:
        complaint = "The query for this month timed out. Try again in a minute."
    prices = {model.name: price_in_force(model=model, at=now) for model in model_list(removed=True)}
    context: dict[str, object] = {
        "period": period,
        "before": period.before,
        "after": period.after if period < period_of(now) else None,
        "complaint": complaint,
        "sealed": sealed_through(),
    }
    if found is not None:
        context |= {
            "total": found.total,
            "pools": found.pools,
            "models": [(line, _sold_for(prices.get(line.name))) for line in found.models],
            "tenants": [(line, ()) for line in found.tenants],
            "guessed": [line.name for line in found.pools if _guessed(found, line)],
        }
    return show(request, viewer, "margin", "money/margin.html", context)


@page("margin.csv", Action.MARGIN_VIEW, "GET")
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
    return in_time(lambda: margin_read(actor=viewer.user, start=start, end=end))


def _sold_for(price: Price | None) -> list[tuple[str, int]]:
    """What a million tokens are sold for, in nano-USD."""
    rates = (("in", price.input_pico), ("out", price.output_pico)) if price else ()
    return [(word, pico * NANO_PER_MILLION_PICO) for word, pico in rates]


def _guessed(found: Margin, line: MarginLine) -> bool:
    """Whether a pool's cost went by token counts, since nothing was measured."""
    return bool(line.served_nano) and line.name not in found.measured


def _values(kind: str, line: MarginLine) -> list[str | int | None]:
    spent = (line.served_nano, line.idle_nano, line.purchase_nano)
    amounts = (line.revenue_nano, *spent, line.margin_nano)
    texts = (decimal_text(nano, NANO_PLACES) for nano in amounts)
    tokens = (line.uncached, line.cached, line.output)
    return [kind, line.name, line.id, *texts, *tokens, f"{line.card_hours:.6f}"]
