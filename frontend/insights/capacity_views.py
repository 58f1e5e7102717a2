"""The capacity worksheet: measured load and nodes of a pool, what-if fields in the URL; staff."""

from dataclasses import dataclass
from math import ceil, isfinite

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.core.permissions import Action
from controlplane.insights.capacity import (
    HUNDRED,
    Field,
    MeasuredLoad,
    Region,
    Worksheet,
    capacity_read,
    fill_in,
    whole_hours,
)
from controlplane.kernel.insights.capacity import RESOURCES, CapacitySheet, Use
from frontend.insights.days import DAYS, days_from
from frontend.insights.revisions import revisions_of
from frontend.shared import formats
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time
from frontend.shared.panels import TablePanel, panel_csv

NANO_PER_MICRO = 1_000
FULL, NEARLY = 1.0, 0.8
CSV_HEAD = ["pool", "quantity", "value"]


def _field_row(field: Field) -> dict[str, str]:
    """A field of the form; its value plain, without separators, as it may be sent again."""
    return {
        "identity": f"f-{field.name}",
        "label": f"{field.label}, {field.unit}",
        "name": field.name,
        "measured": f"measured {formats.significant(field.measured)}",
        "value": f"{field.value:.4g}",
    }


@dataclass(frozen=True)
class UseRow:
    """One resource: how full, and whether it gives way first."""

    use: Use
    first: bool

    @property
    def label(self) -> str:
        return RESOURCES[self.use.resource]

    @property
    def percent(self) -> str:
        return f"{HUNDRED * self.use.used:,.0f} %" if isfinite(self.use.used) else "no node"

    @property
    def breaks(self) -> str:
        """At how many requests a second it is full."""
        return formats.significant(self.use.per_s_max) if isfinite(self.use.per_s_max) else "never"

    @property
    def width(self) -> float:
        return round(min(HUNDRED, HUNDRED * self.use.used), 1)

    @property
    def headroom(self) -> str:
        if not isfinite(self.use.headroom):
            return formats.MISSING
        return f"{formats.significant(self.use.headroom)}×"

    @property
    def fill(self) -> str:
        return "over" if self.tone == "bad" else "fill"

    @property
    def tone(self) -> str:
        if self.use.used >= FULL:
            return "bad"
        return "warn" if self.use.used >= NEARLY else "ok"


@dataclass(frozen=True)
class RegionRow:
    """What a region needs of the pool."""

    region: Region
    sheet: CapacitySheet
    cards: int
    micro: int

    @property
    def needed(self) -> int:
        return ceil(self.sheet.nodes_needed * self.region.share)

    @property
    def hours(self) -> float:
        """GPU-hours per day, all day at the peak."""
        return float(self.needed * self.cards * 24)

    @property
    def nano(self) -> int:
        return round(self.hours * self.micro * NANO_PER_MICRO)


@page("insights/capacity", Action.FLEET_VIEW, "GET")
def capacity(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    days, complaint = days_from(request.GET)
    pools, chosen = _read(viewer, days, request.GET.get("pool", ""))
    made = fill_in(chosen, request.GET.dict()) if chosen else None
    context = {
        "tab": "capacity",
        "days": days,
        "day_choices": DAYS,
        "complaint": " ".join(filter(None, (complaint, _unread(made)))),
        "pools": pools,
        "made": made,
        "asked": formats.significant(chosen.asked_per_s) if chosen else "",
        "query": request.GET.urlencode(),
        "now": timezone.now(),
        **(_rows(made) if made else {}),
        **(revisions_of(viewer, made, timezone.now()) if made and made.sheet else {}),
    }
    return show(request, viewer, "insights", "insights/capacity.html", context)


@page("insights/capacity.csv", Action.FLEET_VIEW, "GET")
def capacity_csv(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """What the worksheet on screen reckoned with, and what came of it."""
    days, _ = days_from(request.GET)
    _, chosen = _read(viewer, days, request.GET.get("pool", ""))
    made = fill_in(chosen, request.GET.dict()) if chosen else None
    body: list[list[str]] = []
    if chosen is not None and made is not None and made.sheet is not None:
        sheet, name = made.sheet, chosen.pool.name
        body = [[name, field.name, f"{field.value:.9g}"] for field in made.fields]
        body += [[name, f"used_{use.resource}", f"{use.used:.6g}"] for use in sheet.uses]
        body += [
            [name, "asked_per_s", f"{chosen.asked_per_s:.6g}"],
            [name, "at_once", f"{sheet.at_once:.6g}"],
            [name, "nodes_needed", str(sheet.nodes_needed)],
            [name, "gpu_hours_day", f"{sheet.gpu_hours_day:g}"],
            [name, "requests_per_s_max", f"{sheet.per_s_max:.6g}"],
        ]
    return panel_csv([TablePanel("capacity", "Capacity", CSV_HEAD, body)], "capacity")


def _rows(made: Worksheet) -> dict[str, object]:
    sheet, pool = made.sheet, made.measured.pool
    if sheet is None:
        return {}
    return {
        "slower": made.measured.engine.slower_us if made.measured.engine else 0.0,
        "fields": [_field_row(field) for field in made.fields],
        "uses": [UseRow(use, place == 0) for place, use in enumerate(sheet.uses)],
        "regions": [
            RegionRow(region, sheet, pool.cards_per_node, pool.card_hour_micro)
            for region in made.measured.regions
        ],
    }


def _unread(made: Worksheet | None) -> str:
    if made is None or not made.unread:
        return ""
    named = ", ".join(field.label for field in made.unread)
    return f"Ignored because out of bounds or not a number: {named}."


def _read(
    viewer: Viewer, days: int, wanted: str
) -> tuple[list[MeasuredLoad] | None, MeasuredLoad | None]:
    start, end = whole_hours(days, timezone.now())
    pools = in_time(lambda: capacity_read(actor=viewer.user, start=start, end=end))
    if pools is None:
        return None, None
    busiest = max(pools, key=lambda one: one.requests, default=None)
    return pools, next((one for one in pools if one.pool.name == wanted), busiest)
