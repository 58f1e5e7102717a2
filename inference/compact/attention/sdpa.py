"""Attention over the paged cache by torch alone: gather blocks, then attend.

The fused kernels here are for GPUs; on a CPU plain matrix products (`blockwise`) are faster.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from inference.compact.attention.blockwise import decode_products, prefill_blockwise
from inference.compact.attention.cache import KvCache
from inference.compact.batch import AttentionPlan, DecodeGroup, PrefillSpan


def attend(queries: Tensor, cache: KvCache, layer: int, plan: AttentionPlan) -> Tensor:
    """Outputs `[rows, heads * head_dim]` of queries `[rows, heads, head_dim]`; the step's own keys
    and values must have been stored.
    """
    on_cpu = queries.device.type == "cpu"
    decode = decode_products if on_cpu else decode_fused
    prefill = prefill_blockwise if on_cpu else prefill_fused
    out = queries.new_zeros(queries.shape)
    for group in plan.decodes:
        rows = slice(group.start, group.stop)
        out[rows] = decode(queries[rows], cache, layer, group)
    for span in plan.prefills:
        rows = slice(span.start, span.stop)
        out[rows] = prefill(queries[rows], cache, layer, span)
    return out.view(len(queries), -1)


def decode_fused(queries: Tensor, cache: KvCache, layer: int, group: DecodeGroup) -> Tensor:
    """Outputs `[rows, heads, head_dim]` of the group's queries of the same size.

    Query heads that share a key head become its rows, so that each key is read once.
    """
    keys, values = cache.gather(layer, group.table)
    grouped = queries.reshape(len(queries), keys.shape[1], -1, queries.shape[-1])
    out = scaled_dot_product_attention(grouped, keys, values, attn_mask=group.mask)
    return out.reshape(queries.shape)


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
