"""The seven-stage map: what every stage and layer took here, beside what is public of others."""

from dataclasses import dataclass
from datetime import datetime

from controlplane.insights.sampled import whole_query
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import PHASES
from controlplane.kernel.spans import SPANS, STAGES
from controlplane.telemetry.selectors import series_whole

# Beside the stages: the whole, all of it outside inference, and time in no stage.
WHOLES = {
    "total": "Whole request",
    "overhead": "All but inference",
    "unattributed": "In none of the stages",
}
BUDGETS_US = {name: budget_us for name, _, budget_us in STAGES}


@dataclass(frozen=True)
class MapRow:
    """A stage (without `layer`), one of its layers, or a whole; times in microseconds.

    `budget_us` is the public budget, None where none is known; percentiles None without a request.
    """

    stage: str
    layer: str
    what: str
    count: int
    p50_us: float | None
    p95_us: float | None
    budget_us: int | None

    @property
    def name(self) -> str:
        return f"{self.stage}.{self.layer}" if self.layer else self.stage


def stage_map_read(*, start: datetime, end: datetime) -> list[MapRow]:
    """All rows in the order of the pipeline, wholes last; raises TooMuchToRead."""
    measures = {span.name: PHASES.get(span.name, span.name) for span in SPANS}
    found = series_whole(whole_query(start, end, everyone=(*measures.values(), *WHOLES)))
    rows = [_row(one.stage, one.layer, one.what, found.get(measures[one.name])) for one in SPANS]
    return rows + [_row(name, "", what, found.get(name)) for name, what in WHOLES.items()]


def _row(stage: str, layer: str, what: str, histogram: Histogram | None) -> MapRow:
    return MapRow(
        stage=stage,
        layer=layer,
        what=what,
        count=histogram.count if histogram else 0,
        p50_us=histogram.percentile(0.5) if histogram else None,
        p95_us=histogram.percentile(0.95) if histogram else None,
        budget_us=None if layer else BUDGETS_US.get(stage),
    )
