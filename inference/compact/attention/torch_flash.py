"""Prefill with torch's own flash attention, over gathered blocks; half precision only.

Twice as fast on a long prompt as our own paged kernel (8,192 tokens, 32 heads of 128 on an H100:
0.9 against 1.6 ms). Called by its internal name, since torch's public function supports neither
fewer rows than keys nor a window without building masks.
"""

import torch
from torch import Tensor

from inference.compact.attention.cache import KvCache
from inference.compact.batch.tensors import PrefillSpan


def prefill_torch_flash(queries: Tensor, cache: KvCache, layer: int, span: PrefillSpan) -> Tensor:
    """Outputs `[rows, heads, head_dim]` of the span's queries of the same size."""
    keys, values = (
        part[:, :, : span.length].transpose(1, 2) for part in cache.gather(layer, span.table)
    )
    # Its causal mask is aligned to the last key, and its window counts the keys to a row's left.
    found: tuple[Tensor, ...] = torch.ops.aten._flash_attention_forward(
        queries[None], keys, values, None, None, len(queries), span.length, 0.0, True, False,
        window_size_left=None if span.window is None else span.window - 1, window_size_right=0,
    )  # fmt: skip
    return found[0][0]
