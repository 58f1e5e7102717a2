"""FP8 weights: numbers of e4m3 with a scale for each output, and products of rows with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

E4M3 = torch.float8_e4m3fn
E4M3_MAX = torch.finfo(E4M3).max
# Sizes that torch's product of FP8 takes are multiples of this.
ALIGNED = 16
# Keeps the scale of zeros from being zero.
SCALE_MIN = 1e-12


@dataclass(frozen=True)
class Scaled:
    """A matrix `[outputs, k]` whose values are `code * scale` of their output.

    `codes` is e4m3 `[outputs, k]`, `scales` float32 `[outputs]`. With `narrow`, rows are rounded to
    FP8 for a product, each with its own scale; without, the matrix is widened for each product.
    """

    codes: Tensor
    scales: Tensor
    narrow: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        outputs, k = self.codes.shape
        return outputs, k

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes

    @property
    def aligned(self) -> bool:
        return not any(size % ALIGNED for size in self.shape)

    def dense(self) -> Tensor:
        """The values, float32 `[outputs, k]`."""
        return self.codes.float() * self.scales[:, None]

    def each(self, change: Callable[[Tensor], Tensor]) -> Scaled:
        """With codes and scales changed alike."""
        return Scaled(change(self.codes), change(self.scales), self.narrow)

    def finite(self) -> bool:
        """Whether all values are; e4m3 has no infinity."""
        return bool(self.scales.isfinite().all()) and not bool(self.codes.isnan().any())

    def product(self, x: Tensor) -> Tensor:
        """Rows `[rows, outputs]` of rows `[rows, k]`, in their dtype."""
        if not self.narrow:
            return linear(x, self.dense().to(x.dtype))
        rows = scaled(x)
        return torch._scaled_mm(
            rows.codes,
            self.codes.t(),
            scale_a=rows.scales[:, None],
            scale_b=self.scales[None],
            out_dtype=x.dtype,
        )


def scaled(values: Tensor) -> Scaled:
    """Round `[rows, k]` to the nearest, the largest of each row to the largest of e4m3."""
    wide = values.float()
    scales = (wide.abs().amax(1) / E4M3_MAX).clamp(min=SCALE_MIN)
    codes = (wide / scales[:, None]).clamp(-E4M3_MAX, E4M3_MAX).to(E4M3)
    return Scaled(codes, scales)
