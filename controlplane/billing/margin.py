"""Margin: what was charged against what the GPUs cost, by pool, model and tenant.

The cost of a pool's busy time is spread over the tokens that its models served: over models by the
seconds that requests spent in prefill and decode, as measured; within a model over tenants by
uncached input tokens for the part of prefill and output tokens for that of decode. Idle time is a
line of its own and nobody's. Every nano-USD of cost is in exactly one place.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.billing.hours import HourSum, hours
from controlplane.catalog.selectors import model_list, pool_list
from controlplane.core.audit import Actor
from controlplane.core.permissions import Action
from controlplane.fleet.hours import PoolDay, pool_days
from controlplane.telemetry.selectors_work import Work, model_work
from controlplane.tenants.access import require
from controlplane.tenants.selectors_staff import organization_names

# Where a phase of a pool was not measured: an output token takes as long as so many of the input.
OUTPUT_WEIGHT = 4
TOKENS_PER_PRICE = 1_000_000
Share = tuple[uuid.UUID, str]


@dataclass
class MarginLine:
    """Revenue and cost of a pool, a model or a tenant; `idle_nano` is known of pools alone."""

    name: str
    id: str = ""
    revenue_nano: int = 0
    served_nano: int = 0
    idle_nano: int = 0
    uncached: int = 0
    cached: int = 0
    output: int = 0
    card_ms: int = 0
    up_ms: int = 0
    busy_ms: int = 0

    @property
    def cost_nano(self) -> int:
        """Busy and idle time."""
        return self.served_nano + self.idle_nano

    @property
    def margin_nano(self) -> int:
        """What is left."""
        return self.revenue_nano - self.cost_nano

    @property
    def tokens(self) -> int:
        """Of all kinds."""
        return self.uncached + self.cached + self.output

    @property
    def cost_per_million_nano(self) -> int | None:
        """Cost of a million tokens; None where none were served."""
        return self.cost_nano * TOKENS_PER_PRICE // self.tokens if self.tokens else None

    @property
    def revenue_per_million_nano(self) -> int | None:
        """What a million tokens were sold for."""
        return self.revenue_nano * TOKENS_PER_PRICE // self.tokens if self.tokens else None

    def take(self, charged: HourSum) -> None:
        """Add what was charged."""
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
        """All pools together."""
        made = MarginLine("All pools")
        for line in self.pools:
            for name in ("revenue_nano", "served_nano", "idle_nano", "card_ms", "up_ms", "busy_ms"):
                setattr(made, name, getattr(made, name) + getattr(line, name))
        return made


def margin_read(*, actor: Actor, start: datetime, end: datetime) -> Margin:
    """Of [start, end), both on whole hours, for staff; raises TooMuchToRead.

    Revenue is that of requests, before credits, adjustments and tax; a model counts for the pool
    that it is in now.
    """
    require(actor, Action.MARGIN_VIEW)
    names = organization_names(actor=actor)
    homes = {model.name: model.pool for model in model_list()}
    charges = list(hours(organizations=names, start=start, end=end, by=("organization", "model")))
    days = list(pool_days(start=start, end=end))
    shares, measured = _spread(days, charges, homes, model_work(start=start, end=end))
    pools = {pool.name: MarginLine(pool.name) for pool in pool_list()}
    models = {name: MarginLine(name) for name in homes}
    tenants = {one: MarginLine(name, str(one)) for one, name in names.items()}
    for charged in charges:
        organization, model = _place(charged)
        pools.setdefault(homes.get(model, ""), MarginLine("no pool")).take(charged)
        models.setdefault(model, MarginLine(model)).take(charged)
        tenants[organization].take(charged)
    for (organization, model), nano in shares.items():
        pools[homes[model]].served_nano += nano
        models[model].served_nano += nano
        tenants[organization].served_nano += nano
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
        # Busy time in which no token was charged is nobody's either.
        pools[name].idle_nano = nano - pools[name].served_nano


def _place(charged: HourSum) -> Share:
    assert charged.organization is not None and charged.model is not None
    return charged.organization, charged.model


def _spread(
    days: list[PoolDay],
    charges: list[HourSum],
    homes: Mapping[str, str],
    work: Mapping[str, Work],
) -> tuple[dict[Share, int], frozenset[str]]:
    """The cost of busy time by tenant and model, and the pools where all phases were measured."""
    busy: Counter[str] = Counter()
    for day in days:
        busy[day.pool] += day.busy_nano
    by_pool: dict[str, list[HourSum]] = defaultdict(list)
    for charged in charges:
        pool = homes.get(charged.model or "")
        if pool is not None:
            by_pool[pool].append(charged)
    found: dict[Share, int] = {}
    measured = set()
    for pool, rows in by_pool.items():
        weights = _measured_weights(rows, work)
        if weights is not None:
            measured.add(pool)
        found |= divided(busy[pool], weights or _plain_weights(rows))
    return found, frozenset(measured)


def _measured_weights(rows: list[HourSum], work: Mapping[str, Work]) -> dict[Share, int] | None:
    """Microseconds by tenant and model; None where a model that served was not measured."""
    inputs: Counter[str] = Counter()
    outputs: Counter[str] = Counter()
    for row in rows:
        _, model = _place(row)
        inputs[model] += row.uncached
        outputs[model] += row.output
    if any(not any(work.get(model, Work())) for model in inputs):
        return None
    weights = {}
    for row in rows:
        _, model = _place(row)
        prefill = work[model].prefill_us * row.uncached // max(1, inputs[model])
        decode = work[model].decode_us * row.output // max(1, outputs[model])
        weights[_place(row)] = prefill + decode
    return weights if any(weights.values()) else None


def _plain_weights(rows: list[HourSum]) -> dict[Share, int]:
    return {_place(row): row.uncached + OUTPUT_WEIGHT * row.output for row in rows}


def divided(amount: int, weights: Mapping[Share, int]) -> dict[Share, int]:
    """An amount in proportion to weights, whole and without rest: the largest remainders get it."""
    whole = sum(weights.values())
    if not whole:
        return {}
    parts = {place: divmod(amount * weight, whole) for place, weight in weights.items()}
    rest = amount - sum(part for part, _ in parts.values())
    order = sorted(parts, key=lambda place: (-parts[place][1], str(place)))
    lucky = set(order[:rest])
    return {place: part + (place in lucky) for place, (part, _) in parts.items()}
