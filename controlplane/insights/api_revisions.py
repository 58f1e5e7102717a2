"""`/api/insights/capacity/revisions`: worksheets that are kept for a quarter, beside what came."""

import uuid
from datetime import datetime
from typing import TypedDict

import msgspec
from django.core.exceptions import ValidationError
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response

from controlplane.core.answers import answer_of
from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.insights.capacity import FIGURES, capacity_read, fill_in, whole_hours
from controlplane.insights.hygiene import DAYS_DEFAULT, DAYS_MAX
from controlplane.insights.models import WorksheetRevision
from controlplane.insights.revisions import (
    revision_compare,
    revision_get,
    revision_keep,
    revision_list,
)
from controlplane.kernel.ids import WorksheetRevisionId
from controlplane.kernel.insights.capacity import CapacitySheet

POOL = OpenApiParameter("pool", str, description="Of this pool only.")


class WorksheetBody(msgspec.Struct, forbid_unknown_fields=True):
    """What to keep: a pool's worksheet measured over some days, with figures asked for instead."""

    pool: str
    quarter: str
    note: str = ""
    days: int = DAYS_DEFAULT
    figures: dict[str, float] = {}


class RevisionJson(TypedDict):
    """A kept worksheet: who kept it and when, what it reckoned with, and what came of that."""

    id: WorksheetRevisionId
    object: str
    pool: str
    quarter: str
    created_at: datetime
    by: str
    note: str
    figures: dict[str, float]
    sheet: CapacitySheet


class ComparedJson(TypedDict):
    """A figure as it was kept and as it came; null where nothing came, or where it is chosen."""

    name: str
    kept: float
    came: float | None


class RevisionComparedJson(RevisionJson):
    """A kept worksheet beside what came in its quarter until now."""

    compared: list[ComparedJson]


class Revisions(ApiView, at="api/insights/capacity/revisions"):
    @operation(list_of=Whole(RevisionJson), params=[POOL])
    def get(self) -> Response:
        """List the newest kept worksheets. Staff only."""
        pool = self.request.query_params.get("pool", "")
        return self.listed(revision_list(actor=self.actor(), pool=pool), revision_json)

    @operation(body=WorksheetBody, answer={201: RevisionJson})
    def post(self, asked: WorksheetBody) -> Response:
        """Keep a pool's worksheet for a quarter. Staff only."""
        unknown = set(asked.figures) - {figure[0] for figure in FIGURES}
        if unknown:
            raise ValidationError({name: ["Unknown figure."] for name in sorted(unknown)})
        if not 1 <= asked.days <= DAYS_MAX:
            raise ValidationError({"days": [f"Must be a number from 1 to {DAYS_MAX}."]})
        now = timezone.now()
        start, end = whole_hours(asked.days, now)
        pools = capacity_read(actor=self.actor(), start=start, end=end)
        found = next((one for one in pools if one.pool.name == asked.pool), None)
        if found is None:
            raise ValidationError({"pool": ["Pool not found."]})
        made = fill_in(found, {name: str(value) for name, value in asked.figures.items()})
        kept = revision_keep(
            actor=self.actor(), made=made, quarter=asked.quarter, note=asked.note, now=now
        )
        return Response(revision_json(kept), status=201)


class OneRevision(ApiView, at="api/insights/capacity/revisions/<worksheet:revision_id>"):
    @operation(answer=RevisionComparedJson)
    def get(self, revision_id: uuid.UUID) -> RevisionComparedJson:
        """Get a kept worksheet beside what came in its quarter. Staff only."""
        row = revision_get(actor=self.actor(), revision_id=revision_id)
        found = revision_compare(actor=self.actor(), revision=row, now=timezone.now())
        compared = [answer_of(ComparedJson, one) for one in found]
        return {**revision_json(row), "compared": compared}


def revision_json(row: WorksheetRevision) -> RevisionJson:
    return answer_of(RevisionJson, row, object="worksheet_revision")
