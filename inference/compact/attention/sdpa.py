"""Attention over the paged cache by torch's own kernels: gather blocks, then attend.

This is the path that runs everywhere, and the reference for faster ones.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from inference.compact.attention.blockwise import prefill_blockwise
from inference.compact.attention.cache import KvCache
from inference.compact.batch import Batch, DecodeGroup, PrefillSpan


def attend(queries: Tensor, cache: KvCache, layer: int, batch: Batch) -> Tensor:
    """Outputs `[rows, heads * head_dim]` of queries `[rows, heads, head_dim]`; the step's own keys
    and values must have been stored.
    """
    out = queries.new_zeros(queries.shape)
    for group in batch.decodes:
        out[group.start : group.stop] = _decode(queries, cache, layer, group)
    prefill = prefill_blockwise if queries.device.type == "cpu" else prefill_fused
    for span in batch.prefills:
        rows = slice(span.start, span.stop)
        out[rows] = prefill(queries[rows], cache, layer, span)
    return out.view(len(queries), -1)


def _decode(queries: Tensor, cache: KvCache, layer: int, group: DecodeGroup) -> Tensor:
    """Query heads that share a key head become its rows, so that each key is read once."""
    keys, values = cache.gather(layer, group.table)
    rows = queries[group.start : group.stop]
    grouped = rows.reshape(len(rows), keys.shape[1], -1, rows.shape[-1])
    out = scaled_dot_product_attention(grouped, keys, values, attn_mask=group.mask)
    return out.reshape(rows.shape)


def prefill_fused(queries: Tensor, cache: KvCache, layer: int, span: PrefillSpan) -> Tensor:
    """Outputs `[rows, heads, head_dim]` of the span's queries of the same size."""
    keys, values = cache.gather(layer, span.table)
    out = scaled_dot_product_attention(
        queries.transpose(0, 1)[None],
        keys[:, :, : span.length],
        values[:, :, : span.length],
        attn_mask=span.mask,
        is_causal=span.mask is None,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)
