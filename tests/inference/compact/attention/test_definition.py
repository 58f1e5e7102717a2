"""All attentions against the definition, on shuffled blocks of a shared cache."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest
import torch

from inference.compact.attention.blockwise import decode_products, prefill_blockwise
from inference.compact.attention.cache import KvCache
from inference.compact.attention.fused import decode_fused, prefill_fused
from inference.compact.batch.plan import plan_decodes, plan_prefills
from inference.compact.batch.tensors import PrefillSpan, Uploader
from inference.compact.config.shape import read_shape
from inference.compact.load.placement import Placement
from inference.compact.schedule.request import Request
from inference.compact.schedule.scheduler import Chunk
from tests.inference.compact.tiny import job_of, save_model

BLOCK = 16
BLOCKS = 40
WINDOWS = [None, 1, 16, 21, 128, 150]
Attention = Callable[..., torch.Tensor]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, device: str) -> KvCache:
    folder = tmp_path_factory.mktemp("attention")
    save_model(folder)
    placement = Placement(
        device=device, dtype="float32", block_size=BLOCK, kv_blocks=BLOCKS, threads=None
    )
    cache = KvCache(read_shape(folder), placement)
    cache.blocks.normal_(generator=torch.Generator(device).manual_seed(1))
    return cache


def _own(device: str) -> tuple[Attention, Attention]:
    """Decode and prefill that need no masks or torch's help, as each device has them."""
    if device == "cpu":
        return decode_products, prefill_blockwise
    # Comes with torch for CUDA; elsewhere it cannot be imported.
    paged = importlib.import_module("inference.compact.attention.paged")
    return paged.decode_paged, paged.prefill_paged


def _queries(count: int, device: str) -> torch.Tensor:
    return torch.randn(count, 4, 16, generator=torch.Generator().manual_seed(3)).to(device)


def _chunk(start: int, count: int) -> Chunk:
    job = job_of([1] * (start + count))
    (sequence,) = Request(job, block_size=BLOCK, received_us=0, seed=0).sequences
    order = torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(start)).tolist()
    sequence.blocks = order[: -(-(start + count) // BLOCK)]
    return Chunk(sequence, start, count, sampled_rows=1)


def _spans(chunk: Chunk, window: int | None, upload: Uploader) -> tuple[PrefillSpan, PrefillSpan]:
    """The same rows as planned for kernels without and with masks."""
    (span,) = plan_prefills([chunk], 0, BLOCK, upload, None, window)
    (masked,) = plan_prefills([chunk], 0, BLOCK, upload, torch.float32, window)
    assert span.mask is None
    return span, masked


def _by_definition(
    queries: torch.Tensor, cache: KvCache, chunk: Chunk, window: int | None
) -> torch.Tensor:
    """Row by row and head by head, over all blocks of the sequence."""
    table = torch.tensor([chunk.sequence.blocks], device=queries.device)
    keys, values = (part[0].cpu() for part in cache.gather(1, table))
    queries = queries.cpu()
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
def test_prefill(cache: KvCache, start: int, count: int, window: int | None, device: str) -> None:
    queries = _queries(count, device)
    chunk = _chunk(start, count)
    plain, masked = _spans(chunk, window, Uploader(device))
    expected = _by_definition(queries, cache, chunk, window)
    _, own = _own(device)
    for found in (own(queries, cache, 1, plain), prefill_fused(queries, cache, 1, masked)):
        torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("window", WINDOWS)
def test_decode(cache: KvCache, window: int | None, device: str) -> None:
    starts = [0, 1, 15, 16, 17, 90, 127, 128, 129, 200, 300]
    chunks = [_chunk(start, 1) for start in starts]
    groups = plan_decodes(chunks, BLOCK, Uploader(device), torch.float32, window)
    expected_groups = {"cpu": [(0, 8), (8, 11)], "cuda": [(0, 11)]}
    assert [(group.start, group.stop) for group in groups] == expected_groups[device]
    queries = _queries(len(starts), device)
    own, _ = _own(device)
    for group in groups:
        rows = slice(group.start, group.stop)
        expected = torch.cat(
            [
                _by_definition(queries[row : row + 1], cache, chunks[row], window)
                for row in range(group.start, group.stop)
            ]
        )
        for attention in (own, decode_fused):
            found = attention(queries[rows], cache, 1, group).cpu()
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
