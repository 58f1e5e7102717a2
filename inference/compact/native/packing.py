"""Weights and cache as the C code reads them; see gemm.h and attention.h for the layouts."""

from __future__ import annotations

import mmap

import torch
from torch import Tensor

from inference.compact.native.library import Linear

PANEL = 32
BLOCK = 32


class Packer:
    """Packs tensors and keeps what it made, since C holds only addresses."""

    def __init__(self) -> None:
        self._kept: list[Tensor] = []

    def keep(self, tensor: Tensor) -> int:
        """Address of a tensor that lives as long as the packer."""
        self._kept.append(tensor)
        return tensor.data_ptr()

    def floats(self, tensor: Tensor | None) -> int | None:
        """Address of a float32 copy; None for None."""
        return None if tensor is None else self.keep(tensor.float().contiguous())

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        """Pack `[outputs, k]` in bf16, filled up with zeros to whole panels."""
        outputs, k = weight.shape
        panels = -(-outputs // PANEL)
        padded = weight.new_zeros(panels * PANEL, k)
        padded[:outputs] = weight
        packed = padded.view(panels, PANEL, k // 2, 2).transpose(1, 2).contiguous()
        if bias is not None:
            filled = torch.zeros(panels * PANEL)
            filled[:outputs] = bias
            bias = filled
        return Linear(self.keep(packed), self.floats(bias), k, panels, outputs)

    def gated(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        """Pack gates and ups `[2 * inner, k]` so that each panel holds 16 gates and their ups."""
        half = PANEL // 2

        def interleaved(both: Tensor) -> Tensor:
            pairs = both.view(2, -1, half, *both.shape[1:])
            return pairs.transpose(0, 1).reshape(both.shape)

        return self.linear(interleaved(weight), None if bias is None else interleaved(bias))


def map_huge(size: int) -> mmap.mmap:
    """Zeroed memory that is taken only when touched, in huge pages where the system has them."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def unpack_block(block: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values `[32, head_dim]` of one packed block of one key head `[64 * head_dim]`."""
    keys, values = block.view(2, -1)
    head_dim = len(keys) // BLOCK
    unpacked_keys = keys.view(head_dim // 2, BLOCK, 2).transpose(0, 1).reshape(BLOCK, head_dim)
    unpacked_values = values.view(BLOCK // 2, head_dim, 2).transpose(1, 2).reshape(BLOCK, head_dim)
    return unpacked_keys, unpacked_values
