"""One model on several processes of a host: each holds a share of the heads and of the width."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


def shape_of_share(shape: ModelShape, share: Share) -> ModelShape:
    """What one process computes; raises `ModelError` where the shape cannot be divided."""
    for field in ("heads", "kv_heads", "intermediate_size"):
        if getattr(shape, field) % share.size:
            raise ModelError(
                f"tensor_parallel: {share.size} does not divide {field} = {getattr(shape, field)}"
            )
    return replace(
        shape,
        heads=shape.heads // share.size,
        kv_heads=shape.kv_heads // share.size,
        intermediate_size=shape.intermediate_size // share.size,
    )
