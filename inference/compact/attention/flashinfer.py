"""Prefill by the FlashInfer package, imported only where that is installed."""

from __future__ import annotations

from flashinfer import single_prefill_with_kv_cache
from torch import Tensor

from inference.compact.attention.cache import KvCache
from inference.compact.batch import PrefillSpan

UNBOUNDED = -1


def prefill_flashinfer(queries: Tensor, cache: KvCache, layer: int, span: PrefillSpan) -> Tensor:
    """Outputs `[rows, heads, head_dim]` of the span's queries of the same size."""
    keys, values = (
        part[0, :, : span.length].transpose(0, 1).contiguous()
        for part in cache.gather(layer, span.table)
    )
    # As flash-attn's, its causal mask is aligned to the last key and its window looks left.
    window_left = UNBOUNDED if span.window is None else span.window - 1
    out: Tensor = single_prefill_with_kv_cache(
        queries, keys, values, causal=True, kv_layout="NHD", window_left=window_left
    )
    return out
