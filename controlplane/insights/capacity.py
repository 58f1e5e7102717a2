"""What pools were asked for and what their nodes did, measured; and one pool's capacity worksheet
from that, with what a query asks instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from uuid import UUID

import msgspec

from controlplane.catalog.models import Pool
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.fleet.overview import PoolView, fleet_view
from controlplane.fleet.selectors import cold_starts
from controlplane.insights import sampled
from controlplane.insights.sampled import DECODE, PREFILL, TOTAL, merged_by
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.insights.capacity import (
    CapacitySheet,
    Engine,
    Load,
    Use,
    make_sheet,
    slower_by_sequence,
)
from controlplane.telemetry.selectors import UsageSum
from controlplane.telemetry.selectors_usage import usage_by_model
from controlplane.tenants.access import require
from controlplane.tenants.selectors import organization_names

LOCAL = "local"
HUNDRED = 100.0
MS_PER_S = 1_000
COLD_START_SHARE = 0.95
# Name, label, unit, least and most of each figure that may be asked for instead.
FIGURES = (
    ("rate", "Peak rate", "requests/s", 0.0, 1e6),
    ("in", "Tokens in", "per request", 1.0, 1e6),
    ("out", "Tokens out", "per request", 1.0, 1e6),
    ("cached", "Cached share of prompts", "%", 0.0, HUNDRED),
    ("batch", "Batching factor", "requests per step", 1.0, 1e5),
    ("nodes", "Nodes", "ready", 0.0, 1e5),
    ("rise", "Rate growth", "requests/s per minute", 0.0, 1e6),
    ("cold", "Cold start", "seconds", 0.0, 1e5),
)
USED = ("requests", "uncached", "cached", "output")
# JSON has no infinity, which is how full nothing at all is.
INFINITE = 1e9


@dataclass(frozen=True)
class Region:
    """A part of a pool: its share of the requests, and its nodes that are ready."""

    name: str
    share: float
    nodes: int


@dataclass(frozen=True)
class MeasuredLoad:
    """One pool over a range: `requests` that came, `timed` that ran, and of both the peak rate.

    The load is of those that ran; `asked_per_s` counts those, too, that were refused or never got
    to a node. `parts` are of each model's requests: those that it served, and where it is the
    model's pool and none ran, all. `load` and `engine` are None until there was a request to
    measure.
    """

    pool: Pool
    parts: dict[str, float]
    requests: int
    timed: int
    asked_per_s: float
    nodes: int
    load: Load | None
    engine: Engine | None
    regions: list[Region] = field(default_factory=list)

    @property
    def models(self) -> list[str]:
        return sorted(self.parts)


def capacity_read(*, actor: Actor, start: datetime, end: datetime) -> list[MeasuredLoad]:
    """All pools that generate, by name; [start, end) in whole hours. Raises TooMuchToRead."""
    require(actor, Action.FLEET_VIEW)
    organizations = organization_names(actor=actor)
    used = usage_by_model(organizations, start=start, end=end)
    seen = list(organizations)
    times = merged_by("pool", (TOTAL, PREFILL, DECODE), start, end)
    regions = merged_by("region", (TOTAL,), start, end)
    views = fleet_view(actor=actor, now=datetime.now(UTC))
    pools = {model: view.pool.name for view in views for model in view.models}
    parts = sampled.parts_by_pool(pools, start, end)
    found = []
    for view in views:
        if view.pool.task == "generate":
            name, own = view.pool.name, parts.get(view.pool.name, {})
            able = _able(view, own, used)
            measured = _measured(able, own, used, times.get(name, {}), (start, end), seen)
            found.append(replace(measured, regions=_regions(able, regions)))
    return found


def _able(view: PoolView, parts: dict[str, float], used: dict[str, UsageSum]) -> PoolView:
    """With those nodes alone that serve a model which was asked for: others carry no load."""
    asked = {model for model, part in parts.items() if part and model in used}
    able = [node for node in view.nodes if asked & set(node.serves)]
    return replace(view, nodes=able) if able else view


def whole_hours(days: int, now: datetime) -> tuple[datetime, datetime]:
    end = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return end - timedelta(days=days), end


def _measured(
    view: PoolView,
    parts: dict[str, float],
    used: dict[str, UsageSum],
    times: dict[str, Histogram],
    within: tuple[datetime, datetime],
    organizations: list[UUID],
) -> MeasuredLoad:
    whole = _used_in(parts, used)
    timed = times[PREFILL].count if PREFILL in times else 0
    peak = sampled.peaks(parts, *within)
    load = engine = None
    if timed and whole.uncached and whole.output and DECODE in times:
        prompt = whole.uncached + whole.cached
        load = Load(
            per_s=peak.ran,
            tokens_in=prompt / timed,
            tokens_out=whole.output / timed,
            cached_share=whole.cached / prompt,
            rise_per_min=peak.rise_per_min,
        )
        # Those that were refused used nothing: all tokens are of the requests that ran.
        engine = Engine(
            prefill_us=times[PREFILL].total / whole.uncached,
            decode_us=times[DECODE].total / whole.output,
            batch=sampled.batching(parts, *within),
            slots=_per_node(view, "credits"),
            kv_tokens=_per_node(view, "kv_blocks") * _block_tokens(view),
            slower_us=slower_by_sequence(sampled.slowed(parts, organizations, *within)),
            cold_start_s=_cold_start_s(view.pool.name),
        )
    return MeasuredLoad(
        pool=view.pool,
        parts=parts,
        requests=whole.requests,
        timed=timed,
        asked_per_s=peak.asked,
        nodes=sum(node.ready for node in view.nodes),
        load=load,
        engine=engine,
    )


def _used_in(parts: dict[str, float], used: dict[str, UsageSum]) -> UsageSum:
    """What these parts of models' requests had; other figures than of requests and tokens are 0."""
    whole = UsageSum()
    for model, part in parts.items():
        told = used.get(model, UsageSum())
        shares = {name: round(part * getattr(told, name)) for name in USED}
        whole.add(UsageSum(**shares))
    return whole


