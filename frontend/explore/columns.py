"""The columns of Explore: one figure of a group each, as pages and files write it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from controlplane.kernel.money import usd_short, usd_text
from controlplane.telemetry.exploration import ExploredGroup
from frontend.explore.question import COUNTS_ALONE, ExploreQuestion
from frontend.shared import formats

Figure = Callable[[ExploredGroup], float | None]


class Column(NamedTuple):
    """One figure of a group: its head, the figure, and it as pages and files write it.

    `order` is what an address calls the order of rows by it.
    """

    order: str
    head: str
    figure: Figure
    text: Callable[[Any], str]
    exact: Callable[[Any], str]
    # The percentile that it is, of which few values say little.
    percentile: int = 0

    @property
    def rising(self) -> bool:
        """Whether the least are what one looks for."""
        return self.order == "hits"


def _share(part: str, whole: Callable[[ExploredGroup], int]) -> Figure:
    def figure(group: ExploredGroup) -> float | None:
        of = whole(group)
        return getattr(group.usage, part) / of if of else None

    return figure


def _count(name: str) -> Figure:
    return lambda group: getattr(group.usage, name)


def _requests(group: ExploredGroup) -> int:
    return group.usage.requests


def _times(group: ExploredGroup) -> int:
    return group.times.count


def _prompt(group: ExploredGroup) -> int:
    return group.usage.uncached + group.usage.cached


def _percentile(percent: int) -> Figure:
    return lambda group: group.times.percentile(percent / 100)


def _percent(value: float | None) -> str:
    return formats.MISSING if value is None else formats.percent(value, 1)


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value / formats.US_PER_MS:.6g}"


COUNTED = (
    Column("requests", "Requests", _requests, formats.count, str),
    Column("errors", "Errors", _count("errors"), formats.count, str),
    Column("rate", "Error rate", _share("errors", _requests), _percent, _plain),
    Column("in", "Tokens in", _prompt, formats.count, str),
    Column("cached", "Cached", _count("cached"), formats.count, str),
    Column("hits", "Hit rate", _share("cached", _prompt), _percent, _plain),
    Column("out", "Tokens out", _count("output"), formats.count, str),
    Column("cost", "Cost, USD", _count("nano"), usd_short, usd_text),
)
TIMED = (
    *(
        Column(
            f"p{percent}",
            f"p{percent}, ms",
            _percentile(percent),
            formats.milliseconds,
            _ms,
            percent,
        )
        for percent in formats.PERCENTILES
    ),
    Column("n", "n", _times, formats.count, str),
)


def columns_of(question: ExploreQuestion) -> tuple[Column, ...]:
    return COUNTED if question.measure == COUNTS_ALONE else (*COUNTED, *TIMED)
