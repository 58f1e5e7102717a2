"""Insights: what each key spends for nothing and how to end it, and the same as CSV."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.core.permissions import Action
from controlplane.insights.hygiene import DAYS_MAX, KeyHygiene, Waste, WasteTotals, hygiene_read
from controlplane.kernel.ids import public_id
from controlplane.kernel.insights.hygiene import KINDS
from controlplane.kernel.money import usd_short, usd_text
from controlplane.telemetry.reading import TooMuchToRead
from frontend.insights.days import DAYS, DaysAsked, change, days_asked
from frontend.shared import formats
from frontend.shared.access import Viewer, page, show
from frontend.shared.panels import TablePanel, panel_csv

HEAD = [
    "key", "key_id", "requests", "looked_at", "finding", "requests_with_it", "tokens", "saves_usd",
    "saves_nano_usd", "fix", "client", "code",
]  # fmt: skip
HEAD_BEFORE = ["requests_before", "requests_with_it_before", "tokens_before", "saves_nano_before"]


@dataclass(frozen=True)
class WasteRow:
    """A finding; `earlier` is None where nothing is compared."""

    now: Waste
    earlier: Waste | None

    @property
    def requests_before(self) -> str:
        if self.earlier is None:
            return ""
        words = formats.count(self.earlier.requests)
        return f"before: {words}{change(self.now.requests, self.earlier.requests)}"

    @property
    def saves_before(self) -> str:
        if self.earlier is None:
            return ""
        return f"before: {usd_short(self.earlier.nano)}{change(self.now.nano, self.earlier.nano)}"


@dataclass(frozen=True)
class KeyRows:
    """A key with its findings, those included that are no more."""

    key: KeyHygiene
    earlier: KeyHygiene | None
    wastes: list[WasteRow]

    @property
    def before(self) -> str:
        if self.earlier is None:
            return ""
        requests, nano = self.earlier.requests, self.earlier.nano
        return (
            f"before: {formats.count(requests)} requests{change(self.key.requests, requests)},"
            f" {usd_short(nano)}{change(self.key.nano, nano)}"
        )


@page("insights", Action.REQUEST_VIEW, "GET")
def insights(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Keys of the organization, the one that could save most first."""
    asked = days_asked(request.GET, timezone.now())
    rows = _read(viewer, asked)
    context = {
        "tab": "insights",
        "asked": asked,
        "days": asked.days,
        "day_choices": DAYS,
        "complaint": asked.complaint,
        "rows": rows,
        "too_old": asked.compare and _too_old(asked),
        "kinds": KINDS.items(),
        "now": timezone.now(),
    }
    return show(request, viewer, "insights", "insights/page.html", context)


@page("insights.csv", Action.REQUEST_VIEW, "GET")
def insights_csv(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Every finding of every key in the range on screen, beside the days before if asked."""
    asked = days_asked(request.GET, timezone.now())
    rows = _read(viewer, asked)
    if rows is None:
        told = "The query timed out."
        return HttpResponse(told, status=503, content_type="text/plain; charset=utf-8")
    head = HEAD + HEAD_BEFORE if asked.compare else HEAD
    body = [_line(one, row, asked.compare) for one in rows for row in one.wastes]
    return panel_csv([TablePanel("insights", "Insights", head, body)], "insights")


def _line(one: KeyRows, row: WasteRow, compare: bool) -> list[str]:
    waste = row.now
    line = [
        one.key.label,
        public_id("key", one.key.key) if one.key.key else "",
        str(one.key.requests),
        str(one.key.looked),
        waste.kind,
        str(waste.requests),
        str(waste.tokens),
        usd_text(waste.nano),
        str(waste.nano),
        waste.fix,
        waste.client,
        waste.code,
    ]
    if not compare:
        return line
    if one.earlier is None or row.earlier is None:
        return line + [""] * len(HEAD_BEFORE)
    was = row.earlier
    return [*line, *map(str, (one.earlier.requests, was.requests, was.tokens, was.nano))]


def _too_old(asked: DaysAsked) -> bool:
    """Whether counts of the days before are partly gone."""
    return asked.end - asked.before > timedelta(days=DAYS_MAX)


def _read(viewer: Viewer, asked: DaysAsked) -> list[KeyRows] | None:
    try:
        found = _hygiene(viewer, asked.start, asked.end)
        earlier = None
        if asked.compare and not _too_old(asked):
            earlier = _hygiene(viewer, asked.before, asked.start)
    except TooMuchToRead:
        return None
    return key_rows(found, earlier)


def _hygiene(viewer: Viewer, start: datetime, end: datetime) -> WasteTotals:
    return hygiene_read(
        actor=viewer.user, organization=viewer.organization.id, start=start, end=end
    )


def key_rows(found: WasteTotals, earlier: WasteTotals | None) -> list[KeyRows]:
    """Each key of these days, in their order, beside itself in those before."""
    if earlier is None:
        return [KeyRows(one, None, [WasteRow(w, None) for w in one.wastes]) for one in found.keys]
    before = {one.key: one for one in earlier.keys}
    return [_beside(one, before.get(one.key) or _nothing(one)) for one in found.keys]


def _beside(one: KeyHygiene, earlier: KeyHygiene) -> KeyRows:
    before = {waste.kind: waste for waste in earlier.wastes}
    now = {waste.kind: waste for waste in one.wastes}
    kinds = [*now, *(kind for kind in KINDS if kind in before and kind not in now)]
    rows = [
        WasteRow(now.get(kind) or _ended(before[kind]), before.get(kind) or _ended(now[kind]))
        for kind in kinds
    ]
    return KeyRows(one, earlier, rows)


def _ended(waste: Waste) -> Waste:
    return replace(waste, requests=0, tokens=0, nano=0)


def _nothing(one: KeyHygiene) -> KeyHygiene:
    return KeyHygiene(key=one.key, label=one.label, requests=0, looked=0, tokens=0, nano=0)
