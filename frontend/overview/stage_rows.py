"""Rows of the stage table: percentiles beside budgets, and what no stage accounts for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.spans import STAGES
from frontend.shared import formats
from frontend.shared.cells import Cell, count_cell, percentile_cells
from frontend.shared.stages import LABELS, UNATTRIBUTED

HUNDRED = 100.0
# The drawing shows this many budgets, so that a bar over its budget is seen to pass the mark.
BUDGETS_SHOWN = 1.5

Merged = Mapping[str, Histogram]


class Owner(NamedTuple):
    """Who answers for a stage, its budget at p95 in microseconds, and where its runbook is."""

    team: str = ""
    email: str = ""
    budget_us: int = 0
    runbook: str = ""


NOBODY = Owner()


@dataclass(frozen=True)
class StageRow:
    """One stage: its percentiles beside its budget; number 0 is time that lies in none."""

    number: int
    name: str
    label: str
    budget_ms: str
    owner: Owner
    cells: list[Cell]
    before: Cell
    count: Cell
    verdict: Cell
    bar_key: str
    bar_width: float
    over: bool


def stage_rows(everyone: Merged, before: Merged, owners: Mapping[str, Owner]) -> list[StageRow]:
    rows = [
        _stage(number, owners[name], everyone, before)
        for number, (name, _, _) in enumerate(STAGES, start=1)
    ]
    return [*rows, _unattributed(everyone, before)]


def _stage(number: int, owner: Owner, everyone: Merged, before: Merged) -> StageRow:
    name, budget_us = STAGES[number - 1][0], owner.budget_us
    found = everyone.get(name)
    slow = found.percentile(0.95) if found else None
    # A percentile of too few values is no ground for a verdict.
    judged = slow is not None and found is not None and not formats.few(95, found.count)
    over = judged and slow is not None and slow > budget_us
    share = 0.0 if slow is None else HUNDRED * slow / (budget_us * BUDGETS_SHOWN)
    tone, words = ("status bad", "over") if over else ("status ok", "within")
    return StageRow(
        number=number,
        name=name,
        label=LABELS[name],
        budget_ms=f"{budget_us / formats.US_PER_MS:g}",
        owner=owner,
        cells=percentile_cells(name, found, unit=False),
        before=_before(name, before),
        count=count_cell(f"{name}.n", found.count if found else 0),
        verdict=Cell(
            f"{name}.verdict",
            words if judged else formats.MISSING,
            tone=tone if judged else "faint",
        ),
        bar_key=f"{name}.bar",
        bar_width=round(min(share, HUNDRED), 2),
        over=over,
    )


def _unattributed(everyone: Merged, before: Merged) -> StageRow:
    found = everyone.get(UNATTRIBUTED)
    return StageRow(
        number=0,
        name=UNATTRIBUTED,
        label="Unattributed",
        budget_ms=formats.MISSING,
        owner=NOBODY,
        cells=percentile_cells(UNATTRIBUTED, found, unit=False),
        before=_before(UNATTRIBUTED, before),
        count=count_cell(f"{UNATTRIBUTED}.n", found.count if found else 0),
        verdict=Cell(f"{UNATTRIBUTED}.verdict", formats.MISSING, tone="faint"),
        bar_key=f"{UNATTRIBUTED}.bar",
        bar_width=0.0,
        over=False,
    )


def _before(name: str, before: Merged) -> Cell:
    """The same p95 a period earlier."""
    cell = percentile_cells(name, before.get(name), unit=False)[1]
    return Cell(f"{name}.before", cell.text, cell.title, cell.tone)
