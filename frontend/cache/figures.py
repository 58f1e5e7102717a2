"""The Cache page's figures: what reuse delivered, what it saved, and what was missed and why, added
up over a sample of requests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from controlplane.kernel.money import usd_short, usd_text
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from controlplane.kernel.receipt import Miss
from controlplane.kernel.spans import INDEX, unpack_spans
from controlplane.telemetry.selectors import Point, UsageSum
from controlplane.telemetry.selectors_requests import Sampled
from frontend.shared import formats
from frontend.shared.asked import Asked, Choice
from frontend.shared.formats import Cell
from frontend.shared.panels import TablePanel
from frontend.shared.plots.figure import Axis, Figure, Line, Panel, Plot
from frontend.shared.plots.stages import cache_figure
from frontend.shared.tiles import Tile, cache_tile, compared, sums_of, tiles_panel
from frontend.shared.wordings import WORDINGS

_PREFILL = INDEX["s5_infer.prefill"]
BY_WORDS = {"route": "Route", "model": "Model", "project": "Project", "key": "Key"}
# For staff alone, and of all tenants.
ORGANIZATION = "organization"
BY_WORDS_STAFF = {**BY_WORDS, ORGANIZATION: "Organization"}
GROUPS_MAX = 50
MICRO = 1_000_000

Usages = Mapping[str, UsageSum]


class _OfMiss(msgspec.Struct):
    """All that is read of a receipt here: a sample has thousands of them."""

    miss: Miss | None = None


_DECODER = msgspec.json.Decoder(_OfMiss)


@dataclass
class Cause:
    """One reason: how many of the sample's requests, and how many of their tokens."""

    name: str
    requests: int = 0
    missed: int = 0
    avoidable: int = 0
    nano: int = 0

    @property
    def words(self) -> tuple[str, str]:
        return WORDINGS.causes[self.name]


@dataclass(frozen=True)
class Misses:
    """Causes, by cost. `prefill_us` is what one uncached token took; None if unknown."""

    sampled: int
    causes: list[Cause]
    prefill_us: float | None


def count_misses(rows: Iterable[Sampled]) -> Misses:
    """Add a sample up; receipts that cannot be read are left out."""
    causes: dict[str, Cause] = {}
    sampled = took_us = tokens = 0
    for row in rows:
        sampled += 1
        miss = _miss(row.receipt)
        if miss is not None:
            cause = causes.setdefault(miss.cause, Cause(miss.cause))
            cause.requests += 1
            cause.missed += miss.missed_tokens
            cause.avoidable += miss.avoidable_tokens
            cause.nano += miss.cost_nano
        uncached, prefill = row.prompt_tokens - row.cached_tokens, _prefill_us(row.spans)
        if uncached > 0 and prefill > 0:
            took_us += prefill
            tokens += uncached
    return Misses(
        sampled=sampled,
        causes=sorted(causes.values(), key=lambda one: (-one.avoidable, -one.missed, one.name)),
        prefill_us=took_us / tokens if tokens else None,
    )


def _miss(receipt: bytes) -> Miss | None:
    try:
        miss = _DECODER.decode(receipt).miss if receipt else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return miss if miss is not None and miss.cause in WORDINGS.causes else None


def _prefill_us(spans: bytes) -> int:
    """Zero where it did not run, or an older row has fewer spans."""
    times = unpack_spans(spans)
    start, length = times[_PREFILL] if len(times) > _PREFILL else (-1, 0)
    return length if start >= 0 else 0


def by_choices(words: Mapping[str, str]) -> tuple[Choice, ...]:
    return (Choice("by", "way to divide the cache", tuple(words)),)


@dataclass(frozen=True)
class Read:
    """What was read. `names` are those of the groups' ids, `prices` those in force by model."""

    points: dict[datetime, Point]
    before: dict[datetime, Point] | None
    by: Usages
    by_model: Usages
    prices: Mapping[str, Price]
    names: Mapping[str, str]
    misses: Misses | None


@dataclass(frozen=True)
class Cache:
    empty: bool
    tiles: list[Tile]
    figures: list[Plot]
    groups: TablePanel
    causes: TablePanel
    sampled: int | None

    @property
    def panels(self) -> list[Panel]:
        return [tiles_panel(self.tiles), self.groups, self.causes, *self.figures]


def saved_nano(usage: UsageSum, price: Price) -> int:
    """What the cached tokens would have cost more, had they been computed."""
    fresh = charge_nano(price, TokenCounts(uncached=usage.cached, cached=0, output=0))
    return fresh - charge_nano(price, TokenCounts(uncached=0, cached=usage.cached, output=0))


