"""The plan of a pool: nodes, reasons, what one node holds, what is foreseen, and replays; staff."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.composed.planning.api import days_read
from controlplane.composed.planning.plans import PlannedPool, plans_read
from controlplane.composed.planning.replays import (
    REPLAY_DAYS,
    REPLAY_DAYS_MAX,
    cost_nano,
    replayed,
)
from controlplane.core.permissions import Action
from controlplane.fleet.overview import fleet_view
from controlplane.kernel.insights.planning import (
    DAY_S,
    RATE_MOST,
    STEP_S,
    NodeBound,
    ReplayedFleet,
    foreseen,
)
from frontend.shared import formats
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time
from frontend.shared.panels import TablePanel, panel_csv
from frontend.shared.plots.figure import Axis, Figure, Line

HUNDRED = 100.0
CSV_HEAD = ["Fleet", "Node-hours", "Max. nodes", "Cost, USD", "Requests", "Late"]


@dataclass(frozen=True)
class ReplayRow:
    """One fleet of the replay."""

    fleet: ReplayedFleet
    nano: int

    @property
    def late(self) -> str:
        return f"{HUNDRED * self.fleet.late_share:.2f} %"


def bound_row(bound: NodeBound, place: int) -> tuple[str, str, bool]:
    """What one node does, up to how many requests a second, and whether that breaks first."""
    words = f"{bound.words[0].upper()}{bound.words[1:]}"
    rate = formats.significant(bound.per_s) if bound.per_s else "never"
    return words, "any rate" if bound.per_s >= RATE_MOST else rate, not place


@page("insights/plan", Action.FLEET_VIEW, "GET")
def plan(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    now = timezone.now()
    pools, chosen, days = _read(request, viewer, now)
    context: dict[str, object] = {"tab": "plan", "pools": pools, "chosen": chosen, "now": now}
    context |= {"days": days, "day_choices": range(1, REPLAY_DAYS_MAX + 1), "csv": "plan_csv"}
    if chosen is not None:
        figure = _figure(chosen, now)
        signal = next(
            view.plan
            for view in fleet_view(actor=viewer.user, now=now)
            if view.pool.name == chosen.measured.pool.name
        )
        context |= {
            "kept": signal,
            "bounds": [bound_row(one, at) for at, one in enumerate(chosen.plan.bounds)],
            "figure": figure,
            "figures": {figure.name: figure.as_json()},
            "fleets": _replayed(chosen, days, now),
        }
    return show(request, viewer, "insights", "insights/plan.html", context)


@page("insights/plan/<slug:chart>.csv", Action.FLEET_VIEW, "GET")
def plan_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    """The rates on screen, or the replay."""
    now = timezone.now()
    _, chosen, days = _read(request, viewer, now)
    rows = _replayed(chosen, days, now) if chosen else []
    body = [
        [row.fleet.name, f"{row.fleet.node_hours:g}", str(row.fleet.nodes_most),
         f"{row.nano / 1e9:.2f}", f"{row.fleet.requests:.0f}", f"{row.fleet.late:.0f}"]
        for row in rows
    ]  # fmt: skip
    table = TablePanel("replay", "Replay", CSV_HEAD, body)
    return panel_csv([table, *([_figure(chosen, now)] if chosen else [])], chart)


def _read(
    request: HttpRequest, viewer: Viewer, now: datetime
) -> tuple[list[PlannedPool] | None, PlannedPool | None, int]:
    pools = in_time(lambda: plans_read(actor=viewer.user, now=now))
    days = days_read(request.GET.get("days", "")) or REPLAY_DAYS
    busiest = max(pools or [], key=lambda one: one.measured.requests, default=None)
    wanted = request.GET.get("pool", "")
    named = (one for one in pools or [] if one.measured.pool.name == wanted)
    return pools, next(named, busiest), days


def _replayed(chosen: PlannedPool, days: int, now: datetime) -> list[ReplayRow]:
    fleets = replayed(chosen, days=days, now=now)
    return [ReplayRow(fleet, cost_nano(chosen, fleet)) for fleet in fleets]


def _figure(chosen: PlannedPool, now: datetime) -> Figure:
    """A day back and a day ahead."""
    ends = int(now.timestamp()) // STEP_S * STEP_S
    steps = range(ends - DAY_S, ends + DAY_S, STEP_S)
    ahead = {one.at_s: one for one in foreseen(chosen.history, now.timestamp(), DAY_S)}
    holds = chosen.plan.nodes * chosen.plan.per_node_s or None
    finding = chosen.plan.outlook.words
    lines = [
        Line("actual", [chosen.history.get(at, 0.0) if at < ends else None for at in steps],
             "--stage-5"),
        Line("forecast", [ahead[at].per_s if at in ahead else None for at in steps],
             "--stage-2", "dash"),
        Line("capacity of planned nodes", [holds if at >= ends else None for at in steps],
             "--muted", "dot"),
    ]  # fmt: skip
    times = [datetime.fromtimestamp(at, UTC) for at in steps]
    title = "Request rate: actual and forecast"
    words = f"{finding[0].upper()}{finding[1:]}."
    return Figure("rates", title, words, times, lines, Axis("requests/s"))
