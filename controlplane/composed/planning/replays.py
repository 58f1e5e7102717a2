"""Plans over traffic that came, beside what else could have been done with it: cost and misses."""

from datetime import datetime
from functools import partial

from controlplane.composed.planning.plans import PlannedPool
from controlplane.fleet.scaling import BUSY_SHARE, Scale, scale_next
from controlplane.kernel.insights.capacity import make_sheet
from controlplane.kernel.insights.planning import (
    DAY_S,
    STEP_S,
    ReplayedFleet,
    forecast,
    make_plan,
    replay,
)

REPLAY_DAYS, REPLAY_DAYS_MAX = 3, 4
NANO_PER_MICRO = 1_000
PLANNED = "the plan"


def replayed(planned: PlannedPool, *, days: int, now: datetime) -> list[ReplayedFleet]:
    """The plan, the load's own signal, and fixed fleets; none where nothing was measured.

    Each sees only what had come before. Steps begin with the first that had a request.
    """
    measured, history = planned.measured, planned.history
    ends = int(now.timestamp()) // STEP_S * STEP_S
    begins = max(ends - days * DAY_S, min(history, default=ends))
    steps = range(begins, ends, STEP_S)
    per_node = planned.plan.per_node_s
    if not steps or not per_node or measured.load is None or measured.engine is None:
        return []
    held = {"per_node_s": per_node, "cold_start_s": planned.cold_start_s}
    found = [replay(PLANNED, history, steps, _Planner(planned), **held)]
    sheet = make_sheet(measured.load, measured.engine, nodes=1, cards_per_node=1)
    if measured.engine.slots:
        signal = _Signal(planned, sheet.seconds / measured.engine.slots / BUSY_SHARE)
        found.append(replay("load alone", history, steps, signal, **held))
    rates = [history.get(at, 0.0) for at in steps]
    sizes = {
        "as now": measured.nodes,
        "for the mean": _nodes(sum(rates) / len(rates), per_node),
        "for the peak": _nodes(max(rates), per_node),
    }
    for words, nodes in sizes.items():
        name = f"fixed, {words}: {nodes}"
        found.append(replay(name, history, steps, partial(_fixed, nodes), **held))
    return found


def cost_nano(planned: PlannedPool, fleet: ReplayedFleet) -> int:
    """In nano-USD, at the pool's price of a card."""
    pool = planned.measured.pool
    return round(fleet.node_hours * pool.cards_per_node * pool.card_hour_micro * NANO_PER_MICRO)


def _fixed(nodes: int, at: int, before: int) -> int:
    return nodes


def _nodes(per_s: float, per_node_s: float) -> int:
    return int(-(-per_s // per_node_s))


class _Follower:
    """Remembers, as the signal does, that less is wanted only after a while."""

    def __init__(self, planned: PlannedPool) -> None:
        self.planned = planned
        self._scale: Scale | None = None

    def wanted(self, at: int) -> int:
        raise NotImplementedError

    def __call__(self, at: int, before: int) -> int:
        self._scale = scale_next(self._scale, self.wanted(at), at, self.planned.settle_s)
        return self._scale.desired


class _Planner(_Follower):
    """The plan at each step, of what had come until then."""

    def wanted(self, at: int) -> int:
        planned = self.planned
        past = {then: rate for then, rate in planned.history.items() if then < at}
        outlook = forecast(past, at, planned.lead_s)
        most = planned.measured.pool.nodes_max
        return make_plan(outlook, planned.bounds, least=planned.least, most=most).nodes


class _Signal(_Follower):
    """What requests in progress ask for, a step late: as without plans."""

    def __init__(self, planned: PlannedPool, nodes_per_rate: float) -> None:
        super().__init__(planned)
        self._nodes_per_rate = nodes_per_rate

    def wanted(self, at: int) -> int:
        wanted = _nodes(self.planned.history.get(at - STEP_S, 0.0) * self._nodes_per_rate, 1.0)
        return max(self.planned.least, min(self.planned.measured.pool.nodes_max, wanted))
