"""The autoscaling signal of every pool: evaluated by whoever reads it, remembered in the database.

Any number of readers on any number of hosts see one signal, which moves by `scaling.scale_next`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import transaction

from controlplane.catalog.models import Pool
from controlplane.catalog.warm import nodes_min_at, windows_from
from controlplane.core.audit.entries import Actor
from controlplane.fleet.models import PoolScale
from controlplane.fleet.overview import PoolView, fleet_view
from controlplane.fleet.scaling import PoolLoad, Scale, nodes_wanted, scale_next


@dataclass(frozen=True)
class Signal:
    """A pool with its wished number of nodes and the least of them that is kept warm now."""

    view: PoolView
    desired: int
    nodes_min: int

    @property
    def pool(self) -> Pool:
        return self.view.pool

    @property
    def load(self) -> PoolLoad:
        return self.view.load


def signals(*, actor: Actor, now: datetime) -> list[Signal]:
    """One for each pool, by name; moves the memory of the signal on."""
    return [signal_of(view, now) for view in fleet_view(actor=actor, now=now)]


def signal_of(view: PoolView, now: datetime) -> Signal:
    """The signal of one pool; moves its memory on."""
    pool = view.pool
    least = nodes_min_at(pool.nodes_min, windows_from(pool.warm_schedule), now)
    wanted = nodes_wanted(view.load, nodes_min=least, nodes_max=pool.nodes_max)
    return Signal(view, _remember(pool, wanted, now), least)


def _remember(pool: Pool, wanted: int, now: datetime) -> int:
    before = _remembered(pool)
    # Read by many and often, while it seldom moves: most readers need no lock.
    if before is not None and scale_next(before, wanted, now.timestamp()) == before:
        return min(before.desired, pool.nodes_max)
    with transaction.atomic():
        # The pool's row is the lock: two readers make one step after the other.
        Pool.objects.select_for_update().only("id").get(id=pool.id)
        before = _remembered(pool)
        after = scale_next(before, wanted, now.timestamp())
        # What is wanted has its bounds already; what is remembered may be of older ones.
        desired = min(after.desired, pool.nodes_max)
        since = after.low_since_s
        PoolScale.objects.update_or_create(
            pool=pool,
            defaults={
                "desired": desired,
                "low_since": None if since is None else datetime.fromtimestamp(since, UTC),
                "low_peak": after.low_peak,
                "evaluated_at": now,
            },
        )
    return desired


def _remembered(pool: Pool) -> Scale | None:
    row = PoolScale.objects.filter(pool=pool).first()
    if row is None:
        return None
    since = row.low_since
    return Scale(
        desired=row.desired,
        low_since_s=since.timestamp() if since else None,
        low_peak=row.low_peak,
    )
