"""Our own quantization of weights that a checkpoint stores in full: round to nearest in groups."""

import torch
from torch import Tensor

from inference.compact.grouped import NIBBLE_BITS, Grouped, Matrix, paired
from inference.compact.options import FP8, QUANTIZE
from inference.compact.scaled import scaled

# Inputs that share a scale.
GROUP = 32
# Parts of the scale that would cut nothing off: of few codes, rather the least errors in all.
CUTS = (1.0, 0.95, 0.9, 0.85, 0.8)


def rounded(weight: Matrix, quantize: str) -> Matrix:
    """As the option says; as it is if it is quantized, or k has no whole groups where it must."""
    if quantize == FP8 and isinstance(weight, Tensor):
        return scaled(weight)
    bits = QUANTIZE[quantize]
    if not bits or not isinstance(weight, Tensor) or weight.shape[1] % GROUP:
        return weight
    return quantized(weight, bits)


def quantized(weight: Tensor, bits: int) -> Grouped:
    """Round `[outputs, k]`, with k in whole groups of `GROUP`; the scale has the least squared
    error of those tried, each fitted to its codes.
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
    scales = scales.squeeze(-1)
    return Grouped(paired(codes) if bits == NIBBLE_BITS else codes, scales, scales * -offset, bits)


def _codes(values: Tensor, scales: Tensor, offset: int) -> Tensor:
    """Nearest codes from `-offset` on; zero where all values are."""
    return (values / scales).nan_to_num(0).round().clamp(-offset, offset - 1)
