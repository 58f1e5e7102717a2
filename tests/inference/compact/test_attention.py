"""Both prefill attentions against the definition, on shuffled blocks of a shared cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from inference.compact.attention.blockwise import prefill_blockwise
from inference.compact.attention.cache import KvCache
from inference.compact.attention.sdpa import prefill_fused
from inference.compact.batch import PrefillSpan, Uploader
from inference.compact.models.shape import read_shape
from inference.compact.placement import Placement
from inference.compact.prefill import lower_right, plan_prefills
from inference.compact.request import Request
from inference.compact.scheduler import Chunk
from tests.inference.compact.tiny import job_of, save_model

BLOCK = 16
BLOCKS = 40


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> KvCache:
    folder = tmp_path_factory.mktemp("attention")
    save_model(folder)
    placement = Placement(
        device="cpu", dtype="float32", block_size=BLOCK, kv_blocks=BLOCKS, threads=None
    )
    cache = KvCache(read_shape(folder), placement)
    cache.blocks.normal_(generator=torch.Generator().manual_seed(1))
    return cache


def _spans(start: int, count: int) -> tuple[PrefillSpan, PrefillSpan]:
    """The same rows as planned for a CPU and, with their mask, for other devices."""
    upload = Uploader("cpu")
    job = job_of([1] * (start + count))
    (sequence,) = Request(job, block_size=BLOCK, received_us=0, seed=0).sequences
    order = torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(2)).tolist()
    sequence.blocks = order[: -(-(start + count) // BLOCK)]
    chunk = Chunk(sequence, start, count)
    (span,) = plan_prefills([chunk], 0, BLOCK, upload, torch.float32)
    assert span.mask is None
    return span, replace(span, mask=lower_right(chunk, upload, torch.float32) if start else None)


def _by_definition(queries: torch.Tensor, cache: KvCache, span: PrefillSpan) -> torch.Tensor:
    keys, values = (part[0, :, : span.length] for part in cache.gather(1, span.table))
    out = torch.empty_like(queries)
    for row in range(len(queries)):
        seen = span.length - len(queries) + row + 1
        for head in range(queries.shape[1]):
            shared = head * len(keys) // queries.shape[1]
            scores = keys[shared, :seen] @ queries[row, head] / queries.shape[2] ** 0.5
            out[row, head] = scores.softmax(0) @ values[shared, :seen]
    return out


@pytest.mark.parametrize(
    ("start", "count"), [(0, 2), (0, 130), (1, 3), (64, 5), (37, 300), (100, 128), (5, 129)]
)
def test_prefill(cache: KvCache, start: int, count: int) -> None:
    queries = torch.randn(count, 4, 16, generator=torch.Generator().manual_seed(3))
    on_cpu, elsewhere = _spans(start, count)
    expected = _by_definition(queries, cache, on_cpu)
    for found in (
        prefill_blockwise(queries, cache, 1, on_cpu),
        prefill_fused(queries, cache, 1, elsewhere),
    ):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
