"""Attention by torch's fused kernels over gathered blocks: the fallback on any device but a CPU."""

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from inference.compact.attention.cache import KvCache
from inference.compact.batch.tensors import DecodeGroup, PrefillSpan


def decode_fused(queries: Tensor, cache: KvCache, layer: int, group: DecodeGroup) -> Tensor:
    """Outputs `[rows, heads, head_dim]` of the group's queries of the same size.

    Query heads that share a key head become its rows, so that each key is read once.
    """
    keys, values = cache.gather(layer, group.table)
    grouped = queries.reshape(len(queries), keys.shape[1], -1, queries.shape[-1])
    out = scaled_dot_product_attention(grouped, keys, values, attn_mask=group.added)
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