def make_cache(read: Read, asked: Asked) -> Cache:
    sums = sums_of(read.points.values(), asked.within.seconds)
    tiles = [cache_tile(sums.usage), *_saved_tiles(read, sums.usage)]
    if read.before is not None:
        earlier = sums_of(read.before.values(), asked.within.shift.total_seconds())
        tiles = compared(tiles, [cache_tile(earlier.usage)])
    return Cache(
        empty=not sums.prompt,
        tiles=tiles,
        figures=[
            cache_figure(read.points, read.before or {}, asked.within.steps),
            _tokens_figure(read.points, asked.within.steps),
        ],
        groups=_groups_panel(read, asked.chosen["by"]),
        causes=_causes_panel(read.misses),
        sampled=read.misses.sampled if read.misses else None,
    )


def _saved_tiles(read: Read, usage: UsageSum) -> list[Tile]:
    priced = {name: found for name, found in read.by_model.items() if name in read.prices}
    nano = sum(saved_nano(found, read.prices[name]) for name, found in priced.items())
    money = Cell("saved", usd_short(nano), f"${usd_text(nano)}") if priced else Cell("saved", "–")
    each = read.misses.prefill_us if read.misses else None
    seconds = Cell("seconds", formats.duration(each and each * usage.cached))
    how = "no prefill measurement in this range"
    if each:
        how = f"of prefill, at the {formats.rate(MICRO / each)} tokens/s of the newest requests"
    return [
        Tile("Money saved", [money], Cell("saved.how", "cached tokens at current prices"),
             width="wide"),
        Tile("Time saved", [seconds], Cell("seconds.how", how), width="wide"),
    ]  # fmt: skip


def _tokens_figure(points: Mapping[datetime, Point], times: list[datetime]) -> Figure:
    def tokens(name: str) -> list[float | None]:
        return [getattr(points[at].usage, name) if at in points else None for at in times]

    lines = [
        Line("from the cache", tokens("cached"), "--stage-2"),
        Line("computed", tokens("uncached"), "--stage-5"),
    ]
    cached = sum(point.usage.cached for point in points.values())
    every = cached + sum(point.usage.uncached for point in points.values())
    finding = (
        f"{formats.count_short(cached)} of {formats.count_short(every)} prompt tokens were not"
        " computed again."
        if every
        else "No prompts in this range."
    )
    title = "Prompt tokens, each step"
    return Figure("tokens", title, finding, times, lines, Axis("tokens"), stacked=True)


def _groups_panel(read: Read, dimension: str) -> TablePanel:
    words = BY_WORDS_STAFF[dimension]
    head = [words, "Requests", "Prompt tokens", "From the cache", "Delivered, %", "Captured, %",
            "Available, %"]  # fmt: skip
    priced = dimension == "model"
    ordered = sorted(read.by.items(), key=lambda pair: -_prompt(pair[1]))[:GROUPS_MAX]
    body = []
    for value, usage in ordered:
        shares = (
            _share(usage, tokens) for tokens in (usage.cached, usage.captured, usage.available)
        )
        row = [read.names.get(value, value) or "not known", str(usage.requests),
               str(_prompt(usage)), str(usage.cached), *shares]  # fmt: skip
        if priced:
            price = read.prices.get(value)
            row.append(usd_text(saved_nano(usage, price)) if price else formats.MISSING)
        body.append(row)
    if priced:
        head.append("Saved, USD")
    title = f"Hit rate by {words.lower()}"
    if dimension == ORGANIZATION:
        title += ", all tenants"
    return TablePanel("by", title, head, body)


def _prompt(usage: UsageSum) -> int:
    return usage.uncached + usage.cached


def _share(usage: UsageSum, tokens: int) -> str:
    prompt = _prompt(usage)
    return formats.significant(100 * tokens / prompt) if prompt else formats.MISSING


def _causes_panel(misses: Misses | None) -> TablePanel:
    head = ["What happened", "Requests", "Missed tokens", "Avoidable tokens",
            "Potential savings, USD", "What to do"]  # fmt: skip
    body = [
        [cause.words[0], str(cause.requests), str(cause.missed), str(cause.avoidable),
         usd_text(cause.nano), cause.words[1]]
        for cause in (misses.causes if misses else [])
    ]  # fmt: skip
    return TablePanel("causes", "Cache misses by cause", head, body, words=head[-1])
