"""`/api/insights/…`: hygiene, the stage map, comparisons and the capacity worksheet as JSON."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TypedDict

import msgspec
from django.core.exceptions import PermissionDenied, ValidationError
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.api import ApiView
from controlplane.core.api_schema import operation
from controlplane.core.permissions import Action
from controlplane.insights.capacity import capacity_read
from controlplane.insights.compare import Outcome, Setup
from controlplane.insights.comparisons import Kept, comparison_list
from controlplane.insights.hygiene import DAYS_DEFAULT, DAYS_MAX, KeyHygiene, Waste, hygiene_read
from controlplane.insights.stage_map import MapRow, stage_map_read
from controlplane.insights.worksheet import Worksheet, fill_in
from controlplane.kernel.capacity import Sheet, Use
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.tenants.access import require, sees_shared_figures

DAYS = OpenApiParameter("days", int, description=f"1 to {DAYS_MAX}; {DAYS_DEFAULT} if left out.")
WHAT_IF = [
    OpenApiParameter(name, float, description=f"{told} instead of what was measured.")
    for name, told in (
        ("rate", "Requests a second"),
        ("in", "Prompt tokens a request"),
        ("out", "Output tokens a request"),
        ("cached", "Per cent of the prompt that is cached,"),
        ("batch", "Requests in a node's step"),
        ("nodes", "Nodes"),
    )
]
USED_MAX = 1e9


class TooMuch(APIException):
    """The range could not be summed within the bound."""

    status_code = 503
    default_detail = "This could not be read in time; ask for fewer days."


class WasteJson(TypedDict):
    """One kind of finding; savings are estimates, scaled from the requests looked at."""

    kind: str
    what: str
    fix: str
    requests: int
    tokens: int
    saves_nano: int


class KeyHygieneJson(TypedDict):
    """One key, or all of them together; `key` is null for those."""

    key: str | None
    label: str
    requests: int
    looked_at: int
    tokens: int
    nano: int
    findings: list[WasteJson]


class HygieneJson(TypedDict):
    """Of whole hours."""

    start: str
    end: str
    whole: KeyHygieneJson
    keys: list[KeyHygieneJson]


class HygieneView(ApiView):
    """`GET organizations/<id>/hygiene`."""

    @operation(answer=HygieneJson, params=[DAYS])
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """What each key spends for nothing, and the fix.

        Kinds overlap: do not add their savings up.
        """
        start, end = days_of(request)
        try:
            found = hygiene_read(
                actor=self.actor(), organization=organization_id, start=start, end=end
            )
        except TooMuchToRead as error:
            raise TooMuch from error
        return Response(
            {
                "start": start.isoformat(),
                "end": end.isoformat(),
                "whole": _key_json(found.whole),
                "keys": [_key_json(one) for one in found.keys],
            }
        )


class StageJson(TypedDict):
    """A stage (`layer` empty), a layer, or a whole; times are null without requests."""

    stage: str
    layer: str
    what: str
    requests: int
    p50_us: float | None
    p95_us: float | None
    public_budget_us: int | None


class StageMapJson(TypedDict):
    """Of all tenants, in the order of the pipeline."""

    start: str
    end: str
    rows: list[StageJson]


class StageMapView(ApiView):
    """`GET organizations/<id>/stage-map`."""

    @operation(answer=StageMapJson, params=[DAYS])
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Percentiles of stages and layers beside public budgets.

        They are the installation's: all who may see them see the same.
        """
        require(self.actor(), Action.ORGANIZATION_VIEW, organization_id)
        if not sees_shared_figures(self.actor()):
            raise PermissionDenied("Figures of the whole installation are for its staff.")
        start, end = days_of(request)
        try:
            rows = stage_map_read(start=start, end=end)
        except TooMuchToRead as error:
            raise TooMuch from error
        told = [_stage_json(row) for row in rows]
        return Response({"start": start.isoformat(), "end": end.isoformat(), "rows": told})


class ComparisonJson(TypedDict):
    """One run of the four ways."""

    at: str
    setup: Setup
    ways: list[Outcome]


