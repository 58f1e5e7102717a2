"""All attentions against the definition, on shuffled blocks of a shared cache."""

from __future__ import annotations

import pytest
import torch

from inference.compact.attention.blockwise import decode_products, prefill_blockwise
from inference.compact.attention.cache import KvCache
from inference.compact.attention.sdpa import decode_fused, prefill_fused
from inference.compact.batch import PrefillSpan, Uploader
from inference.compact.decode import plan_decodes
from inference.compact.models.shape import read_shape
from inference.compact.placement import Placement
from inference.compact.prefill import plan_prefills
from inference.compact.request import Request
from inference.compact.scheduler import Chunk
from tests.inference.compact.tiny import job_of, save_model

BLOCK = 16
BLOCKS = 40
WINDOWS = [None, 1, 16, 21, 128, 150]


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


def _chunk(start: int, count: int) -> Chunk:
    job = job_of([1] * (start + count))
    (sequence,) = Request(job, block_size=BLOCK, received_us=0, seed=0).sequences
    order = torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(start)).tolist()
    sequence.blocks = order[: -(-(start + count) // BLOCK)]
    return Chunk(sequence, start, count, draws=1)


def _spans(chunk: Chunk, window: int | None) -> tuple[PrefillSpan, PrefillSpan]:
    """The same rows as planned for kernels without and with masks."""
    (span,) = plan_prefills([chunk], 0, BLOCK, Uploader("cpu"), None, window)
    (masked,) = plan_prefills([chunk], 0, BLOCK, Uploader("cpu"), torch.float32, window)
    assert span.mask is None
    return span, masked


def _by_definition(
    queries: torch.Tensor, cache: KvCache, chunk: Chunk, window: int | None
) -> torch.Tensor:
    """Row by row and head by head, over all blocks of the sequence."""
    table = torch.tensor([chunk.sequence.blocks])
    keys, values = (part[0] for part in cache.gather(1, table))
    out = torch.empty_like(queries)
    for row in range(len(queries)):
        end = chunk.start + row + 1
        seen = slice(0 if window is None else max(0, end - window), end)
        for head in range(queries.shape[1]):
            shared = head * len(keys) // queries.shape[1]
            scores = keys[shared, seen] @ queries[row, head] / queries.shape[2] ** 0.5
            out[row, head] = scores.softmax(0) @ values[shared, seen]
    return out


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("start", "count"), [(0, 2), (0, 130), (1, 3), (64, 5), (37, 300), (100, 128), (5, 129)]
)
def test_prefill(cache: KvCache, start: int, count: int, window: int | None) -> None:
    queries = torch.randn(count, 4, 16, generator=torch.Generator().manual_seed(3))
    chunk = _chunk(start, count)
    plain, masked = _spans(chunk, window)
    expected = _by_definition(queries, cache, chunk, window)
    for found in (
        prefill_blockwise(queries, cache, 1, plain),
        prefill_fused(queries, cache, 1, masked),
    ):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("window", WINDOWS)
def test_decode(cache: KvCache, window: int | None) -> None:
    starts = [0, 1, 15, 16, 17, 90, 127, 128, 129, 200, 300]
    chunks = [_chunk(start, 1) for start in starts]
    groups = plan_decodes(chunks, BLOCK, Uploader("cpu"), torch.float32, window)
    assert [(group.start, group.stop) for group in groups] == [(0, 8), (8, 11)]
    queries = torch.randn(len(starts), 4, 16, generator=torch.Generator().manual_seed(3))
    for group in groups:
        rows = slice(group.start, group.stop)
        expected = torch.cat(
            [
                _by_definition(queries[row : row + 1], cache, chunks[row], window)
                for row in range(group.start, group.stop)
            ]
        )
        for attention in (decode_products, decode_fused):
            found = attention(queries[rows], cache, 1, group)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
