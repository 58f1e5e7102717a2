"""The stage map as Markdown: the same rows as the page, for wherever teams keep what they agree."""

from collections.abc import Iterable

from controlplane.insights.stage_map import MapRow
from frontend.shared import formats
from frontend.shared.stages import LABELS, STAGE_NAMES

HEAD = ("Stage", "Layer", "What", "p50", "p95", "n", "Public budget", "p95 of budget")


def cells_of(row: MapRow) -> tuple[str, ...]:
    """One row in words, as all three forms show it."""
    number = STAGE_NAMES.index(row.stage) + 1 if row.stage in STAGE_NAMES else None
    stage = row.what if number is None else f"{number} {LABELS[row.stage]}"
    return (
        "" if row.layer else stage,
        row.layer,
        row.what if number is not None else "",
        _trusted(50, row.p50_us, row.count),
        _trusted(95, row.p95_us, row.count),
        f"{row.count:,}",
        formats.MISSING if row.budget_us is None else formats.duration(row.budget_us),
        beside(row),
    )


def beside(row: MapRow) -> str:
    """p95 as a part of the public budget, where there are enough requests to say."""
    if row.budget_us is None or row.p95_us is None or formats.few(95, row.count):
        return formats.MISSING
    return formats.percent(row.p95_us, row.budget_us)


def stage_map_markdown(rows: Iterable[MapRow], *, title: str, note: str) -> str:
    lines = [f"# {title}", "", note, "", _line(HEAD), _line("---" for _ in HEAD)]
    return "\n".join([*lines, *(_line(cells_of(row)) for row in rows)]) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _trusted(percent: int, value_us: float | None, count: int) -> str:
    text = formats.duration(value_us)
    return f"({text})" if value_us is not None and formats.few(percent, count) else text
