"""The tensors behind the block pool: keys and values of all layers, in blocks of tokens.

In FP8 each key and each value of a token and head has a scale of its own. One for a whole block
would have to be known before the block's later tokens are, or change what is stored already; so a
token is stored the same in whatever step, and needs no calibration (vLLM has this, too, as
`fp8_per_token_head`).
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from inference.compact.config.shape import ModelShape
from inference.compact.load.placement import Placement
from inference.compact.scaled import E4M3, E4M3_MAX, SCALE_MIN

SCALE_DTYPE = torch.bfloat16


class Kept(NamedTuple):
    """Keys and values of one layer by token, `[tokens, 2, kv_heads, head_dim]`; if they are e4m3,
    with scales `[tokens, 2, kv_heads]`.
    """

    values: Tensor
    scales: Tensor | None = None

    def put(self, slots: Tensor, keys_values: Tensor) -> None:
        """Store `[slots, 2, kv_heads, head_dim]`."""
        if self.scales is None:
            self.values.index_copy_(0, slots, keys_values)
            return
        codes, scales = coded(keys_values)
        # Torch copies no numbers of eight bits but these.
        self.values.view(torch.uint8).index_copy_(0, slots, codes.view(torch.uint8))
        self.scales.index_copy_(0, slots, scales)

    def take(self, slots: Tensor, dtype: torch.dtype) -> Tensor:
        """What was stored, rounded."""
        return _taken(self.values, self.scales, slots, dtype)


class KvCache:
    """Per layer `[blocks, block_size, 2, kv_heads, head_dim]`: one gathered row holds a block's
    keys and values, and a sequence's gathered blocks are a plain token axis.
    """

    def __init__(self, shape: ModelShape, placement: Placement) -> None:
        self.dtype = placement.torch_dtype
        self.block_size = placement.block_size
        # One block more than the pool knows of takes what padding rows would store.
        self.spare_slot = placement.kv_blocks * placement.block_size
        size = (
            shape.layers, placement.kv_blocks + 1, placement.block_size, 2, shape.kv_heads,
            shape.head_dim,
        )  # fmt: skip
        self.scales: Tensor | None = None
        if placement.kv_dtype == "fp8":
            self.blocks = zeros(size, placement.device, E4M3)
            self.scales = zeros(size[:-1], placement.device, SCALE_DTYPE)
        else:
            self.blocks = zeros(size, placement.device, self.dtype)
        # The same memory by token, of each layer.
        parts = [None] * shape.layers if self.scales is None else self.scales.flatten(1, 2)
        self.kept = [Kept(*both) for both in zip(self.blocks.flatten(1, 2), parts, strict=True)]

    def gather(self, layer: int, table: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values `[batch, kv_heads, tokens, head_dim]` of block tables `[batch, n]`."""
        batch, count = table.shape
        scales = None if self.scales is None else self.scales[layer]
        blocks = _taken(self.blocks[layer], scales, table.view(-1), self.dtype)
        both = blocks.view(batch, count * self.block_size, 2, *blocks.shape[3:])
        return both[:, :, 0].transpose(1, 2), both[:, :, 1].transpose(1, 2)


def coded(values: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of e4m3 and scales of the last dimension, whose largest value gets the largest code.

    Rounding a scale moves that by less than what rounds to the largest code all the same.
    """
    wide = values.float()
    scales = (wide.abs().amax(-1) / E4M3_MAX).clamp(min=SCALE_MIN).to(SCALE_DTYPE)
    return (wide / scales.float()[..., None]).to(E4M3), scales


def _taken(values: Tensor, scales: Tensor | None, rows: Tensor, dtype: torch.dtype) -> Tensor:
    if scales is None:
        return values.index_select(0, rows)
    codes = values.view(torch.uint8).index_select(0, rows).view(E4M3)
    return codes.to(dtype) * scales.index_select(0, rows).to(dtype)[..., None]


def zeros(size: tuple[int, ...], device: str, dtype: torch.dtype) -> Tensor:
    """Zeros that take no memory on a CPU until touched (calloc). Not uninitialized memory: a
    masked position still multiplies its value by zero, and zero times NaN is NaN.
    """
    if device != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    raw = np.zeros(int(np.prod(size)) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).view(size)
