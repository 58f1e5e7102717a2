"""Answers that are sent while they are made; by ASGI only an async body is streamed."""

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

CSV = "text/csv; charset=utf-8"


def csv_answer(
    request: HttpRequest, name: str, pieces: Iterator[bytes], kind: str = CSV
) -> StreamingHttpResponse:
    """A file of this name; each piece is made when the one before it is sent."""
    body = _awaited(pieces) if isinstance(request, ASGIRequest) else pieces
    answer = StreamingHttpResponse(body, content_type=kind)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["Cache-Control"] = "private, no-store"
    return answer


async def _awaited(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece is read in the request's own thread."""
    while (piece := await sync_to_async(_next)(pieces)) is not None:
        yield piece


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)
