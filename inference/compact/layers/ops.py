"""What a layer computes between its matrix products: norms, rotary heads and their cache, the gate.

Here with torch's operators, as on CPUs; `ops_triton` has each as one GPU kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from inference.compact.layers.rope import rotate


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
    place_heads: Callable[[Tensor, Norms, Tensor | None, Tensor, Tensor, HeadSizes], Tensor]
    gate: Callable[[Tensor], Tensor]


def add_norm(x: Tensor, added: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """The norm of x, `[rows, hidden]`, to which `added` is added first, in place."""
    if added is not None:
        x += added
    return rms_norm(x, weight.shape, weight, eps)


def place_heads(
    fused: Tensor, norms: Norms, turn: Tensor | None, slots: Tensor, kept: Tensor, sizes: HeadSizes
) -> Tensor:
    """Queries `[rows, heads, dim]` of a projection `[rows, all heads * dim]`; its keys and values
    go to the `slots` of `kept`, `[tokens, 2, kv_heads, dim]`.

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
    kept.index_copy_(0, slots, keys_values)
    return queries_keys[:, : sizes.heads]


def gate(fused: Tensor) -> Tensor:
    """Of `[rows, 2 * width]` the second half, by the SiLU of the first."""
    opened, passed = fused.chunk(2, dim=-1)
    return silu(opened).mul_(passed)


PLAIN = LayerOps(add_norm=add_norm, place_heads=place_heads, gate=gate)
