"""Figures ready to be read: text, the exact value behind it, and how it is to look."""

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import STAGE_NAMES
from frontend.shared import formats

PERCENTILES = (50, 95, 99)
SHARES = tuple(percent / 100 for percent in PERCENTILES)
PERCENT_DEFAULT = 95
FEW = "few"
# Measures of which a request is kept for each octave of values.
EXEMPLARS = frozenset(("total", "ttft", *STAGE_NAMES))


@dataclass(frozen=True)
class Cell:
    """One figure. `key` is how the live stream names it, `tone` its class.

    `exemplar` is the measure of which a request that took about `us` microseconds can be shown.
    """

    key: str
    text: str
    title: str = ""
    tone: str = ""
    label: str = ""
    exemplar: str = ""
    us: int | None = None

    def as_json(self) -> list[str | int | None]:
        return [self.text, self.title, self.tone, self.us]


def percentile_cells(name: str, found: Histogram | None, *, unit: bool) -> list[Cell]:
    """p50, p95 and p99 of microseconds; with a unit each, or for a column of milliseconds."""
    count = found.count if found else 0
    show = formats.duration if unit else formats.milliseconds
    cells = []
    values = found.percentiles(SHARES) if found else [None] * len(PERCENTILES)
    for percent, value in zip(PERCENTILES, values, strict=True):
        thin = formats.few(percent, count)
        title = f"of {count:,} values" + (", low sample" if thin else "")
        cells.append(
            Cell(
                f"{name}.p{percent}",
                show(value),
                title,
                FEW if thin else "",
                f"p{percent}",
                name if name in EXEMPLARS else "",
                None if value is None else round(value),
            )
        )
    return cells


def count_cell(key: str, value: int, label: str = "") -> Cell:
    return Cell(key, formats.count_short(value), f"{value:,}", label=label)


def percent_from(query: Mapping[str, str]) -> tuple[int, str]:
    """The percentile to show over time, and a sentence when another was asked for."""
    asked = query.get("percentile", str(PERCENT_DEFAULT))
    found = next((percent for percent in PERCENTILES if asked == str(percent)), None)
    if found is not None:
        return found, ""
    return PERCENT_DEFAULT, f"“{asked[:40]}” is not a percentile; showing p{PERCENT_DEFAULT}."
