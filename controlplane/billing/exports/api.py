"""Exports under /api/billing/organizations/<id>/exports: made, watched, fetched."""

from datetime import date, datetime
from typing import Any, TypedDict
from uuid import UUID

import msgspec
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.billing.exports import selectors, services
from controlplane.billing.exports.files import export_size, read_export
from controlplane.billing.exports.kinds import through_of
from controlplane.billing.exports.models import Export, ExportState
from controlplane.billing.exports.spec import ExportSpec, days_of_period, spec_of
from controlplane.billing.exports.tasks import export_enqueue
from controlplane.billing.exports.writer import spec_from, stream_lines
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, operation
from controlplane.core.api.views import ApiView
from controlplane.core.streaming import csv_answer
from controlplane.kernel.ids import ExportId
from controlplane.kernel.money import usd_text

OF_ORGANIZATION = "api/billing/organizations/<org:organization_id>"


class ExportBody(msgspec.Struct, forbid_unknown_fields=True):
    """Either a month as `period`, or `start` and `end`; `end` is the day after the last."""

    kind: str
    period: str = ""
    start: date | None = None
    end: date | None = None
    grain: str = ""
    raw: bool = False


class ExportJson(TypedDict):
    """An export; `amount_usd` is exact, `done_permille` how far it is.

    Lines booked from `through` on are not in the file; `complete` says whether that is its end.
    """

    id: ExportId
    object: str
    created_at: datetime
    created_by: str
    kind: str
    grain: str
    start: date
    end: date
    raw: bool
    through: datetime | None
    complete: bool
    state: str
    done_permille: int
    rows_done: int
    rows_estimated: int | None
    bytes_done: int
    amount_usd: str
    sha256: str | None
    error: str | None
    finished_at: datetime | None


class OneExportJson(ExportJson):
    """An export with its manifest, once it is done."""

    manifest: Any


class Exports(ApiView, at=f"{OF_ORGANIZATION}/exports"):
    """The exports of an organization."""

    @operation(list_of=ExportJson)
    def get(self) -> Response:
        """List exports, newest first."""
        return self.page(
            selectors.export_page(**self.whose(), ask=self.page_ask("export")), export_json
        )

    @operation(body=ExportBody, answer={CREATED: ExportJson})
    def post(self, organization_id: UUID) -> ExportJson:
        """Create an export; a worker writes the file."""
        actor, body = self.actor(), self.body(ExportBody)
        made = services.export_create(
            actor=actor, spec=_spec(organization_id, body), enqueue=export_enqueue
        )
        return export_json(made)


class OneExport(ApiView, at=f"{OF_ORGANIZATION}/exports/<export:export_id>"):
    """One export: how far it is, and its manifest once it is done."""

    @operation(answer=OneExportJson)
    def get(self, export_id: UUID) -> OneExportJson:
        """Get an export."""
        found = selectors.export_get(**self.whose(), export_id=export_id)
        return {**export_json(found), "manifest": found.manifest}


class ExportDownload(ApiView, at=f"{OF_ORGANIZATION}/exports/<export:export_id>/file"):
    """The file."""

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.BINARY})
    def get(
        self, request: Request, organization_id: UUID, export_id: UUID
    ) -> StreamingHttpResponse:
        found = selectors.export_get(**self.whose(), export_id=export_id)
        return file_answer(request._request, found)


class ExportStream(ApiView, at=f"{OF_ORGANIZATION}/exports/stream"):
    """A file of few lines, streamed as it is read."""

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.BINARY})
    def get(self, request: Request, organization_id: UUID) -> StreamingHttpResponse:
        actor, given = self.actor(), request.query_params.dict()
        try:
            body = msgspec.convert(given, ExportBody, strict=False)
        except msgspec.ValidationError as error:
            raise ValidationError({"query": [f"{error}."]}) from error
        spec = _spec(organization_id, body)
        selectors.export_streamable(actor=actor, spec=spec)
        return stream_answer(request._request, spec)


def export_json(export: Export) -> ExportJson:
    return answer_of(
        ExportJson,
        export,
        object="export",
        created_by=export.created_by_label,
        start=export.start.date(),
        end=export.end.date(),
        done_permille=export.permille,
        amount_usd=usd_text(export.nano),
        sha256=export.sha256 or None,
        error=export.error or None,
    )


def _spec(organization_id: UUID, body: ExportBody) -> ExportSpec:
    if body.period:
        start, end = days_of_period(body.period)
    elif body.start and body.end:
        start, end = body.start, body.end
    else:
        raise ValidationError({"period": "Set a month, or a start and an end."})
    return spec_of(
        organization_id, kind=body.kind, start=start, end=end, grain=body.grain, raw=body.raw
    )


def file_answer(request: HttpRequest, export: Export) -> StreamingHttpResponse:
    """A finished export's file; raises Http404 where it is not finished, or gone."""
    size = export_size(export.id) if export.state == ExportState.DONE else None
    if size is None or size != export.bytes_done:
        raise Http404
    answer = csv_answer(request, export_file_name(export), read_export(export.id))
    answer["Content-Length"] = str(size)
    return answer


def stream_answer(request: HttpRequest, spec: ExportSpec) -> StreamingHttpResponse:
    through = through_of(spec)
    lines = (text.encode() for text in stream_lines(spec, through))
    return csv_answer(request, spec.file_name(through), lines)


def export_file_name(export: Export) -> str:
    """What a written export is called when it is saved."""
    return spec_from(export).file_name(export.through or export.end)


def manifest_name(export: Export) -> str:
    return export_file_name(export).removesuffix(".csv") + ".manifest.json"
