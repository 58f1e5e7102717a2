"""Charges by the pool that served: the ledger's sums, split as telemetry counted requests.

Telemetry says in which proportion, never how much: over pools there is exactly what was booked.
"""

import uuid
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from controlplane.billing.ledger.hours import HourSum, hours, sealed_through
from controlplane.telemetry.selectors import UsageSum
from controlplane.telemetry.selectors_usage import usage_by_pool

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


def pool_charges(
    *,
    organizations: Iterable[uuid.UUID],
    homes: Mapping[str, str],
    start: datetime,
    end: datetime,
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
