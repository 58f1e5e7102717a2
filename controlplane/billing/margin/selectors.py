"""Margin: what was charged against what GPUs and bought tokens cost, by pool, model and tenant.

Charges by the pool that served are the ledger's sums, split as telemetry counted requests: it says
in which proportion, never how much; over pools there is exactly what was booked.

The cost of a pool's busy time is spread over the tokens that were served in it: over models by the
seconds that requests spent in prefill and decode, as measured; within a model over tenants by
uncached input tokens for the part of prefill and output tokens for that of decode. Idle time is a
line of its own and no one's. Tokens of hosted models cost their purchase price. Every nano-USD of
cost is in exactly one place.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from controlplane.billing.ledger.hours import Dimension, HourSum, hours, sealed_through
from controlplane.catalog.selectors import model_list, pool_list
from controlplane.catalog.services import Purchases
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.fleet.hours import PoolDay, pool_days
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import nano_from_pico
from controlplane.telemetry.selectors import UsageSum
from controlplane.telemetry.selectors_usage import PoolWork, model_work, usage_by_pool
from controlplane.tenants.access import require
from controlplane.tenants.selectors import organization_names

# Where a phase of a pool was not measured: an output token takes as long as so many of the input.
OUTPUT_WEIGHT = 4
TOKENS_PER_PRICE = 1_000_000
MS_PER_HOUR = 3_600_000
# Pool, organization and model; and the last two alone.
Share = tuple[str, uuid.UUID, str]
Buyer = tuple[uuid.UUID, str]
_TOTALLED = (
    *("revenue_nano", "served_nano", "idle_nano", "purchase_nano", "card_ms", "up_ms", "busy_ms"),
)
NO_POOL = ""
_FIGURES = ("nano", "uncached", "cached", "output")
Place = TypeVar("Place", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class PoolCharge:
    """What an organization was charged for one model's requests in one pool; `NO_POOL` if none."""

    organization: uuid.UUID
    model: str
    pool: str
    nano: int
    uncached: int
    cached: int
    output: int

    @property
    def tokens(self) -> int:
        return self.uncached + self.cached + self.output


@dataclass
class MarginLine:
    """Revenue and cost of a pool, a model or a tenant; `idle_nano` is known of pools alone.

    `purchase_nano` is what its tokens cost where they were bought from a hosted server.
    """

    name: str
    id: str = ""
    revenue_nano: int = 0
    served_nano: int = 0
    idle_nano: int = 0
    purchase_nano: int = 0
    uncached: int = 0
    cached: int = 0
    output: int = 0
    card_ms: int = 0
    up_ms: int = 0
    busy_ms: int = 0

    @property
    def cost_nano(self) -> int:
        return self.served_nano + self.idle_nano + self.purchase_nano

    @property
    def margin_nano(self) -> int:
        return self.revenue_nano - self.cost_nano

    @property
    def tokens(self) -> int:
        return self.uncached + self.cached + self.output

    @property
    def card_hours(self) -> float:
        """Hours times cards."""
        return self.card_ms / MS_PER_HOUR

    @property
    def cost_per_million_nano(self) -> int | None:
        """Cost of a million tokens; None where none were served."""
        return self.cost_nano * TOKENS_PER_PRICE // self.tokens if self.tokens else None

    @property
    def revenue_per_million_nano(self) -> int | None:
        return self.revenue_nano * TOKENS_PER_PRICE // self.tokens if self.tokens else None

    def take(self, charged: PoolCharge) -> None:
        self.revenue_nano += charged.nano
        self.uncached += charged.uncached
        self.cached += charged.cached
        self.output += charged.output


@dataclass
class Margin:
    """One period; lines by name. `measured` names the pools whose phases were all measured."""

    start: datetime
    end: datetime
    pools: list[MarginLine] = field(default_factory=list)
    models: list[MarginLine] = field(default_factory=list)
    tenants: list[MarginLine] = field(default_factory=list)
    measured: frozenset[str] = frozenset()

    @property
    def total(self) -> MarginLine:
        made = MarginLine("All pools")
        for line in self.pools:
            for name in _TOTALLED:
                setattr(made, name, getattr(made, name) + getattr(line, name))
        return made


