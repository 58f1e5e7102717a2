"""Prefill by the flash-attn package, imported only where that is installed."""

from __future__ import annotations

from flash_attn import flash_attn_func
from torch import Tensor

from inference.compact.attention.cache import KvCache
from inference.compact.batch import PrefillSpan

UNBOUNDED = (-1, -1)


def prefill_flash(queries: Tensor, cache: KvCache, layer: int, span: PrefillSpan) -> Tensor:
    """Outputs `[rows, heads, head_dim]` of the span's queries of the same size."""
    keys, values = (
        part[:, :, : span.length].transpose(1, 2) for part in cache.gather(layer, span.table)
    )
    # Its causal mask is aligned to the last key, and its window counts the keys to a row's left.
    window = UNBOUNDED if span.window is None else (span.window - 1, 0)
    out: Tensor = flash_attn_func(queries[None], keys, values, causal=True, window_size=window)
    return out[0]
