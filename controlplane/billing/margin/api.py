"""`GET /api/billing/margin`: a month's margin for staff's programs; amounts in nano-USD."""

from datetime import UTC, datetime, timedelta
from typing import TypedDict

from drf_spectacular.utils import OpenApiParameter

from controlplane.billing.ledger.hours import sealed_through
from controlplane.billing.margin.selectors import MarginLine, margin_read
from controlplane.billing.months.periods import Period, period_of
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.tenants.access import require

HOUR = timedelta(hours=1)
MONTH = OpenApiParameter(
    "month", str, description="For example 2026-11; default: the current month."
)


class MarginLineJson(TypedDict):
    """A pool, a model or a tenant; `cost_nano` is served, idle and purchase together.

    Revenue and tokens of a pool are those of requests that it served.
    """

    name: str
    id: str
    revenue_nano: int
    served_nano: int
    idle_nano: int
    purchase_nano: int
    cost_nano: int
    margin_nano: int
    uncached_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_per_million_nano: int | None
    revenue_per_million_nano: int | None
    card_ms: int
    up_ms: int
    busy_ms: int


class MarginJson(TypedDict):
    """A month; charges are in it up to `sealed_through`."""

    start: datetime
    end: datetime
    sealed_through: datetime | None
    total: MarginLineJson
    pools: list[MarginLineJson]
    models: list[MarginLineJson]
    tenants: list[MarginLineJson]


class MarginView(ApiView, at="api/billing/margin"):
    @operation(answer=MarginJson, params=[MONTH])
    def get(self) -> MarginJson:
        """Get the margin of a month. Staff only."""
        require(self.actor(), Action.MARGIN_VIEW)
        now = datetime.now(UTC)
        named = self.request.query_params.get("month")
        start, end = month_bounds(Period(named) if named else period_of(now), now)
        found = margin_read(actor=self.actor(), start=start, end=end)
        lines = {
            name: [line_json(line) for line in getattr(found, name)]
            for name in ("pools", "models", "tenants")
        }
        sealed, total = sealed_through(), line_json(found.total)
        return answer_of(MarginJson, found, sealed_through=sealed, total=total, **lines)


def month_bounds(period: Period, now: datetime) -> tuple[datetime, datetime]:
    """A month, or what of it has begun, in whole hours."""
    hour = now.replace(minute=0, second=0, microsecond=0) + HOUR
    return period.start, max(period.start, min(period.end, hour))


def line_json(line: MarginLine) -> MarginLineJson:
    return answer_of(
        MarginLineJson,
        line,
        uncached_tokens=line.uncached,
        cached_tokens=line.cached,
        output_tokens=line.output,
    )
