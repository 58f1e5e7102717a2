"""What the live map is made of: parts, each in a layer, and edges between them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from controlplane.core.jobs.lives import Known, Life

# From left to right.
CALLERS, SERVING, WORKING, STORES, OUTSIDE = LAYERS = (
    "callers", "serving", "working", "stores", "outside"
)  # fmt: skip
# Kinds of parts that give no heartbeats themselves.
CLIENTS, PROXY, NODE, POOL, HOST = "clients", "proxy", "node", "pool", "host"
# A second's heartbeats that fail to come, and after which a part counts as gone: so that it is
# shown as gone within five seconds, by a page that asks each second.
LATE_S, GONE_S = 2.5, 4.0
# What others tell of: gateways of nodes each two seconds, workers of what they dial each ten.
TOLD_LATE_S, TOLD_GONE_S = 4.5, 10.0
DIALLED_LATE_S = 30.0
# From this share of a bound on, a part has little room left.
FULL_SHARE = 0.85


class MapHealth(NamedTuple):
    """`health` is ok, warn, bad or off; `state` says it in a word."""

    health: str
    state: str


LIVE, LATE, GONE = MapHealth("ok", "live"), MapHealth("warn", "late"), MapHealth("bad", "gone")
UNKNOWN = MapHealth("off", "not checked")


class MapLevel(NamedTuple):
    """How much of something is used; `bound` is 0 where there is none."""

    name: str
    used: float
    bound: float

    @property
    def share(self) -> float:
        return min(self.used / self.bound, 1.0) if self.bound else 0.0


@dataclass(frozen=True)
class MapPart:
    """One part. `age_s` is the age of what is known, None where it was asked just now."""

    id: str
    layer: str
    kind: str
    name: str
    standing: MapHealth
    version: str = ""
    up_s: float | None = None
    age_s: float | None = None
    levels: list[MapLevel] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    connect_ms: float | None = None
    tls_ms: float | None = None
    problem: str = ""

    @property
    def faded(self) -> bool:
        """Whether what is shown may no longer be so."""
        return self.standing in (LATE, GONE, UNKNOWN)

    @property
    def fullest(self) -> MapLevel | None:
        """Of what has a bound, what is nearest to it."""
        return max(
            (each for each in self.levels if each.bound), key=lambda each: each.share, default=None
        )


@dataclass(frozen=True)
class MapEdge:
    """Who calls whom, and how much goes there: `amount` of `unit`, None where it is not known."""

    source: str
    target: str
    amount: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class LiveMap:
    parts: list[MapPart]
    edges: list[MapEdge]


def part_id(kind: str, name: str) -> str:
    """An id for documents: of letters, figures and dashes."""
    words = "".join(each if each.isalnum() and each.isascii() else "-" for each in name)
    return f"{kind}-{words}" if words else kind


def standing_of(known: Known) -> MapHealth:
    """Of a process by its own heartbeats."""
    if known.age_s > GONE_S:
        return GONE
    if known.age_s > LATE_S:
        return LATE
    return MapHealth("warn", "degraded") if known.life.problem else LIVE


def process_part(known: Known, layer: str) -> MapPart:
    return _part(known, layer, _crowded(standing_of(known), _levels(known.life)))


def dialled_part(known: Known, layer: str) -> MapPart:
    """Of what a worker has dialled."""
    standing = MapHealth("ok", "reachable")
    if known.age_s > DIALLED_LATE_S:
        standing = UNKNOWN
    elif known.life.problem:
        standing = MapHealth("bad", "unreachable")
    return _part(known, layer, standing)


def told_standing(standing: MapHealth, age_s: float) -> MapHealth:
    """Of what others tell of: by the age of their word."""
    if age_s > TOLD_GONE_S:
        return GONE
    return LATE if age_s > TOLD_LATE_S else standing


def with_dialled(part: MapPart, dialled: Known | None) -> MapPart:
    """The part with what dialling it took."""
    if dialled is None:
        return part
    return replace(part, connect_ms=dialled.life.connect_ms, tls_ms=dialled.life.tls_ms)


def levelled(part: MapPart, levels: Iterable[MapLevel]) -> MapPart:
    """The part with these levels, and little room where one is nearly full."""
    told = list(levels)
    return replace(part, levels=told, standing=_crowded(part.standing, told))


def _crowded(standing: MapHealth, levels: list[MapLevel]) -> MapHealth:
    full = any(each.share >= FULL_SHARE for each in levels)
    return MapHealth("warn", "saturated") if full and standing.health == "ok" else standing


def _levels(life: Life) -> list[MapLevel]:
    return [MapLevel(name, *level) for name, level in life.levels.items()]


def _part(known: Known, layer: str, standing: MapHealth, **more: Any) -> MapPart:
    life = known.life
    return MapPart(
        id=part_id(life.kind, life.name),
        layer=layer,
        kind=life.kind,
        name=life.name,
        standing=standing,
        version=life.version,
        up_s=None if life.up_s is None else life.up_s + (0 if standing == GONE else known.age_s),
        age_s=known.age_s,
        levels=_levels(life),
        rates=life.rates,
        connect_ms=life.connect_ms,
        tls_ms=life.tls_ms,
        problem=life.problem,
        **more,
    )
