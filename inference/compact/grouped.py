"""Quantized weights: whole numbers in groups along the inputs, as GGUF, GPTQ and AWQ store them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.compact.scaled import Scaled

NIBBLE_BITS = 4
BYTE_BITS = 8


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

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes + self.least.nbytes

    def unpacked(self) -> Tensor:
        """One code a byte, `[outputs, k]`."""
        if self.bits != NIBBLE_BITS:
            return self.codes
        return nibbles(self.codes)

    def dense(self) -> Tensor:
        """The values, float32 `[outputs, k]`."""
        codes = self.unpacked().view(*self.scales.shape, self.group).float()
        return torch.addcmul(self.least[..., None], codes, self.scales[..., None]).view(self.shape)

    def each(self, change: Callable[[Tensor], Tensor]) -> Grouped:
        """With codes, scales and least changed alike."""
        return Grouped(change(self.codes), change(self.scales), change(self.least), self.bits)

    def regrouped(self, bits: int, groups: int) -> Grouped:
        """The same values with codes as wide, and as many groups as a multiple of those here."""
        codes = self.codes if bits == self.bits else self.unpacked()
        repeats = groups // self.scales.shape[1]
        scales, least = (each.repeat_interleave(repeats, 1) for each in (self.scales, self.least))
        return Grouped(codes, scales, least, bits)


def nibbles(packed: Tensor) -> Tensor:
    """Two values a byte of the last dimension, the low half first."""
    halves = (packed & 0xF, packed >> NIBBLE_BITS)
    return torch.stack(halves, dim=-1).flatten(-2)


def paired(codes: Tensor) -> Tensor:
    """What `nibbles` takes apart."""
    return codes[..., ::2] | codes[..., 1::2] << NIBBLE_BITS


Matrix = Tensor | Grouped | Scaled


def fused(parts: Sequence[Matrix]) -> Matrix:
    """One below the other; all dense if one is or not all are of a kind, else, of codes in groups,
    all with the most bits and groups of any.
    """
    grouped = [part for part in parts if isinstance(part, Grouped)]
    if len(parts) == 1:
        return parts[0]
    whole = [part for part in parts if isinstance(part, Scaled)]
    if len(whole) == len(parts):
        codes, scales = ([getattr(part, name) for part in whole] for name in ("codes", "scales"))
        return Scaled(torch.cat(codes), torch.cat(scales))
    if len(grouped) < len(parts):
        return torch.cat([dense(part) for part in parts])
    bits = max(part.bits for part in grouped)
    groups = max(part.scales.shape[1] for part in grouped)
    alike = [part.regrouped(bits, groups) for part in grouped]
    return Grouped(
        torch.cat([part.codes for part in alike]),
        torch.cat([part.scales for part in alike]),
        torch.cat([part.least for part in alike]),
        bits,
    )


def dense(weight: Matrix) -> Tensor:
    """The values."""
    return weight if isinstance(weight, Tensor) else weight.dense()