def margin_read(*, actor: Actor, start: datetime, end: datetime) -> Margin:
    """Of [start, end), both on whole hours, for staff; raises TooMuchToRead.

    Revenue is that of requests, before credits, adjustments and tax. It counts for the pool that
    served; where that is not known, for the pool that the model is in now.
    """
    require(actor, Action.MARGIN_VIEW)
    names = organization_names(actor=actor)
    homes = {model.name: model.pool for model in model_list(removed=True)}
    charges = pool_charges(organizations=names, homes=homes, start=start, end=end)
    days = list(pool_days(start=start, end=end))
    shares, measured = _spread(days, charges, model_work(start=start, end=end))
    pools = {pool.name: MarginLine(pool.name) for pool in pool_list()}
    models = {name: MarginLine(name) for name in homes}
    tenants = {one: MarginLine(name, public_id("org", one)) for one, name in names.items()}
    for charged in charges:
        pools.setdefault(charged.pool, MarginLine(charged.pool or "no pool")).take(charged)
        models.setdefault(charged.model, MarginLine(charged.model)).take(charged)
        tenants[charged.organization].take(charged)
    bought = _bought(charges, names, start, end)
    for of in {**bought, **shares}:
        for line in (pools[of[0]], tenants[of[1]], models[of[2]]):
            line.purchase_nano += bought.get(of, 0)
            line.served_nano += shares.get(of, 0)
    _add_times(pools, days)
    return Margin(
        start,
        end,
        pools=sorted(pools.values(), key=lambda line: line.name),
        models=sorted(models.values(), key=lambda line: line.name),
        tenants=sorted((t for t in tenants.values() if t.tokens), key=lambda line: line.name),
        measured=measured,
    )


def _add_times(pools: dict[str, MarginLine], days: list[PoolDay]) -> None:
    cost: Counter[str] = Counter()
    for day in days:
        line = pools.setdefault(day.pool, MarginLine(day.pool))
        line.up_ms += day.up_ms
        line.busy_ms += day.busy_ms
        line.card_ms += day.card_ms
        cost[day.pool] += day.cost_nano
    for name, nano in cost.items():
        # Busy time in which no token was charged is no one's either.
        pools[name].idle_nano = nano - pools[name].served_nano


def _bought(
    charges: list[PoolCharge], names: Iterable[uuid.UUID], start: datetime, end: datetime
) -> dict[Share, int]:
    tokens: dict[Buyer, dict[Share, int]] = defaultdict(dict)
    for row in charges:
        tokens[row.organization, row.model][_share(row)] = row.tokens
    found: dict[Share, int] = {}
    for buyer, nano in _purchases(names, start, end).items():
        found |= divided(nano, tokens[buyer])
    return found


def _purchases(names: Iterable[uuid.UUID], start: datetime, end: datetime) -> Counter[Buyer]:
    """Nano-USD of bought tokens by tenant and model, each day at the price of that day."""
    found: Counter[Buyer] = Counter()
    for charged, nano in purchases_read(names, start, end):
        assert charged.organization is not None and charged.model is not None
        found[charged.organization, charged.model] += nano
    return found


def purchases_read(
    names: Iterable[uuid.UUID], start: datetime, end: datetime
) -> Iterator[tuple[HourSum, int]]:
    """What was charged by day, tenant and model, each with what its tokens cost to buy, nano-USD.

    Models without a purchase price on that day are left out.
    """
    prices = Purchases()
    if not prices:
        return
    by: tuple[Dimension, ...] = ("day", "organization", "model")
    for charged in hours(organizations=names, start=start, end=end, by=by):
        assert charged.model is not None and charged.day is not None
        price = prices.of(charged.model, charged.day.date())
        if price is not None:
            pico = charged.uncached * price.input_pico + charged.cached * price.cached_pico
            yield charged, nano_from_pico(pico + charged.output * price.output_pico)


def _share(row: PoolCharge) -> Share:
    return row.pool, row.organization, row.model


