"""The tensors behind the block pool: keys and values of all layers, in blocks of tokens."""

import numpy as np
import torch
from torch import Tensor

from inference.compact.config.shape import ModelShape
from inference.compact.load.placement import Placement


class KvCache:
    """Per layer `[blocks, block_size, 2, kv_heads, head_dim]`: one gathered row holds a block's
    keys and values, and a sequence's gathered blocks are a plain token axis.
    """

    def __init__(self, shape: ModelShape, placement: Placement) -> None:
        self.block_size = placement.block_size
        # One block more than the pool knows of takes what padding rows would store.
        self.spare_slot = placement.kv_blocks * placement.block_size
        size = (
            shape.layers, placement.kv_blocks + 1, placement.block_size, 2, shape.kv_heads,
            shape.head_dim,
        )  # fmt: skip
        self.blocks = zeros(size, placement)
        # The same memory by token, for storing: of a layer `[tokens, 2, kv_heads, head_dim]`.
        self.slots = self.blocks.view(shape.layers, -1, 2, shape.kv_heads, shape.head_dim)

    def gather(self, layer: int, table: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values `[batch, kv_heads, tokens, head_dim]` of block tables `[batch, n]`."""
        batch, count = table.shape
        blocks = self.blocks[layer].index_select(0, table.view(-1))
        both = blocks.view(batch, count * self.block_size, 2, *blocks.shape[3:])
        return both[:, :, 0].transpose(1, 2), both[:, :, 1].transpose(1, 2)


def zeros(size: tuple[int, ...], placement: Placement) -> Tensor:
    """Zeros that take no memory on a CPU until touched (calloc). Not uninitialized memory: a
    masked position still multiplies its value by zero, and zero times NaN is NaN.
    """
    if placement.device != "cpu":
        return torch.zeros(size, dtype=placement.torch_dtype, device=placement.device)
    item = placement.torch_dtype.itemsize
    raw = np.zeros(int(np.prod(size)) * item, dtype=np.uint8)
    return torch.from_numpy(raw).view(placement.torch_dtype).view(size)
