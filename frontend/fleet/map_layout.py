"""The live map as a drawing: where each part and edge is, and what both say. Units are of the
drawing's own box, about a pixel on a desk.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import log10
from textwrap import wrap

from controlplane.composed.livemap.parts import LAYERS, STORES, LiveMap, MapEdge, MapLevel, MapPart
from frontend.shared import formats

WIDTH, TOP = 1_180, 34
BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT = 166, 48, 62
COLUMN = (WIDTH - BOX_WIDTH) / (len(LAYERS) - 1)
BEND = 60
# What is shown of a part on demand has its place below all parts.
DETAIL_LINES, DETAIL_CHARS, LINE_HEIGHT, DETAIL_PADDING = 4, 190, 16, 10
DETAIL_HEIGHT = DETAIL_LINES * LINE_HEIGHT + 2 * DETAIL_PADDING
DETAIL_SEPARATOR = " · "
NAME_CHARS, STATE_CHARS = 21, 26
LINE_MIN, LINE_MAX = 1.0, 5.0
BYTES = ", bytes"
MINUTE_S = 60
COLUMN_HEADS = ("Callers", "Processes", "Nodes, hosts", "Stores", "Outside")
HEADS = dict(zip(LAYERS, COLUMN_HEADS, strict=True))
KINDS = {
    "all": "Gateway, web", "gateway": "Gateway", "web": "Web", "worker": "Worker",
    "beat": "Beat", "clients": "Clients", "proxy": "Proxy", "node": "Node", "pool": "Pool",
    "host": "Host", "postgres": "PostgreSQL", "redis": "Redis", "provider": "Provider",
    "identity": "Identity provider", "collector": "Collector",
    "webhook": "Webhook",
}  # fmt: skip


@dataclass(frozen=True)
class DrawnPart:
    """A part at its place; `traffic` are the words of edges that begin there."""

    part: MapPart
    x: float
    y: float
    traffic: list[str]

    @property
    def kind(self) -> str:
        return KINDS[self.part.kind]

    @property
    def title(self) -> str:
        return _short(self.part.name or self.kind, NAME_CHARS)

    @property
    def subtitle(self) -> str:
        state = self.part.standing.state
        return _short(f"{self.kind} · {state}" if self.part.name else state, STATE_CHARS)

    @property
    def label(self) -> str:
        """The whole name, as links and rows say it."""
        return f"{self.kind} {self.part.name}".strip()

    @property
    def fill(self) -> float:
        """The width of the bar of what is nearest to its bound."""
        fullest = self.part.fullest
        return round((BOX_WIDTH - 16) * fullest.share, 1) if fullest else 0.0

    @property
    def up(self) -> str:
        return lasted(self.part.up_s)

    @property
    def heard(self) -> str:
        """How long ago it was heard of: at this moment, where it was asked itself."""
        if self.part.age_s is None:
            return "now" if self.part.layer == STORES else formats.MISSING
        return f"{self.part.age_s:.1f} s" if self.part.age_s < MINUTE_S else lasted(self.part.age_s)

    @property
    def levels(self) -> list[str]:
        return [_level(each) for each in self.part.levels]

    @property
    def rates(self) -> list[str]:
        return [f"{formats.rate(rate)} {name}/s" for name, rate in self.part.rates.items() if rate]

    @property
    def flows(self) -> list[str]:
        return [*self.rates, *self.traffic]

    @property
    def dialled(self) -> str:
        """How long it took to connect, and to agree on TLS."""
        told = {"connect": self.part.connect_ms, "TLS": self.part.tls_ms}
        known = [f"{name} {ms:.1f} ms" for name, ms in told.items() if ms is not None]
        return ", ".join(known) or formats.MISSING

    @property
    def details(self) -> list[tuple[int, str]]:
        """Lines of what is shown on demand, as many as there is room for, each with its place."""
        part = self.part
        told = [
            f"{self.label}: {part.standing.state}",
            part.problem,
            f"up {self.up}",
            f"last heartbeat {self.heard} ago" if part.age_s is not None else "",
            f"version {part.version}" if part.version else "",
            self.dialled if part.connect_ms is not None else "",
            *self.levels,
            *self.flows,
        ]
        text = DETAIL_SEPARATOR.join(each for each in told if each)
        lines = wrap(text, DETAIL_CHARS, max_lines=DETAIL_LINES, placeholder=" …")
        return [(LINE_HEIGHT * (n + 1) + 4, line) for n, line in enumerate(lines)]


@dataclass(frozen=True)
class DrawnEdge:
    """A line, how thick, and its words at its middle."""

    path: str
    width: float
    x: float
    y: float
    words: str
    dead: bool


@dataclass(frozen=True)
class Drawing:
    """All of it, with the heads of its columns, its height, and the top of what is on demand."""

    parts: list[DrawnPart]
    edges: list[DrawnEdge]
    heads: list[tuple[float, str]]
    height: float
    detail_top: float

    @property
    def hint_y(self) -> float:
        """Where it says how more is shown."""
        return self.detail_top + LINE_HEIGHT + DETAIL_PADDING


def drawing_of(found: LiveMap) -> Drawing:
    """Parts in columns from left to right, each column in the middle of the height."""
    columns: dict[str, list[MapPart]] = defaultdict(list)
    for part in found.parts:
        columns[part.layer].append(part)
    rows_most = max(map(len, columns.values()))
    names = {part.id: part for part in found.parts}
    traffic = _traffic(found.edges, names)
    drawn: dict[str, DrawnPart] = {}
    for place, layer in enumerate(LAYERS):
        first = TOP + (rows_most - len(columns[layer])) * ROW_HEIGHT / 2
        for row, part in enumerate(columns[layer]):
            y = first + row * ROW_HEIGHT
            drawn[part.id] = DrawnPart(part, round(place * COLUMN, 1), y, traffic[part.id])
    edges = [_edge(each, drawn[each.source], drawn[each.target]) for each in found.edges]
    heads = [
        (round(place * COLUMN + BOX_WIDTH / 2, 1), HEADS[layer])
        for place, layer in enumerate(LAYERS)
    ]
    bottom = TOP + rows_most * ROW_HEIGHT
    return Drawing(list(drawn.values()), edges, heads, bottom + DETAIL_HEIGHT, bottom)


def lasted(seconds: float | None) -> str:
    """The two largest units of a time."""
    if seconds is None:
        return formats.MISSING
    minutes, rest = divmod(int(seconds), MINUTE_S)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days:,} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _traffic(edges: Iterable[MapEdge], names: dict[str, MapPart]) -> dict[str, list[str]]:
    told: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        target = names[edge.target]
        words = f"to {target.name or KINDS[target.kind]}"
        told[edge.source].append(f"{words}: {_amount(edge)}" if edge.amount else words)
    return told


def _edge(edge: MapEdge, source: DrawnPart, target: DrawnPart) -> DrawnEdge:
    begin = source.x + BOX_WIDTH, source.y + BOX_HEIGHT / 2
    end_y = target.y + BOX_HEIGHT / 2
    end_x, bend = target.x, -BEND
    if target.x <= source.x:  # Within a column, around its right side.
        end_x, bend = target.x + BOX_WIDTH, BEND
    width = LINE_MIN + 1.5 * log10(1 + (edge.amount or 0))
    path = (
        f"M{begin[0]:g},{begin[1]:g}C{begin[0] + BEND:g},{begin[1]:g} "
        f"{end_x + bend:g},{end_y:g} {end_x:g},{end_y:g}"
    )
    return DrawnEdge(
        path=path,
        width=round(min(width, LINE_MAX), 1),
        x=round((begin[0] + end_x) / 2 + (0.75 * BEND if bend > 0 else 0), 1),
        y=round((begin[1] + end_y) / 2 - 3, 1),
        # Between columns that are no neighbours there are other parts.
        words=_amount(edge) if edge.amount and end_x - begin[0] < COLUMN else "",
        dead=source.part.faded or target.part.faded or target.part.standing.health == "bad",
    )


def _amount(edge: MapEdge) -> str:
    amount = edge.amount or 0
    whole = float(amount).is_integer()
    return (
        f"{amount:,.0f} {edge.unit}" if whole else f"{formats.significant(amount, 2)} {edge.unit}"
    )


def _level(level: MapLevel) -> str:
    if level.name.endswith(BYTES):
        return f"{level.name.removesuffix(BYTES)} {formats.percent(level.used, level.bound)}"
    bound = f" / {level.bound:,.0f}" if level.bound else ""
    return f"{level.used:,.0f}{bound} {level.name}"


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
