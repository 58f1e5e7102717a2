"""The stage waterfall of percentiles: medians one after another, p95 and p99 as lines from there.

Percentiles of stages do not add up: the drawing shows who owns the time and who owns the tail.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import CLIENT_RTT
from controlplane.kernel.spans import STAGES
from frontend.shared import formats
from frontend.shared.stages import LABELS, UNATTRIBUTED

HUNDRED = 100.0
# A bar thinner than this share of the drawing could not be seen.
WIDTH_LEAST = 0.4
MEDIAN, SLOW, SLOWEST = 0.5, 0.95, 0.99

Merged = Mapping[str, Histogram]
Budgets = Mapping[str, int]


@dataclass(frozen=True)
class Rung:
    """One row. `number` is 1 to 7, 0 for none; all places are per cent of the drawing.

    `left` is where the medians of the stages above it end.
    """

    name: str
    label: str
    number: int
    is_stage: bool
    budget_ms: str
    cells: list[formats.Cell]
    before: formats.Cell
    count: int
    left: float
    width: float
    slow: float
    slowest: float


@dataclass(frozen=True)
class _Place:
    """Where a row begins and how it is drawn, in microseconds."""

    start: float
    found: Histogram | None

    def at(self, share: float) -> float:
        """A percentile; zero where nothing is known."""
        return (self.found.percentile(share) or 0.0) if self.found else 0.0


def ladder(
    everyone: Merged, before: Merged, *, stage: str, layers: Mapping[str, str], budgets: Budgets
) -> list[Rung]:
    """Rows: stages in their order, the layers of the open one below it, the rest, and the whole.

    The last is the round trip to clients, which is no part of the whole. `budgets` are microseconds
    at p95 by stage.
    """
    names = [(name, number) for number, (name, _, _) in enumerate(STAGES, start=1)]
    rows: list[tuple[str, str, int, _Place]] = []
    start = 0.0
    for name, number in [*names, (UNATTRIBUTED, 0)]:
        place = _Place(start, everyone.get(name))
        rows.append((name, LABELS.get(name, "Other"), number, place))
        if name == stage:
            rows += _layers(everyone, layers, number, start)
        start += place.at(MEDIAN)
    rows.append(("total", "Whole request", 0, _Place(0.0, everyone.get("total"))))
    rows.append((CLIENT_RTT, "Client network", 0, _Place(0.0, everyone.get(CLIENT_RTT))))
    # The whole request is drawn from zero, and is itself the longest as a rule.
    end = max([1.0, *(place.start + place.at(SLOWEST) for _, _, _, place in rows)])
    return [_rung(row, before, end, budgets) for row in rows]


def _layers(
    everyone: Merged, layers: Mapping[str, str], number: int, start: float
) -> list[tuple[str, str, int, _Place]]:
    rows = []
    for measure, label in layers.items():
        place = _Place(start, everyone.get(measure))
        rows.append((measure, label, number, place))
        start += place.at(MEDIAN)
    return rows


def _rung(row: tuple[str, str, int, _Place], before: Merged, end: float, budgets: Budgets) -> Rung:
    name, label, number, place = row

    def share(us: float) -> float:
        return round(HUNDRED * us / end, 3)

    return Rung(
        name=name,
        label=label,
        number=number,
        is_stage=name in budgets or not number,
        budget_ms=f"{budgets[name] / formats.US_PER_MS:g}" if name in budgets else "",
        cells=formats.percentile_cells(name, place.found, unit=False),
        before=formats.before_cell(name, before),
        count=place.found.count if place.found else 0,
        left=min(share(place.start), HUNDRED - WIDTH_LEAST),
        width=max(share(place.at(MEDIAN)), WIDTH_LEAST) if place.found else 0.0,
        slow=share(place.at(SLOW)),
        slowest=share(place.at(SLOWEST)),
    )
