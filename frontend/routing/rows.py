"""Figures of a canary and of a dry run, ready to be read."""

from collections.abc import Callable
from typing import NamedTuple

from controlplane.core.versions.models import State
from controlplane.kernel.money import usd_short
from controlplane.routing.canary import CanaryComparison, CanaryFigure, CanaryVerdict
from controlplane.routing.dryrun import Move, MoveTally
from controlplane.routing.selectors_dryrun import DryRun, MovedGroup
from frontend.shared.formats import MISSING, count, duration, percent, significant

TONES = {
    CanaryVerdict.BETTER: "ok",
    CanaryVerdict.SAME: "off",
    CanaryVerdict.WORSE: "bad",
    CanaryVerdict.OTHER: "warn",
    CanaryVerdict.EARLY: "off",
}
STATE_TONES = {State.PUBLISHED: "ok", State.CANARY: "warn", State.DRAFT: "off"}
WORDS = {CanaryVerdict.OTHER: "differs"}
FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "errors": ("Server errors", lambda value: percent(value, 1)),
    "ttft_p50": ("First token, p50", duration),
    "ttft_p95": ("First token, p95", duration),
    "cost": ("Cost of a request", lambda value: usd_short(round(value))),
    "output_tokens": ("Tokens of an answer", significant),
}


class FigureRow(NamedTuple):
    label: str
    control: str
    trial: str
    counts: str
    tone: str
    verdict: str


class TallyRow(NamedTuple):
    """What happens to the requests of one tenant, project, region or move."""

    name: str
    title: str
    requests: str
    moved: str
    share: str
    treated: str
    cost: str
    cold: str
    lost: str


def state_tone(state: str) -> str:
    return STATE_TONES.get(State(state), "off")


def verdict_words(verdict: CanaryVerdict) -> tuple[str, str]:
    return TONES[verdict], WORDS.get(verdict, verdict.value)


def figure_rows(comparison: CanaryComparison) -> list[FigureRow]:
    return [_figure_row(finding) for finding in comparison.findings]


def group_rows(groups: list[MovedGroup]) -> list[TallyRow]:
    """Tenants, projects or regions by how much of them would change."""
    return [_tally_row(each.name, each.id, each.tally) for each in groups]


def move_rows(found: DryRun) -> list[TallyRow]:
    return [_tally_row(_move_words(move), "", tally) for move, tally in found.moves]


def total_row(found: DryRun) -> TallyRow:
    return _tally_row("All", "", found.outcome.total)


def _figure_row(finding: CanaryFigure) -> FigureRow:
    label, show = FIGURES[finding.figure]
    control, trial = (
        MISSING if value is None else show(value) for value in (finding.control, finding.trial)
    )
    counts = " / ".join(map(count, finding.counts))
    told = verdict_words(finding.verdict) if any(finding.counts) else ("off", "no values yet")
    return FigureRow(label, control, trial, counts, *told)


def _move_words(move: Move) -> str:
    before, after = move
    return f"{before.model} in {before.pool or '?'} → {after.model} in {after.pool or '?'}"


def _tally_row(name: str, title: str, tally: MoveTally) -> TallyRow:
    return TallyRow(
        name=name,
        title=title or name,
        requests=count(tally.requests),
        moved=count(tally.moved),
        share=percent(tally.moved, tally.requests),
        treated=count(tally.treated),
        cost=_change(tally.after_nano - tally.before_nano),
        cold=_change(tally.cold_nano - tally.before_nano),
        lost=count(tally.cached_lost),
    )


def _change(nano: int) -> str:
    sign = "+" if nano > 0 else "−" if nano < 0 else ""
    return f"{sign}{usd_short(abs(nano))}"
