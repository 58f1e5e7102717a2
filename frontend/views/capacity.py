"""The capacity worksheet: measured load and nodes of a pool, what-if fields in the URL; staff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from controlplane.core.permissions import Action
from controlplane.insights.capacity import Measured, Region, capacity_read, whole_hours
from controlplane.kernel.capacity import RESOURCES, Engine, Load, Sheet, Use, make_sheet
from controlplane.telemetry.reading import TooMuchToRead
from frontend import formats
from frontend.access import Viewer, page
from frontend.panels import TablePanel, panel_csv
from frontend.views.insights import DAYS, days_from

NANO_PER_MICRO = 1_000
HUNDRED = 100.0
FULL, NEARLY = 1.0, 0.8
CSV_HEAD = ["pool", "quantity", "value"]


@dataclass(frozen=True)
class Field:
    """One what-if field: its bounds, what was measured, and what is asked."""

    name: str
    label: str
    unit: str
    least: float
    most: float
    measured: float
    given: float | None

    @property
    def value(self) -> float:
        """What the worksheet reckons with."""
        return self.measured if self.given is None else self.given

    @property
    def measured_text(self) -> str:
        """What was measured, three digits."""
        return formats.significant(self.measured)

    @property
    def value_text(self) -> str:
        """As the form shows it: plain, without separators."""
        return f"{self.value:.6g}"


@dataclass(frozen=True)
class UseRow:
    """One resource: how full, and whether it gives way first."""

    use: Use
    first: bool

    @property
    def label(self) -> str:
        """In words."""
        return RESOURCES[self.use.resource]

    @property
    def percent(self) -> str:
        """How full."""
        return f"{HUNDRED * self.use.used:,.0f} %" if isfinite(self.use.used) else "no node"

    @property
    def width(self) -> float:
        """Of the bar."""
        return round(min(HUNDRED, HUNDRED * self.use.used), 1)

    @property
    def headroom(self) -> str:
        """Times the load."""
        if not isfinite(self.use.headroom):
            return formats.MISSING
        return f"{formats.significant(self.use.headroom)}×"

    @property
    def tone(self) -> str:
        """As statuses are toned."""
        if self.use.used >= FULL:
            return "bad"
        return "warn" if self.use.used >= NEARLY else "ok"


@dataclass(frozen=True)
class RegionRow:
    """What a region needs of the pool."""

    region: Region
    sheet: Sheet
    cards: int
    micro: int

    @property
    def needed(self) -> int:
        """Nodes for its share of the peak."""
        return ceil(self.sheet.nodes_needed * self.region.share)

    @property
    def hours(self) -> float:
        """GPU-hours a day, all day at the peak."""
        return float(self.needed * self.cards * 24)

    @property
    def nano(self) -> int:
        """What those cost."""
        return round(self.hours * self.micro * NANO_PER_MICRO)


@dataclass(frozen=True)
class Worksheet:
    """The worksheet of one pool; `sheet` None where nothing was measured."""

    measured: Measured
    fields: list[Field]
    sheet: Sheet | None
    uses: list[UseRow]
    regions: list[RegionRow]


@page(Action.FLEET_VIEW)
@require_GET
def capacity(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The pool asked for, else the first."""
    days, complaint = days_from(request.GET)
    pools, chosen = _read(viewer, days, request.GET.get("pool", ""))
    made, unread = worksheet(chosen, request.GET) if chosen else (None, "")
    context = {
        "viewer": viewer,
        "here": "insights",
        "tab": "capacity",
        "days": days,
        "day_choices": DAYS,
        "complaint": " ".join(filter(None, (complaint, unread))),
        "pools": pools,
        "made": made,
        "query": request.GET.urlencode(),
        "now": timezone.now(),
    }
    return render(request, "pages/capacity.html", context)


@page(Action.FLEET_VIEW)
@require_GET
def capacity_csv(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """What the worksheet on screen reckoned with, and what came of it."""
    days, _ = days_from(request.GET)
    _, chosen = _read(viewer, days, request.GET.get("pool", ""))
    made, _ = worksheet(chosen, request.GET) if chosen else (None, "")
    body: list[list[str]] = []
    if chosen is not None and made is not None and made.sheet is not None:
        sheet, name = made.sheet, chosen.pool.name
        body = [[name, field.name, f"{field.value:.9g}"] for field in made.fields]
        body += [[name, f"used_{row.use.resource}", f"{row.use.used:.6g}"] for row in made.uses]
        body += [
            [name, "at_once", f"{sheet.at_once:.6g}"],
            [name, "nodes_needed", str(sheet.nodes_needed)],
            [name, "gpu_hours_day", f"{sheet.gpu_hours_day:g}"],
            [name, "requests_per_s_max", f"{sheet.per_s_max:.6g}"],
        ]
    return panel_csv([TablePanel("capacity", "Capacity", CSV_HEAD, body)], "capacity")


def worksheet(measured: Measured, query: Mapping[str, str]) -> tuple[Worksheet, str]:
    """Filled in from what was measured and what the URL asks; and what could not be read of it."""
    load, engine = measured.load, measured.engine
    if load is None or engine is None:
        return Worksheet(measured, [], None, [], []), ""
    fields = _fields(measured, load, engine, query)
    by_name = {field.name: field.value for field in fields}
    asked = Load(
        per_s=by_name["rate"],
        tokens_in=by_name["in"],
        tokens_out=by_name["out"],
        cached_share=by_name["cached"] / HUNDRED,
    )
    engine = msgspec.structs.replace(engine, batch=by_name["batch"])
    nodes = int(by_name["nodes"])
    pool = measured.pool
    sheet = make_sheet(asked, engine, nodes=nodes, cards_per_node=pool.cards_per_node)
    uses = [UseRow(use, place == 0) for place, use in enumerate(sheet.uses)]
    regions = [
        RegionRow(region, sheet, pool.cards_per_node, pool.card_hour_micro)
        for region in measured.regions
    ]
    wrong = [field.label for field in fields if query.get(field.name) and field.given is None]
    told = f"Not used, since out of bounds or no number: {', '.join(wrong)}." if wrong else ""
    return Worksheet(measured, fields, sheet, uses, regions), told


def _fields(
    measured: Measured, load: Load, engine: Engine, query: Mapping[str, str]
) -> list[Field]:
    rows = (
        ("rate", "Peak rate", "requests/s", 0.0, 1e6, load.per_s),
        ("in", "Tokens in", "a request", 1.0, 1e6, load.tokens_in),
        ("out", "Tokens out", "a request", 1.0, 1e6, load.tokens_out),
        ("cached", "Of the prompt cached", "%", 0.0, HUNDRED, HUNDRED * load.cached_share),
        ("batch", "Batching factor", "requests a step", 1.0, 1e5, engine.batch),
        ("nodes", "Nodes", "ready", 0.0, 1e5, float(measured.nodes)),
    )
    return [Field(*row, _number(query.get(row[0], ""), row[3], row[4])) for row in rows]


def _number(text: str, least: float, most: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if least <= value <= most else None


def _read(viewer: Viewer, days: int, wanted: str) -> tuple[list[Measured] | None, Measured | None]:
    start, end = whole_hours(days, timezone.now())
    try:
        pools = capacity_read(actor=viewer.user, start=start, end=end)
    except TooMuchToRead:
        return None, None
    busiest = max(pools, key=lambda one: one.requests, default=None)
    return pools, next((one for one in pools if one.pool.name == wanted), busiest)
