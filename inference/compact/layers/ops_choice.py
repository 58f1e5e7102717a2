"""Which layer operators are used: the fused kernels where they run and agree with torch's."""

import logging
from collections.abc import Iterator

import torch
from torch import Tensor

from inference.compact.candidates import Candidates, first_that_agrees
from inference.compact.config.shape import ModelShape
from inference.compact.layers.ops import PLAIN, HeadSizes, LayerOps
from inference.compact.load.placement import Placement

log = logging.getLogger("inference.compact")

FUSED = (("inference.compact.layers.ops_triton", "FUSED"),)
ROWS = 5
SLOTS = 9
# Norm of the difference, relative to the right result.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def choose_ops(shape: ModelShape, placement: Placement, candidates: Candidates = FUSED) -> LayerOps:
    """Torch's own on a CPU; elsewhere the fused kernels, with a warning where they cannot be."""
    if placement.device == "cpu":
        return PLAIN
    trial = OpsTrial(shape, placement)
    found: LayerOps | None = first_that_agrees(candidates, trial.agrees)
    if found is None:
        log.warning("norms, heads and gates are computed by torch's operators, which is slower")
    return found or PLAIN


class OpsTrial:
    """Random rows of the model's own sizes; torch's operators say what is right."""

    def __init__(self, shape: ModelShape, placement: Placement) -> None:
        self.shape = shape
        self.sizes = HeadSizes(shape.heads, shape.kv_heads, shape.head_dim, shape.norm_eps)
        self.empty = torch.empty(0, dtype=placement.torch_dtype, device=placement.device)

    def agrees(self, other: LayerOps) -> bool:
        """Whether everything it computes and stores is what torch's operators do."""
        pairs = zip(self._results(other), self._results(PLAIN), strict=True)
        return all(self._close(found.float(), right.float()) for found, right in pairs)

    def _close(self, found: Tensor, right: Tensor) -> bool:
        difference = (found - right).norm() / right.norm()
        return bool(difference <= TOLERANCES[self.empty.dtype])

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
            kept = self.empty.new_zeros(SLOTS, 2, kv_heads, dim)
            fused = normal(ROWS, (heads + 2 * kv_heads) * dim)
            yield ops.place_heads(fused, norms, turn, slots, kept, self.sizes)
            yield kept