def _per_node(view: PoolView, fact: str) -> int:
    """Of nodes that are ready, the average; 0 where none has told."""
    if fact == "credits":
        told = [node.total(fact) for node in view.nodes if node.ready]
    else:
        told = [node.latest(fact) or 0 for node in view.nodes if node.ready]
    return sum(told) // len(told) if told else 0


def _cold_start_s(pool: str) -> float:
    """Of its newest starts, what nearly none exceeded; 0 without any."""
    starts = sorted(cold_starts(pool=pool))
    return starts[ceil(COLD_START_SHARE * len(starts)) - 1] / MS_PER_S if starts else 0.0


def _block_tokens(view: PoolView) -> int:
    sizes = [int(node.node.facts.get("block_size", 0)) for node in view.nodes if node.ready]
    return min(sizes, default=0)


def _regions(view: PoolView, times: dict[str, dict[str, Histogram]]) -> list[Region]:
    """Where the pool has nodes; requests are kept by region alone, so its share is the region's."""
    nodes: dict[str, int] = {}
    for node in view.nodes:
        nodes[node.node.region or LOCAL] = nodes.get(node.node.region or LOCAL, 0) + node.ready
    counts = {name: times[name][TOTAL].count if name in times else 0 for name in nodes}
    whole = sum(counts.values())
    return [
        Region(name, counts[name] / whole if whole else 1 / len(nodes), count)
        for name, count in sorted(nodes.items())
    ]


@dataclass(frozen=True)
class Field:
    """One figure that may be asked for instead: its bounds, what was measured, what is asked."""

    name: str
    label: str
    unit: str
    least: float
    most: float
    measured: float
    given: float | None

    @property
    def value(self) -> float:
        return self.measured if self.given is None else self.given


@dataclass(frozen=True)
class Worksheet:
    """The filled-in worksheet; `unread` are fields whose value was no number within bounds.

    `sheet` is None, and there are no fields, where nothing was measured.
    """

    measured: MeasuredLoad
    fields: tuple[Field, ...] = ()
    sheet: CapacitySheet | None = None
    unread: tuple[Field, ...] = ()


def fill_in(measured: MeasuredLoad, query: Mapping[str, str]) -> Worksheet:
    """Reckon; `query` maps names of fields to text."""
    load, engine = measured.load, measured.engine
    if load is None or engine is None:
        return Worksheet(measured)
    fields = _fields(measured, load, engine, query)
    asked = {field.name: field.value for field in fields}
    sheet = make_sheet(
        Load(
            per_s=asked["rate"],
            tokens_in=asked["in"],
            tokens_out=asked["out"],
            cached_share=asked["cached"] / HUNDRED,
            rise_per_min=asked["rise"],
        ),
        msgspec.structs.replace(engine.at(asked["batch"]), cold_start_s=asked["cold"]),
        nodes=int(asked["nodes"]),
        cards_per_node=measured.pool.cards_per_node,
    )
    unread = tuple(field for field in fields if query.get(field.name) and field.given is None)
    return Worksheet(measured, fields, sheet, unread)


def _fields(
    measured: MeasuredLoad, load: Load, engine: Engine, query: Mapping[str, str]
) -> tuple[Field, ...]:
    measured_by = {
        "rate": load.per_s,
        "in": load.tokens_in,
        "out": load.tokens_out,
        "cached": HUNDRED * load.cached_share,
        "batch": engine.batch,
        "nodes": float(measured.nodes),
        "rise": load.rise_per_min,
        "cold": engine.cold_start_s,
    }
    return tuple(
        Field(name, label, unit, least, most, measured_by[name],
              _number(query.get(name, ""), least, most))
        for name, label, unit, least, most in FIGURES
    )  # fmt: skip


def _number(text: str, least: float, most: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if least <= value <= most else None


def sheet_values(sheet: CapacitySheet) -> dict[str, object]:
    """A worksheet as JSON has it."""
    told: dict[str, object] = msgspec.to_builtins(sheet)
    uses = [
        Use(use.resource, min(use.used, INFINITE), min(use.per_s_max, INFINITE))
        for use in sheet.uses
    ]
    per_s_max = min(sheet.per_s_max, INFINITE)
    return {**told, "uses": msgspec.to_builtins(uses), "per_s_max": per_s_max}
