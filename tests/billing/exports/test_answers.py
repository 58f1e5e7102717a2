"""Files as answers: streamed in pieces to a server of either kind, and only when they are whole."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator

import pytest
from django.conf import settings
from django.http import Http404, StreamingHttpResponse
from django.test import AsyncRequestFactory, RequestFactory

from controlplane.billing.exports.api import file_answer
from controlplane.billing.exports.files import CHUNK_BYTES, open_export
from controlplane.billing.exports.models import Export, ExportGrain, ExportKind, ExportState
from tests.support.month import END, START

SIZE = 64 * CHUNK_BYTES


@pytest.fixture
def export() -> Export:
    made = Export(
        organization_id="01a201be-c47c-74cf-98c7-5dfaa0b5bd58",
        kind=ExportKind.USAGE,
        grain=ExportGrain.DAY,
        start=START,
        end=END,
        state=ExportState.DONE,
        bytes_done=SIZE,
    )
    with open_export(made.id) as file:
        for _ in range(SIZE // CHUNK_BYTES):
            file.write(b"x" * CHUNK_BYTES)
    return made


async def _sizes(answer: StreamingHttpResponse) -> AsyncIterator[int]:
    async for piece in answer:
        yield len(piece)


async def test_a_file_is_never_whole_in_memory(export: Export) -> None:
    answer = file_answer(AsyncRequestFactory().get("/"), export)
    assert answer.is_async
    assert answer["Content-Length"] == str(SIZE)
    tracemalloc.start()
    try:
        sizes = [size async for size in _sizes(answer)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == SIZE and max(sizes) == CHUNK_BYTES
    assert peak < 8 * CHUNK_BYTES


def test_a_file_is_whole_or_not_there(export: Export) -> None:
    request = RequestFactory().get("/")
    answer = file_answer(request, export)
    assert b"".join(answer) == b"x" * SIZE
    assert answer["Content-Disposition"] == (
        'attachment; filename="sluice-usage-2025-10-01-to-2025-10-31.csv"'
    )
    assert str(settings.EXPORTS_DIR) not in str(answer.headers)
    for change in ({"bytes_done": SIZE + 1}, {"state": ExportState.RUNNING}):
        kept = {name: getattr(export, name) for name in change}
        for name, value in change.items():
            setattr(export, name, value)
        with pytest.raises(Http404):
            file_answer(request, export)
        for name, value in kept.items():
            setattr(export, name, value)
