"""Key figures of a range, and the same a period earlier. Pure arithmetic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from controlplane.kernel.histogram import Histogram, merge_all
from controlplane.kernel.measures import ACCEPTED, DRAFTED
from controlplane.kernel.money import usd_short, usd_text
from controlplane.telemetry.selectors import Point, UsageSum
from frontend.shared import formats
from frontend.shared.formats import Cell, count_cell, percentile_cells
from frontend.shared.panels import TablePanel
from frontend.shared.plots.queue import Depth
from frontend.shared.stages import OVERHEAD, STAGE_NAMES, UNATTRIBUTED

MICRO = 1_000_000
HUNDRED = 100.0
P95 = 0.95
# The organization's own series, and those of everyone, of which a range's sums are told.
OWN = ("total", "ttft", "inter_token")
SUMMED = (*STAGE_NAMES, UNATTRIBUTED, OVERHEAD, DRAFTED, ACCEPTED)

Merged = Mapping[str, Histogram]


class Waits(NamedTuple):
    """The viewer's own requests that wait in gateways now, and the longest wait so far."""

    waiting: int = 0
    oldest_s: float = 0.0


NOBODY = Waits()


@dataclass(frozen=True)
class Tile:
    """One headline figure, or several side by side; `width` is its class: wide, widest or none.

    `value` is the number to compare with another period's, in any unit; `before` tells that.
    """

    label: str
    cells: list[Cell]
    more: Cell
    link: str = ""
    width: str = ""
    value: float | None = None
    before: Cell | None = None

    @property
    def shown(self) -> list[Cell]:
        return [*self.cells, self.more, *([self.before] if self.before else [])]


@dataclass(frozen=True)
class Sums:
    """All that was recorded in a period of so many seconds."""

    everyone: Merged
    own: Merged
    usage: UsageSum
    seconds: float

    @property
    def prompt(self) -> int:
        return self.usage.uncached + self.usage.cached


def tiles_panel(tiles: Iterable[Tile]) -> TablePanel:
    """The tiles as a table, for their CSV."""
    rows = [
        [tile.label, cell.label, cell.text, cell.title]
        for tile in tiles
        for cell in (*tile.cells, tile.more)
    ]
    return TablePanel("tiles", "Key figures", ["Figure", "Part", "Value", "Exactly"], rows)


def sums_of(points: Iterable[Point], seconds: float) -> Sums:
    """The points of a period added up: histograms are merged, never averaged."""
    kept = list(points)
    usage = UsageSum()
    for point in kept:
        usage.add(point.usage)
    return Sums(
        everyone=merged((point.everyone for point in kept), SUMMED),
        own=merged((point.own for point in kept), OWN),
        usage=usage,
        seconds=max(1.0, seconds),
    )


def merged(parts: Iterable[Merged], measures: Iterable[str]) -> dict[str, Histogram]:
    """One histogram of each of these measures that was recorded."""
    kept = list(parts)
    lists = {measure: [part[measure] for part in kept if measure in part] for measure in measures}
    return {measure: merge_all(found) for measure, found in lists.items() if found}


def compared(tiles: list[Tile], before: list[Tile]) -> list[Tile]:
    """The tiles of a period, each with what the same tile told of the one before."""
    earlier = {tile.label: tile for tile in before}
    return [
        replace(tile, before=_before(tile, earlier[tile.label])) if tile.label in earlier else tile
        for tile in tiles
    ]


def _before(tile: Tile, earlier: Tile) -> Cell:
    key = f"{tile.cells[0].key}.before"
    if earlier.value is None:
        return Cell(key, "previous period: no data")
    texts = " · ".join(filter(None, (f"{one.label} {one.text}".strip() for one in earlier.cells)))
    if not earlier.value or tile.value is None:
        return Cell(key, f"before: {texts}")
    change = HUNDRED * (tile.value - earlier.value) / earlier.value
    return Cell(key, f"before: {texts} ({change:+.0f} %)", f"{tile.label}, as a rate or share")


def sum_tiles(sums: Sums) -> list[Tile]:
    own, everyone, usage = sums.own, sums.everyone, sums.usage
    return [
        *_request_tiles(usage, sums.seconds),
        _percentile_tile("Total time", "total", own, ""),
        _tokens_tile(usage, sums.seconds),
        _percentile_tile("Time to first token", "ttft", own, ""),
        _drafts_tile(everyone),
        _percentile_tile("Time between tokens", "inter_token", own, ""),
        _percentile_tile("Overhead", OVERHEAD, everyone, "total less inference; all tenants; "),
        cache_tile(usage),
    ]


