"""Tensor parallelism: what one of several processes of a host holds and computes of a model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inference.compact.models.layers import EXPERT_SIZE_STEP
from inference.compact.models.shape import ModelShape
from inference.engines.base import ModelError


@dataclass(frozen=True, slots=True)
class Share:
    """The part of one process, `rank`, of `size` equal ones."""

    rank: int = 0
    size: int = 1

    def of(self, length: int) -> slice:
        """This process's part of a dimension; `size` must divide it."""
        step = length // self.size
        return slice(self.rank * step, (self.rank + 1) * step)


WHOLE = Share()


def shape_of_share(shape: ModelShape, size: int) -> ModelShape:
    """What each of `size` processes computes; raises `ModelError` where it cannot be divided."""
    divided = {field: getattr(shape, field) for field in ("heads", "kv_heads", "intermediate_size")}
    if shape.experts is not None:
        divided["width of experts"] = shape.experts.width // EXPERT_SIZE_STEP
    for field, length in divided.items():
        if length % size:
            raise ModelError(f"tensor_parallel: {size} processes cannot divide the model's {field}")
    return replace(
        shape,
        heads=shape.heads // size,
        kv_heads=shape.kv_heads // size,
        intermediate_size=shape.intermediate_size // size,
    )
