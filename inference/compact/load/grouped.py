"""Quantized weights: whole numbers in groups along the inputs, as GGUF, GPTQ and AWQ store them."""

from dataclasses import dataclass

import torch
from torch import Tensor

NIBBLE_BITS = 4


@dataclass(frozen=True)
class Grouped:
    """A matrix `[outputs, k]` whose values are `code * scale + least` of their group.

    `codes` is uint8 `[outputs, k * bits / 8]`, of 4 bits the earlier input in a byte's low half;
    `scales` and `least` are float32 `[outputs, k / group]`.
    """

    codes: Tensor
    scales: Tensor
    least: Tensor
    bits: int

    @property
    def shape(self) -> tuple[int, int]:
        outputs, stored = self.codes.shape
        return outputs, stored * 8 // self.bits

    @property
    def group(self) -> int:
        return self.shape[1] // self.scales.shape[1]

    def unpacked(self) -> Tensor:
        """One code a byte, `[outputs, k]`."""
        if self.bits != NIBBLE_BITS:
            return self.codes
        halves = (self.codes & 0xF, self.codes >> NIBBLE_BITS)
        return torch.stack(halves, dim=-1).view(self.shape)

    def dense(self) -> Tensor:
        """The values, float32 `[outputs, k]`."""
        codes = self.unpacked().view(*self.scales.shape, self.group).float()
        return torch.addcmul(self.least[..., None], codes, self.scales[..., None]).view(self.shape)
