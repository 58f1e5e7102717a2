"""Figures ready to be read: numbers, durations, sizes and times as the pages print them, the exact
value behind each, and how it is to look; money is `kernel.money`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import floor, log10

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import STAGE_NAMES

MISSING = "–"
US_PER_MS = 1_000
US_PER_S = 1_000_000
S_PER_MIN = 60
S_PER_HOUR = 3_600
S_PER_DAY = 86_400
# Below these counts a percentile says little, so pages print it faintly.
COUNT_LEAST = {50: 2, 95: 20, 99: 100}
PERCENTILES = (50, 95, 99)
SHARES = tuple(percent / 100 for percent in PERCENTILES)
PERCENT_DEFAULT = 95
FEW = "few"
# Measures of which a request is kept for each octave of values.
EXEMPLARS = frozenset(("total", "ttft", *STAGE_NAMES))


def significant(value: float, digits: int = 3) -> str:
    """Plain decimal text with so many significant digits; never an exponent."""
    if value == 0:
        return "0"
    rounded = round(value, digits - 1 - floor(log10(abs(value))))
    # Rounding may have added a digit: 0.9996 is 1.00.
    places = digits - 1 - floor(log10(abs(rounded)))
    return f"{rounded:,.{max(0, places)}f}"


def _milliseconds(value_us: float) -> str:
    # Clocks count whole microseconds: a fourth decimal would be invented.
    if abs(value_us) < US_PER_MS // 10:
        return f"{value_us / US_PER_MS:.3f}" if value_us else "0"
    return significant(value_us / US_PER_MS)


def milliseconds(value_us: float | None) -> str:
    """Number only, for a column whose head says "ms"."""
    return MISSING if value_us is None else _milliseconds(value_us)


def duration(value_us: float | None) -> str:
    """Duration with its unit: 0.42 ms, 145 ms, 1.23 s, 2 min 05 s."""
    if value_us is None:
        return MISSING
    # Compared after rounding, so that 999.7 ms reads 1.00 s and not 1,000 ms.
    if round(value_us) < US_PER_S - US_PER_MS // 2:
        return f"{_milliseconds(value_us)} ms"
    seconds = value_us / US_PER_S
    if seconds < S_PER_MIN - 0.05:
        return f"{significant(seconds)} s"
    minutes, rest = divmod(round(seconds), S_PER_MIN)
    return f"{minutes:,} min {rest:02d} s"


def count(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def count_short(value: int | None) -> str:
    """For tiles: 987, 12.3 k, 1.24 M, 5.1 G; the exact value stands in the tile's title."""
    if value is None:
        return MISSING
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{significant(value / size)} {letter}"
    return str(value)


def multiplier(permille: int) -> str:
    """Thousandths as a factor: 1, 0.5, 1.25."""
    return f"{permille / 1000:g}"


def rate(value: float | None) -> str:
    """Tokens or requests a second, three significant digits."""
    return MISSING if value is None else significant(value)


def rate_words(per_second: float) -> str:
    """A rate in the unit in which it is at least one."""
    if per_second >= 1 or per_second == 0:
        return f"{significant(per_second)} a second"
    if per_second * S_PER_MIN >= 1:
        return f"{significant(per_second * S_PER_MIN)} a minute"
    return f"{round(per_second * S_PER_HOUR):,} an hour"


def percent(part: float, whole: float) -> str:
    """Share in per cent; missing where there is no whole."""
    if not whole:
        return MISSING
    share = 100 * part / whole
    return f"{share:.0f} %" if share in (0, 100) else f"{significant(share)} %"


def change_words(now: float, before: float) -> str:
    """`+12.5 %`; missing where there was nothing before."""
    if not before:
        return MISSING
    share = 100 * (now - before) / before
    sign = "+" if share > 0 else "−" if share < 0 else ""
    return f"{sign}{significant(abs(share))} %"


def moment(value: datetime | None) -> str:
    """Absolute time without its zone; the column's head or the page says UTC."""
    return MISSING if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def relative(value: datetime, now: datetime) -> str:
    """How long ago, or nothing from a day on: then the absolute time says it better."""
    seconds = round((now - value).total_seconds())
    ahead = seconds < 0
    seconds = abs(seconds)
    if seconds >= S_PER_DAY:
        return ""
    if seconds < S_PER_MIN:
        text = f"{seconds} s"
    elif seconds < S_PER_HOUR:
        text = f"{seconds // S_PER_MIN} min"
    else:
        text = f"{seconds // S_PER_HOUR} h"
    return f"in {text}" if ahead else f"{text} ago"


def few(percentile: int, samples: int) -> bool:
    """Whether a percentile rests on too few values to be trusted."""
    return samples < COUNT_LEAST[percentile]


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
    show = duration if unit else milliseconds
    cells = []
    values = found.percentiles(SHARES) if found else [None] * len(PERCENTILES)
    for percent, value in zip(PERCENTILES, values, strict=True):
        thin = few(percent, count)
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


def before_cell(name: str, before: Mapping[str, Histogram]) -> Cell:
    """p95 of a column of milliseconds, a period earlier."""
    cell = percentile_cells(name, before.get(name), unit=False)[1]
    return Cell(f"{name}.before", cell.text, cell.title, cell.tone)


def count_cell(key: str, value: int, label: str = "") -> Cell:
    return Cell(key, count_short(value), f"{value:,}", label=label)


def percent_from(query: Mapping[str, str]) -> tuple[int, str]:
    """The percentile to show over time, and a sentence when another was asked for."""
    asked = query.get("percentile", str(PERCENT_DEFAULT))
    found = next((percent for percent in PERCENTILES if asked == str(percent)), None)
    if found is not None:
        return found, ""
    return PERCENT_DEFAULT, f"“{asked[:40]}” is not a percentile; showing p{PERCENT_DEFAULT}."
