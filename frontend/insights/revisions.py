"""Kept worksheets in the words of the pages: rows, what comes of growth, and the quarters to keep
one for.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from controlplane.core.permissions import Action
from controlplane.insights.capacity import Worksheet
from controlplane.insights.models import WorksheetRevision
from controlplane.insights.revisions import (
    growth,
    quarter_range,
    quarters_open,
    revision_list,
)
from controlplane.kernel.insights.capacity import RESOURCES, rate_ahead
from frontend.shared import formats
from frontend.shared.access import Viewer
from frontend.shared.asked import in_time

DAY = timedelta(days=1)
PERCENT = 100


@dataclass(frozen=True)
class RevisionRow:
    """One kept worksheet as the list shows it."""

    row: WorksheetRevision

    @property
    def rate(self) -> str:
        return formats.significant(self.row.figures["rate"])

    @property
    def nodes(self) -> str:
        return formats.count(self.row.sheet["nodes_needed"])

    @property
    def breaks(self) -> str:
        """What breaks first, and at which load."""
        first = self.row.sheet["uses"][0]
        return f"{RESOURCES[first['resource']]}, at {formats.significant(first['per_s_max'])}/s"

    @property
    def query(self) -> str:
        """The worksheet with these figures."""
        figures = {name: f"{value:.6g}" for name, value in self.row.figures.items()}
        return urlencode({"pool": self.row.pool, **figures})


def revisions_of(viewer: Viewer, made: Worksheet, now: datetime) -> dict[str, object]:
    pool = made.measured.pool.name
    return {
        "revisions": [RevisionRow(row) for row in revision_list(actor=viewer.user, pool=pool)],
        "quarters": [(quarter, quarter) for quarter in quarters_open(now)],
        "grows": _growth_words(viewer, made, now),
        "may_keep": viewer.may(Action.FLEET_MANAGE),
    }


def _growth_words(viewer: Viewer, made: Worksheet, now: datetime) -> str:
    """What the rate would be at the end of the quarter if it grows as it did; empty if unknown."""
    load, models = made.measured.load, made.measured.models
    found = in_time(lambda: [growth(actor=viewer.user, models=models, now=now)])
    if not found or found[0] is None or load is None:
        return ""
    quarter = quarters_open(now)[0]
    days = (quarter_range(quarter)[1] - now) / DAY
    ahead = formats.significant(rate_ahead(load.per_s, found[0], days))
    changed = f"{PERCENT * (found[0] - 1):+.0f} %"
    return f"{changed} in 28 days; at this pace the peak is {ahead}/s at the end of {quarter}."
