"""Files as answers: streamed in pieces under ASGI too, so that none is ever whole in memory."""

from django.http import Http404, HttpRequest, StreamingHttpResponse

from controlplane.billing.exports.files import export_size, read_export
from controlplane.billing.exports.kinds import through_of
from controlplane.billing.exports.models import Export, ExportState
from controlplane.billing.exports.spec import ExportSpec
from controlplane.billing.exports.writer import spec_from, stream_lines
from controlplane.core.streaming import csv_answer


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
