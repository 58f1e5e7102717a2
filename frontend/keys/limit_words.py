"""Limits as pages name them: a word for each dimension, and rows of what binds a key."""

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.composed.limits.selectors import LEVELS, MONEY, OUTPUT, Effective
from controlplane.kernel.money import usd_short
from frontend.shared.formats import MISSING, count

LIMIT_WORDS = {
    "requests_per_min": "Requests per minute",
    "tokens_per_min": "Tokens per minute",
    "requests_per_day": "Requests per day",
    "concurrency": "Concurrent requests",
}
WORDS = {**LIMIT_WORDS, MONEY: "Left of the budget", OUTPUT: "Tokens in an answer"}


@dataclass(frozen=True)
class EffectiveRow:
    """One dimension as the table shows it; `cells` in the order of its columns."""

    words: str
    cells: list[tuple[str, str]]
    binds: str


def effective_rows(found: Iterable[Effective]) -> list[EffectiveRow]:
    """Rows for the page; the model's own bound is told in the last column."""
    return [
        EffectiveRow(
            WORDS[each.dimension],
            [(level.title(), _shown(each, level)) for level in LEVELS],
            "" if each.binds is None else _binds(each),
        )
        for each in found
    ]


def _shown(each: Effective, level: str) -> str:
    value = each.levels.get(level)
    if value is None:
        return MISSING
    return usd_short(value) if each.dimension == MONEY else count(value)


def _binds(each: Effective) -> str:
    return f"model: {count(each.limit)}" if each.binds == "model" else str(each.binds)
