"""What size classes did of late: choices by tenant, what moved up, how long a choice took, and what
they saved against the largest model for everything, at the list prices of each day.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

import msgspec

from controlplane.catalog.selectors import model_list, price_in_force
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.ids import public_id
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from controlplane.kernel.receipt import SizeChoice, read_receipt
from controlplane.kernel.rules import SIZE_CLASSES, RouteRule, SizeClass
from controlplane.routing.tallies import GROUPS_SHOWN_MAX
from controlplane.routing.traffic import read_everyone
from controlplane.telemetry.selectors_traffic import TrafficRow
from controlplane.tenants.access import require

HOURS = 24
ROWS_MAX = 5_000
READ_S_MAX = 2.0
SHARES = (0.5, 0.95, 0.99)
NS_PER_US = 1_000
ONE_DAY = timedelta(days=1)

Prices = Mapping[tuple[str, date], Price | None]


@dataclass
class SizeTally:
    """Some requests by the class that was `chosen` and the one that `served`, and by what decided.

    Costs in nano-USD: of the model that served, of what was chosen, and of the largest; `unpriced`
    are those of which one has no price.
    """

    requests: int = 0
    chosen: dict[SizeClass, int] = field(default_factory=lambda: dict.fromkeys(SIZE_CLASSES, 0))
    served: dict[SizeClass, int] = field(default_factory=lambda: dict.fromkeys(SIZE_CLASSES, 0))
    retries: int = 0
    thumbs_down: int = 0
    named: int = 0
    bounds: int = 0
    shadow: int = 0
    cost_nano: int = 0
    chosen_nano: int = 0
    largest_nano: int = 0
    unpriced: int = 0

    def add(self, choice: SizeChoice, costs: tuple[int, int, int] | None) -> None:
        self.requests += 1
        self.chosen[choice.chosen] += 1
        self.served[choice.served] += 1
        self.retries += choice.by == "retry"
        self.thumbs_down += choice.by == "thumbs_down"
        self.named += choice.by == "request"
        self.bounds += choice.by == "bounds"
        self.shadow += choice.by == "shadow"
        if costs is None:
            self.unpriced += 1
            return
        self.cost_nano += costs[0]
        self.chosen_nano += costs[1]
        self.largest_nano += costs[2]


@dataclass(kw_only=True)
class TenantSizes(SizeTally):
    """Those of one organization."""

    id: str
    name: str


class SizesJson(msgspec.Struct, frozen=True):
    """What size classes did in the last day, by its newest requests: by all of them only if
    `complete`. `us` holds p50, p95 and p99 of choices.
    """

    start: datetime
    end: datetime
    complete: bool
    us: list[float | None]
    total: SizeTally
    organizations: list[TenantSizes]


def size_report(*, actor: Actor, rules: Sequence[RouteRule]) -> SizesJson | None:
    """Of the last day; None where none of the rules has size classes. Raises TooMuchToRead."""
    require(actor, Action.ROUTING_MANAGE)
    names = {rule.name for rule in rules if rule.has_classes}
    if not names:
        return None
    end = datetime.now(UTC)
    start = end - timedelta(hours=HOURS)
    tenants, sample = read_everyone(
        actor, start, end, rows_max=ROWS_MAX, seconds_max=READ_S_MAX, rules=names
    )
    found = [(row, size) for row in sample.rows if (size := read_receipt(row.receipt).size)]
    named = {name for row, size in found for name in (row.model, size.model, size.largest)}
    prices = _prices(named, {start.date(), end.date()})
    total, taken, each = SizeTally(), Histogram(), dict[uuid.UUID, SizeTally]()
    for row, choice in found:
        taken.record(round(choice.us * NS_PER_US))
        costs = _costs(row, choice, prices)
        for tally in (total, each.setdefault(row.organization, SizeTally())):
            tally.add(choice, costs)
    most = sorted(each, key=lambda one: -each[one].requests)[:GROUPS_SHOWN_MAX]
    return SizesJson(
        start=start,
        end=end,
        complete=sample.complete,
        us=[ns and ns / NS_PER_US for ns in taken.percentiles(SHARES)],
        total=total,
        organizations=[
            TenantSizes(**vars(each[one]), id=public_id("org", one), name=tenants.get(one, one.hex))
            for one in most
        ],
    )


def _prices(names: set[str], days: set[date]) -> Prices:
    """Of models of these names, as they were at the end of each day, or are now."""
    if not names:
        return {}
    models = [model for model in model_list(removed=True) if model.name in names]
    ends = {day: datetime.combine(day + ONE_DAY, time(), UTC) for day in days}
    return {
        (model.name, day): price_in_force(model=model, at=min(end, datetime.now(UTC)))
        for model in models
        for day, end in ends.items()
    }


def _costs(row: TrafficRow, choice: SizeChoice, prices: Prices) -> tuple[int, int, int] | None:
    """Of the model that served, of the one chosen, and of the largest, for the same tokens."""
    day = datetime.fromtimestamp((row.request.int >> 80) / 1_000, UTC).date()
    found = [prices.get((name, day)) for name in (row.model, choice.model, choice.largest)]
    priced = [each for each in found if each is not None]
    if len(priced) < len(found):
        return None
    counts = TokenCounts.from_usage(row.prompt_tokens, row.cached_tokens, row.output_tokens)
    served, chosen, largest = (charge_nano(price, counts) for price in priced)
    return served, chosen, largest
