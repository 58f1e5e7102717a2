"""Files as answers: streamed in pieces under ASGI too, so that none is ever whole in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, StreamingHttpResponse

from controlplane.billing.exports.files import export_size, read_export
from controlplane.billing.exports.spec import ExportSpec
from controlplane.billing.exports.writer import spec_from, stream_lines
from controlplane.billing.models_exports import Export, ExportState

CSV = "text/csv; charset=utf-8"


def file_answer(request: HttpRequest, export: Export) -> StreamingHttpResponse:
    """A finished export's file; raises Http404 where it is not finished, or gone."""
    size = export_size(export.id) if export.state == ExportState.DONE else None
    if size is None or size != export.bytes_done:
        raise Http404
    answer = _answer(request, spec_from(export).name, read_export(export.id))
    answer["Content-Length"] = str(size)
    return answer


def stream_answer(request: HttpRequest, spec: ExportSpec) -> StreamingHttpResponse:
    """The file as it is read from the ledger."""
    return _answer(request, spec.name, (text.encode() for text in stream_lines(spec)))


def manifest_name(spec: ExportSpec) -> str:
    """What a manifest is called beside its file."""
    return spec.name.removesuffix(".csv") + ".manifest.json"


def _answer(request: HttpRequest, name: str, pieces: Iterator[bytes]) -> StreamingHttpResponse:
    body = _awaited(pieces) if isinstance(request, ASGIRequest) else pieces
    answer = StreamingHttpResponse(body, content_type=CSV)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["Cache-Control"] = "private, no-store"
    return answer


async def _awaited(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece is read in the request's own thread."""
    while (piece := await sync_to_async(_next)(pieces)) is not None:
        yield piece


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)
