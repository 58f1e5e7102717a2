"""`/api/insights/…`: hygiene, the stage map, comparisons and the capacity worksheet as JSON."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import TypedDict

import msgspec
from django.core.exceptions import PermissionDenied, ValidationError
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import answer_of
from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.insights.capacity import Worksheet, capacity_read, fill_in, sheet_values
from controlplane.insights.compare import Setup, WayResult
from controlplane.insights.comparisons import KeptComparison, comparison_list
from controlplane.insights.hygiene import DAYS_DEFAULT, DAYS_MAX, KeyHygiene, hygiene_read
from controlplane.insights.stage_map import MapRow, stage_map_read
from controlplane.kernel.ids import ApiKeyId
from controlplane.kernel.insights.capacity import CapacitySheet
from controlplane.tenants.access import require, sees_shared_figures

DAYS = OpenApiParameter("days", int, description=f"1 to {DAYS_MAX}; default: {DAYS_DEFAULT}.")
WHAT_IF = [
    OpenApiParameter(name, float, description=f"{told} instead of the measured value.")
    for name, told in (
        ("rate", "Requests per second"),
        ("in", "Prompt tokens per request"),
        ("out", "Output tokens per request"),
        ("cached", "Percentage of the prompt that is cached,"),
        ("batch", "Requests per node step"),
        ("nodes", "Nodes"),
        ("rise", "Requests per second by which the rate grows in a minute"),
        ("cold", "Seconds of a cold start"),
    )
]


class WasteJson(TypedDict):
    """One kind of finding; savings are estimates, scaled from the requests looked at.

    `code` is the fix for the client that had it most often; empty where code does not end it.
    """

    kind: str
    what: str
    fix: str
    client: str
    code: str
    requests: int
    tokens: int
    saves_nano: int


class KeyHygieneJson(TypedDict):
    """One key, or all of them together; `key` is null for those."""

    key: ApiKeyId | None
    label: str
    requests: int
    looked_at: int
    tokens: int
    nano: int
    findings: list[WasteJson]


class HygieneJson(TypedDict):
    """Of whole hours."""

    start: datetime
    end: datetime
    whole: KeyHygieneJson
    keys: list[KeyHygieneJson]


class HygieneView(ApiView, at="api/insights/organizations/<org:organization_id>/hygiene"):
    @operation(answer=HygieneJson, params=[DAYS])
    def get(self, organization_id: uuid.UUID) -> HygieneJson:
        """List the tokens that each key wastes, with the fix.

        Kinds overlap: do not add their savings up.
        """
        start, end = days_of(self.request)
        found = hygiene_read(actor=self.actor(), organization=organization_id, start=start, end=end)
        return {
            "start": start,
            "end": end,
            "whole": _key_json(found.whole),
            "keys": [_key_json(one) for one in found.keys],
        }


class StageFiguresJson(TypedDict):
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

    start: datetime
    end: datetime


class StageMapView(ApiView, at="api/insights/organizations/<org:organization_id>/stage-map"):
    @operation(list_of=Whole(StageFiguresJson, StageMapJson), params=[DAYS])
    def get(self, organization_id: uuid.UUID) -> Response:
        """Get the percentiles of stages and layers, with public budgets.

        They are the installation's: all who may see them see the same.
        """
        require(self.actor(), Action.ORGANIZATION_VIEW, organization_id)
        if not sees_shared_figures(self.actor()):
            raise PermissionDenied("Only staff can read figures of the whole installation.")
        start, end = days_of(self.request)
        rows = stage_map_read(start=start, end=end)
        return self.listed(rows, _stage_json, start=start, end=end)


class ComparisonJson(TypedDict):
    """One run of the four ways."""

    at: datetime
    setup: Setup
    ways: list[WayResult]


class ComparisonsView(ApiView, at="api/insights/organizations/<org:organization_id>/comparisons"):
    @operation(list_of=Whole(ComparisonJson))
    def get(self, organization_id: uuid.UUID) -> Response:
        """List the results of `manage.py sluice compare`."""
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
    sheet: CapacitySheet | None


class CapacityView(ApiView, at="api/insights/capacity"):
    @operation(list_of=Whole(CapacityJson), params=[DAYS, *WHAT_IF])
    def get(self) -> Response:
        """Get the capacity, peak utilization and bottleneck of each pool. Staff only.

        `used` is 1 where a resource is full; the first one breaks first, at `per_s_max`.
        """
        start, end = days_of(self.request)
        pools = capacity_read(actor=self.actor(), start=start, end=end)
        sheets = [fill_in(pool, self.request.query_params) for pool in pools]
        unread = {field.name for sheet in sheets for field in sheet.unread}
        if unread:
            raise ValidationError(
                {name: ["Must be a number within its bounds."] for name in unread}
            )
        return self.listed(sheets, _capacity_json, "pool")


def days_of(request: Request) -> tuple[datetime, datetime]:
    """The last so many days, up to the end of the present hour; raises 400 that names `days`."""
    text = request.query_params.get("days", str(DAYS_DEFAULT))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:4]) <= DAYS_MAX):
        raise ValidationError({"days": [f"Must be a number from 1 to {DAYS_MAX}."]})
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return end - timedelta(days=int(text[:4])), end


def _stage_json(row: MapRow) -> StageFiguresJson:
    return answer_of(StageFiguresJson, row, requests=row.count, public_budget_us=row.budget_us)


def _comparison_json(one: KeptComparison) -> dict[str, object]:
    setup, ways = msgspec.to_builtins([one.setup, one.ways])
    return {"at": one.at, "setup": setup, "ways": ways}


def _capacity_json(made: Worksheet) -> dict[str, object]:
    return {
        "pool": made.measured.pool.name,
        "models": made.measured.models,
        "requests": made.measured.requests,
        "asked_per_s": made.measured.asked_per_s,
        "nodes_ready": made.measured.nodes,
        "fields": {field.name: field.value for field in made.fields},
        "sheet": sheet_values(made.sheet) if made.sheet else None,
    }


def _key_json(one: KeyHygiene) -> KeyHygieneJson:
    findings = [answer_of(WasteJson, waste, saves_nano=waste.nano) for waste in one.wastes]
    return answer_of(KeyHygieneJson, one, looked_at=one.looked, findings=findings)
