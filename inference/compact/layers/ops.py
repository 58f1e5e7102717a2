"""What a layer computes between its matrix products: norms, rotary heads and their cache, the gate.

Here with torch's operators, as on CPUs; `ops_triton` has each as one GPU kernel, used where those
run and agree.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from inference.compact.attention.cache import SCALE_DTYPE, Kept
from inference.compact.candidates import Candidates, first_that_agrees
from inference.compact.config.rope import Llama3Scaling, RopeScaling, YarnScaling
from inference.compact.config.shape import ModelShape
from inference.compact.load.placement import Placement
from inference.compact.scaled import E4M3

FUSED = (("inference.compact.layers.ops_triton", "FUSED"),)
ROWS = 5
SLOTS = 9
# Norm of the difference, relative to the right result.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
# In FP8 a last bit more or less before rounding may be an eighth after it.
TOLERANCE_CODED = 3e-2


class HeadSizes(NamedTuple):
    """The parts of a row of a fused projection: query heads, key heads, as many value heads."""

    heads: int
    kv_heads: int
    dim: int
    norm_eps: float


# Weights of the norms of queries and of keys, where a model has them.
Norms = tuple[Tensor, Tensor] | None


@dataclass(frozen=True, kw_only=True)
class LayerOps:
    """One implementation of all three."""

    add_norm: Callable[[Tensor, Tensor | None, Tensor, float], Tensor]
    place_heads: Callable[[Tensor, Norms, Tensor | None, Tensor, Kept, HeadSizes], Tensor]
    gate: Callable[[Tensor], Tensor]


def add_norm(x: Tensor, added: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """The norm of x, `[rows, hidden]`, to which `added` is added first, in place."""
    if added is not None:
        x += added
    return rms_norm(x, weight.shape, weight, eps)


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
    """Turn `[rows, heads, head_dim]` by `[rows, 1, head_dim]` tables, in the rotate-half convention
    of Hugging Face checkpoints.
    """
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


def place_heads(
    fused: Tensor, norms: Norms, turn: Tensor | None, slots: Tensor, kept: Kept, sizes: HeadSizes
) -> Tensor:
    """Queries `[rows, heads, dim]` of a projection `[rows, all heads * dim]`; its keys and values
    go to the `slots` of `kept`.

    `turn` holds cosines and signed sines of each row, `[rows, 2, dim]`; None where nothing turns.
    """
    heads = fused.view(len(fused), -1, sizes.dim)
    turning = sizes.heads + sizes.kv_heads
    queries_keys, values = heads[:, :turning], heads[:, turning:]
    if norms is not None:
        parts = queries_keys[:, : sizes.heads], queries_keys[:, sizes.heads :]
        normed = [
            rms_norm(part, weight.shape, weight, sizes.norm_eps)
            for part, weight in zip(parts, norms, strict=True)
        ]
        queries_keys = torch.cat(normed, dim=1)
    if turn is not None:
        queries_keys = rotate(queries_keys, turn[:, 0, None], turn[:, 1, None])
    keys_values = torch.stack((queries_keys[:, sizes.heads :], values), dim=1)
    kept.put(slots, keys_values)
    return queries_keys[:, : sizes.heads]


def gate(fused: Tensor) -> Tensor:
    """Of `[rows, 2 * width]` the second half, by the SiLU of the first."""
    opened, passed = fused.chunk(2, dim=-1)
    return silu(opened).mul_(passed)


PLAIN = LayerOps(add_norm=add_norm, place_heads=place_heads, gate=gate)


def choose_ops(shape: ModelShape, placement: Placement, candidates: Candidates = FUSED) -> LayerOps:
    """Torch's own on a CPU; elsewhere the fused kernels, with a warning where they cannot be."""
    if placement.device == "cpu":
        return PLAIN
    trial = OpsTrial(shape, placement)
    slow = "norms, heads and gates are computed"
    found: LayerOps | None = first_that_agrees(candidates, trial.agrees, slow=slow)
    return found or PLAIN


class OpsTrial:
    """Random rows of the model's own sizes; torch's operators say what is right."""

    def __init__(self, shape: ModelShape, placement: Placement) -> None:
        self.shape = shape
        self.sizes = HeadSizes(shape.heads, shape.kv_heads, shape.head_dim, shape.norm_eps)
        self.empty = torch.empty(0, dtype=placement.torch_dtype, device=placement.device)
        self.coded = placement.kv_dtype == "fp8"
        self.tolerance = TOLERANCE_CODED if self.coded else TOLERANCES[self.empty.dtype]

    def agrees(self, other: LayerOps) -> bool:
        """Whether everything it computes and stores is what torch's operators do."""
        pairs = zip(self._results(other), self._results(PLAIN), strict=True)
        return all(self._close(found.float(), right.float()) for found, right in pairs)

    def _close(self, found: Tensor, right: Tensor) -> bool:
        difference = (found - right).norm() / right.norm()
        return bool(difference <= self.tolerance)

    def _results(self, ops: LayerOps) -> Iterator[Tensor]:
        """Its results, always from the same random numbers."""
        random = torch.Generator(self.empty.device).manual_seed(1)

        def normal(*size: int) -> Tensor:
            return self.empty.new_empty(size).normal_(generator=random)

        x, added = normal(ROWS, self.shape.hidden_size), None
        weight = normal(self.shape.hidden_size)
        for _ in range(2):
            yield ops.add_norm(x, added, weight, self.shape.norm_eps)
            yield x.clone()
            added = normal(*x.shape)
        yield ops.gate(normal(ROWS, 2 * self.shape.intermediate_size))
        heads, kv_heads, dim, _ = self.sizes
        norms = (normal(dim), normal(dim)) if self.shape.qk_norm else None
        slots = torch.arange(SLOTS - 1, SLOTS - 1 - ROWS, -1, device=self.empty.device)
        for turn in (normal(ROWS, 2, dim), None):
            size = (SLOTS, 2, kv_heads, dim)
            kept = Kept(self.empty.new_zeros(size))
            if self.coded:
                scales = self.empty.new_zeros(size[:-1], dtype=SCALE_DTYPE)
                kept = Kept(self.empty.new_zeros(size, dtype=E4M3), scales)
            fused = normal(ROWS, (heads + 2 * kv_heads) * dim)
            yield ops.place_heads(fused, norms, turn, slots, kept, self.sizes)
            yield kept.take(torch.arange(SLOTS, device=slots.device), self.empty.dtype)