def _spread(
    days: list[PoolDay], charges: list[PoolCharge], work: Mapping[str, PoolWork]
) -> tuple[dict[Share, int], frozenset[str]]:
    """The cost of busy time, and the pools where all phases were measured."""
    busy: Counter[str] = Counter()
    for day in days:
        busy[day.pool] += day.busy_nano
    by_pool: dict[str, list[PoolCharge]] = defaultdict(list)
    for row in charges:
        if row.pool != NO_POOL:
            by_pool[row.pool].append(row)
    weights = _measured_weights(charges, work)
    found: dict[Share, int] = {}
    measured = set()
    for pool, rows in by_pool.items():
        known = {_share(row): weights[_share(row)] for row in rows if any(work.get(row.model, ()))}
        if len(known) == len(rows) and any(known.values()):
            measured.add(pool)
            found |= divided(busy[pool], known)
        else:
            tokens = {_share(row): row.uncached + OUTPUT_WEIGHT * row.output for row in rows}
            found |= divided(busy[pool], tokens)
    return found, frozenset(measured)


def _measured_weights(charges: list[PoolCharge], work: Mapping[str, PoolWork]) -> dict[Share, int]:
    """Microseconds: a model's phases are measured over all pools, and spread over its tokens."""
    inputs: Counter[str] = Counter()
    outputs: Counter[str] = Counter()
    for row in charges:
        inputs[row.model] += row.uncached
        outputs[row.model] += row.output
    weights = {}
    for row in charges:
        prefill_us, decode_us = work.get(row.model, PoolWork())
        prefill = prefill_us * row.uncached // max(1, inputs[row.model])
        decode = decode_us * row.output // max(1, outputs[row.model])
        weights[_share(row)] = prefill + decode
    return weights


def pool_charges(
    *, organizations: Iterable[uuid.UUID], homes: Mapping[str, str], start: datetime, end: datetime
) -> list[PoolCharge]:
    """Of [start, end), both on whole hours; raises TooMuchToRead.

    `homes` are pools by the name of the model: what no telemetry tells of counts for these.
    """
    wanted = list(organizations)
    sealed = min(end, sealed_through() or start)
    served = usage_by_pool(wanted, start=start, end=sealed)
    found: list[PoolCharge] = []
    for charged in hours(organizations=wanted, start=start, end=end, by=("organization", "model")):
        assert charged.organization is not None and charged.model is not None
        home = homes.get(charged.model, NO_POOL)
        found += _of_pools(charged, home, served.get((charged.organization, charged.model), {}))
    return found


def _of_pools(charged: HourSum, home: str, served: Mapping[str, UsageSum]) -> Iterator[PoolCharge]:
    assert charged.organization is not None and charged.model is not None
    parts = {
        name: split(
            getattr(charged, name),
            {pool: getattr(usage, name) for pool, usage in served.items()},
            home,
        )
        for name in _FIGURES
    }
    for pool in {home, *served}:
        figures = {name: part.get(pool, 0) for name, part in parts.items()}
        if any(figures.values()):
            yield PoolCharge(
                organization=charged.organization, model=charged.model, pool=pool, **figures
            )


def split(amount: int, recorded: Mapping[str, int], home: str) -> dict[str, int]:
    """An amount by pool: what was recorded of each, and the rest at home.

    Where more was recorded than booked, the amount in proportion to that.
    """
    rest = amount - sum(recorded.values())
    if rest < 0:
        return divided(amount, recorded)
    return {**recorded, home: recorded.get(home, 0) + rest}


def divided(amount: int, weights: Mapping[Place, int]) -> dict[Place, int]:
    """An amount in proportion to weights, whole and without rest: the largest remainders get it."""
    whole = sum(weights.values())
    if not whole:
        return {}
    parts = {place: divmod(amount * weight, whole) for place, weight in weights.items()}
    rest = amount - sum(part for part, _ in parts.values())
    order = sorted(parts, key=lambda place: (-parts[place][1], str(place)))
    lucky = set(order[:rest])
    return {place: part + (place in lucky) for place, (part, _) in parts.items()}