def _request_tiles(usage: UsageSum, seconds: float) -> list[Tile]:
    requests, errors, gone = usage.requests, usage.errors, usage.gone
    return [
        Tile(
            "Requests",
            [count_cell("requests", requests)],
            Cell("requests.rate", formats.rate_words(requests / seconds)),
            "requests",
            value=requests / seconds if requests else None,
        ),
        Tile(
            "Errors",
            [Cell("errors", formats.percent(errors, requests))],
            Cell("errors.count", f"{errors:,} answered 4xx or 5xx"),
            "failed",
            value=errors / requests if requests else None,
        ),
        Tile(
            "Cancelled by client",
            [Cell("gone", formats.percent(gone, requests))],
            Cell("gone.count", f"{gone:,} disconnected before the end (499)"),
            "499",
            value=gone / requests if requests else None,
        ),
    ]


def _percentile_tile(label: str, measure: str, merged_: Merged, what: str) -> Tile:
    found = merged_.get(measure)
    count = found.count if found else 0
    return Tile(
        label,
        percentile_cells(measure, found, unit=True),
        Cell(f"{measure}.n", f"{what}n = {count:,}"),
        width="widest",
        value=found.percentile(P95) if found else None,
    )


def _tokens_tile(usage: UsageSum, seconds: float) -> Tile:
    prompt = usage.uncached + usage.cached
    cells = [
        Cell("tokens", formats.rate(usage.output / seconds), label="out"),
        Cell("tokens.in", formats.rate(prompt / seconds), label="in"),
    ]
    what = Cell("tokens.what", "of all requests, averaged over the range")
    return Tile("Tokens/s", cells, what, width="wide", value=usage.output / seconds or None)


def cache_tile(usage: UsageSum) -> Tile:
    """What engines delivered, beside what routing captured of all that the fleet had."""
    prompt = usage.uncached + usage.cached
    cells = [
        Cell(key, formats.percent(tokens, prompt), f"{tokens:,} tokens", label=label)
        for key, tokens, label in (
            ("cache", usage.cached, "delivered"),
            ("cache.captured", usage.captured, "captured"),
            ("cache.available", usage.available, "available"),
        )
    ]
    counts = f"{formats.count_short(usage.cached)} of {formats.count_short(prompt)}"
    return Tile(
        "Cache hit rate",
        cells,
        Cell(
            "cache.tokens",
            f"{counts} prompt tokens delivered by engines, of what routing"
            " captured, of what the fleet had",
        ),
        width="widest",
        value=usage.cached / prompt if prompt else None,
    )


def _drafts_tile(everyone: Merged) -> Tile:
    drafted, accepted = (
        everyone[name].total if name in everyone else 0 for name in (DRAFTED, ACCEPTED)
    )
    words, exact = "no speculative tokens", ""
    if drafted:
        exact = f"{accepted:,} of {drafted:,}"
        counts = f"{formats.count_short(accepted)} of {formats.count_short(drafted)}"
        words = f"{counts} speculative tokens, all tenants"
    return Tile(
        "Speculative tokens accepted",
        [Cell("drafts", formats.percent(accepted, drafted))],
        Cell("drafts.tokens", words, exact),
        width="wide",
        value=accepted / drafted if drafted else None,
    )


def queue_tile(depth: dict[datetime, Depth], own: Waits) -> Tile:
    most = max((each.most for each in depth.values()), default=0)
    now = formats.rate(round(depth[max(depth)].mean, 3)) if depth else formats.MISSING
    cells = [Cell("depth", now, label="now"), count_cell("depth.most", most, "maximum")]
    words = "requests waiting, all tenants; none of yours in a gateway now"
    if own.waiting:
        longest = formats.duration(own.oldest_s * MICRO)
        words = f"requests waiting, all tenants; {own.waiting:,} of yours now, up to {longest}"
    what = Cell("depth.what", words)
    return Tile("Queue depth", cells, what, width="wide")


def spend_tile(nano: int | None) -> Tile:
    cell = Cell("spend", formats.MISSING, "too many ledger lines to sum in time")
    if nano is not None:
        cell = Cell("spend", usd_short(nano), f"${usd_text(nano)}")
    return Tile("Spend", [cell], Cell("spend.source", "charged on the ledger"), width="wide")
