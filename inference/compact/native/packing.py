"""Weights and cache as the C code reads them; see gemm.h and attention.h for the layouts."""

import contextlib
import math
import mmap

import torch
from torch import Tensor
from torch.nn.functional import pad

from inference.compact.grouped import NIBBLE_BITS, Grouped, Matrix, dense
from inference.compact.native.library import Linear
from inference.errors import ModelError

PANEL = 32
BLOCK = 32
# A power of two below which halves lie, and what the unit makes up for; see vector.h.
HALF_POWER = 15
HALF_BIAS = 112
# Weights are packed into pieces of memory of at least this size.
CHUNK_BYTES = 32 * 1024 * 1024


class Packer:
    """Packs tensors and keeps what it made, since C holds only addresses."""

    def __init__(self) -> None:
        self._kept: list[Tensor] = []
        self._memory = torch.empty(0, dtype=torch.bfloat16)
        # Of all matrices, and of the codes of those that are quantized.
        self.weight_bytes = 0
        self.bits: set[int] = set()

    def keep(self, tensor: Tensor) -> int:
        """Address of a tensor that lives as long as the packer."""
        self._kept.append(tensor)
        return tensor.data_ptr()

    def floats(self, tensor: Tensor | None) -> int | None:
        """Address of a float32 copy; None for None."""
        return None if tensor is None else self.keep(tensor.float().contiguous())

    def linear(self, weight: Matrix, bias: Tensor | None = None) -> Linear:
        """Pack `[outputs, k]` in bf16 or as codes, filled up with zeros to whole panels."""
        outputs, k = weight.shape
        panels = -(-outputs // PANEL)
        if bias is not None:
            bias = pad(bias, (0, panels * PANEL - outputs))
        if isinstance(weight, Grouped):
            return self._grouped(weight, self.floats(bias), panels)
        weight = dense(weight)
        packed = self._take(panels * PANEL * k).view(panels, k // 2, PANEL, 2)
        whole = outputs // PANEL
        packed[:whole] = weight[: whole * PANEL].view(whole, PANEL, k // 2, 2).transpose(1, 2)
        if whole < panels:
            rest = outputs - whole * PANEL
            packed[whole, :, :rest] = weight[whole * PANEL :].view(rest, k // 2, 2).transpose(0, 1)
        return Linear(self.keep(packed), self.floats(bias), k, panels, outputs)

    def _grouped(self, weight: Grouped, bias: int | None, panels: int) -> Linear:
        outputs, k = weight.shape
        bits, groups = weight.bits, k // weight.group
        self.bits.add(bits)
        centres = weight.least + weight.scales * 2 ** (bits - 1)
        factors = [weight.scales, centres] if bool(centres.any()) else [weight.scales]
        # As large as halves may be, which are less exact where they are small.
        greatest = max(float(each.abs().max()) for each in factors)
        power = HALF_POWER - math.frexp(greatest)[1]
        more = panels * PANEL - outputs
        halves = (pad(each * 2.0**power, (0, 0, 0, more)).half() for each in factors)
        parts = [each.view(panels, PANEL, groups).mT.contiguous() for each in halves]
        quads = pad(weight.unpacked(), (0, 0, 0, more)).view(panels, PANEL, -1, 8 // bits, 4)
        codes = quads[..., 0, :]
        if bits == NIBBLE_BITS:
            codes = codes | quads[..., 1, :] << NIBBLE_BITS
        parts.append(codes.transpose(1, 2).reshape(panels, groups, -1))
        stored = torch.cat([each.view(torch.uint8) for each in parts], dim=-1)
        packed = self._take(stored.numel() // 2).view(torch.uint8).view(stored.shape).copy_(stored)
        return Linear(
            self.keep(packed), bias, k, panels, outputs, bits, weight.group, len(factors) - 1,
            2.0 ** (HALF_BIAS - power),
        )  # fmt: skip

    def gated(self, weight: Matrix, bias: Tensor | None = None) -> Linear:
        """Pack gates and ups `[2 * inner, k]` so that each panel holds 16 gates and their ups."""
        half = PANEL // 2

        def interleaved(both: Tensor) -> Tensor:
            pairs = both.view(2, -1, half, *both.shape[1:])
            return pairs.transpose(0, 1).reshape(both.shape)

        mixed = (
            weight.each(interleaved) if isinstance(weight, Grouped) else interleaved(dense(weight))
        )
        return self.linear(mixed, None if bias is None else interleaved(bias))

    def _take(self, count: int) -> Tensor:
        """Zeroed bf16 values in huge pages: small pages cost a third of the memory's speed."""
        if count > len(self._memory):
            size = max(CHUNK_BYTES, count * self._memory.itemsize)
            self._memory = torch.frombuffer(map_huge(size), dtype=torch.bfloat16)
        self.weight_bytes += count * self._memory.itemsize
        taken, self._memory = self._memory[:count], self._memory[count:]
        return taken


def map_huge(size: int) -> mmap.mmap:
    """Zeroed memory that is taken only when touched, in huge pages where the system has them;
    raises `ModelError`.
    """
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise ModelError(f"kernels: no memory of {size} bytes: {error}") from error
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