class ComparisonsJson(TypedDict):
    """The newest first."""

    data: list[ComparisonJson]


class ComparisonsView(ApiView):
    """`GET organizations/<id>/comparisons`."""

    @operation(answer=ComparisonsJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """What `manage.py sluice compare` has measured here."""
        require(self.actor(), Action.ORGANIZATION_VIEW, organization_id)
        return self.listed(comparison_list(), _comparison_json)


class CapacityJson(TypedDict):
    """One pool: the figures reckoned with, and the worksheet; null where nothing was measured.

    `fields.rate` is the peak of requests that ran, `asked_per_s` that of all that came.
    """

    pool: str
    models: list[str]
    requests: int
    asked_per_s: float
    nodes_ready: int
    fields: dict[str, float]
    sheet: Sheet | None


class CapacitiesJson(TypedDict):
    """All pools that generate."""

    pools: list[CapacityJson]


class CapacityView(ApiView):
    """`GET capacity`."""

    @operation(answer=CapacitiesJson, params=[DAYS, *WHAT_IF])
    def get(self, request: Request) -> Response:
        """What each pool carries, how full it is at its peak, and what breaks first; for staff.

        `used` is 1 where a resource is full; the first one breaks first.
        """
        start, end = days_of(request)
        try:
            pools = capacity_read(actor=self.actor(), start=start, end=end)
        except TooMuchToRead as error:
            raise TooMuch from error
        sheets = [fill_in(pool, request.query_params) for pool in pools]
        unread = {field.name for sheet in sheets for field in sheet.unread}
        if unread:
            raise ValidationError({name: ["A number within its bounds."] for name in unread})
        return Response({"pools": [_capacity_json(sheet) for sheet in sheets]})


def days_of(request: Request) -> tuple[datetime, datetime]:
    """The last so many days, up to the end of the present hour; raises 400 that names `days`."""
    text = request.query_params.get("days", str(DAYS_DEFAULT))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:4]) <= DAYS_MAX):
        raise ValidationError({"days": [f"A number from 1 to {DAYS_MAX}."]})
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return end - timedelta(days=int(text[:4])), end


def _stage_json(row: MapRow) -> StageJson:
    return {
        "stage": row.stage,
        "layer": row.layer,
        "what": row.what,
        "requests": row.count,
        "p50_us": row.p50_us,
        "p95_us": row.p95_us,
        "public_budget_us": row.budget_us,
    }


def _comparison_json(one: Kept) -> dict[str, object]:
    return {
        "at": one.at.isoformat(),
        "setup": msgspec.to_builtins(one.setup),
        "ways": msgspec.to_builtins(one.ways),
    }


def _capacity_json(made: Worksheet) -> dict[str, object]:
    sheet = made.sheet
    if sheet is not None:
        # JSON has no infinity, which is how full nothing at all is.
        uses = tuple(Use(use.resource, min(use.used, USED_MAX)) for use in sheet.uses)
        sheet = msgspec.structs.replace(sheet, uses=uses)
    return {
        "pool": made.measured.pool.name,
        "models": made.measured.models,
        "requests": made.measured.requests,
        "asked_per_s": made.measured.asked_per_s,
        "nodes_ready": made.measured.nodes,
        "fields": {field.name: field.value for field in made.fields},
        "sheet": msgspec.to_builtins(sheet),
    }


def _key_json(one: KeyHygiene) -> KeyHygieneJson:
    return {
        "key": None if one.key is None else str(one.key),
        "label": one.label,
        "requests": one.requests,
        "looked_at": one.looked,
        "tokens": one.tokens,
        "nano": one.nano,
        "findings": [_waste_json(waste) for waste in one.wastes],
    }


def _waste_json(waste: Waste) -> WasteJson:
    return {
        "kind": waste.kind,
        "what": waste.what,
        "fix": waste.fix,
        "requests": waste.requests,
        "tokens": waste.tokens,
        "saves_nano": waste.nano,
    }
