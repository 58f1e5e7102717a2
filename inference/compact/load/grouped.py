"""Quantized weights: whole numbers in groups along the inputs, as GGUF, GPTQ and AWQ store them."""

from dataclasses import dataclass

import torch
from torch import Tensor

NIBBLE_BITS = 4
# Inputs that share a scale where we quantize, and shares of the scale that would cut off nothing.
GROUP = 32
CUTS = (1.0, 0.95, 0.9, 0.85, 0.8)


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


def quantized(weight: Tensor, bits: int) -> Grouped:
    """Round `[outputs, k]` in groups of `GROUP`, which divides k.

    The scale is that of `CUTS` with the least squared error, then fitted to its codes.
    """
    offset = 2 ** (bits - 1)
    values = weight.float().view(len(weight), -1, GROUP)
    place = values.abs().argmax(-1, keepdim=True)
    # The greatest value takes the lowest code, which has no counterpart.
    whole = values.gather(-1, place) / -offset
    scales, least_error = whole, torch.full_like(whole, torch.inf)
    for cut in CUTS if bits == NIBBLE_BITS else CUTS[:1]:
        codes = _codes(values, whole * cut, offset)
        squares = codes.square().sum(-1, keepdim=True)
        fitted = (codes * values).sum(-1, keepdim=True) / squares.clamp(min=1)
        error = torch.addcmul(values, codes, fitted, value=-1).square().sum(-1, keepdim=True)
        scales = torch.where(error < least_error, fitted, scales)
        least_error = error.minimum(least_error)
    codes = (_codes(values, scales, offset) + offset).to(torch.uint8).view(weight.shape)
    if bits == NIBBLE_BITS:
        codes = codes[:, ::2] | codes[:, 1::2] << NIBBLE_BITS
    scales = scales.squeeze(-1)
    return Grouped(codes, scales, scales * -offset, bits)


def _codes(values: Tensor, scales: Tensor, offset: int) -> Tensor:
    """Nearest codes from `-offset` on; where all values are zero, so are they."""
    return (values / scales).nan_to_num(0).round().clamp(-offset, offset - 1)
