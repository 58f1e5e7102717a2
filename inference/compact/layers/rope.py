"""Rotary position embedding in the rotate-half convention of Hugging Face checkpoints."""

import math

import torch
from torch import Tensor

from inference.compact.config.rope import Llama3Scaling, RopeScaling, YarnScaling
from inference.compact.config.shape import ModelShape


def rope_table(shape: ModelShape) -> Tensor:
    """Cosines and signed sines of every position, `[positions, 2, head_dim]`, float32.

    The first half of the sines is negated, so that rotating a head needs no negation.
    """
    rope = shape.rope
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.int64).float() / shape.head_dim
    frequencies = _stretched(1.0 / rope.theta**exponents, rope.scaling)
    angles = torch.outer(torch.arange(shape.context_window).float(), frequencies)
    cos, sin = angles.cos(), angles.sin()
    table = torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), dim=1)
    return table * rope.scaling.magnitude if isinstance(rope.scaling, YarnScaling) else table


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn `[rows, heads, head_dim]` by `[rows, 1, head_dim]` tables."""
    swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
    return torch.addcmul(heads * cos, swapped, sin)


def _stretched(frequencies: Tensor, scaling: RopeScaling | None) -> Tensor:
    if scaling is None:
        return frequencies
    if isinstance(scaling, Llama3Scaling):
        return _llama3(frequencies, scaling)
    if isinstance(scaling, YarnScaling):
        return _yarn(frequencies, scaling)
    return frequencies / scaling.factor


def _llama3(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Long waves are stretched by the factor, short ones kept, those between blended."""
    waves = 2 * math.pi / frequencies
    low = scaling.original_context / scaling.low_freq_factor
    high = scaling.original_context / scaling.high_freq_factor
    blend = (scaling.original_context / waves - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    scaled = torch.where(waves > low, frequencies / scaling.factor, frequencies)
    return torch.where((waves <= low) & (waves >= high), blended, scaled)


def _yarn(frequencies: Tensor, scaling: YarnScaling) -> Tensor:
    """Fast dimensions are kept, slow ones stretched by the factor, those between blended."""
    dimensions = torch.arange(len(frequencies), dtype=torch.float32)
    ramp = (dimensions - scaling.kept_to) / (scaling.stretched_from - scaling.kept_to)
    stretched = ramp.clamp(0, 1)
    return frequencies / scaling.factor * stretched + frequencies * (1 - stretched)
