"""Projections as FP8 checkpoints store them: e4m3 numbers beside `weight_scale` or
`weight_scale_inv`, which both multiply them.
"""

from collections.abc import Set
from pathlib import Path

from torch import Tensor

from inference.compact.config.quantization import Quantization
from inference.compact.grouped import Matrix
from inference.compact.load.safetensors import Safetensors
from inference.compact.scaled import E4M3, Scaled, scaled
from inference.errors import ModelError

SUFFIXES = ("_scale", "_scale_inv")


class ScaledSafetensors(Safetensors):
    """Has a `weight` with the scales that stand beside it, one for all, an output or a block."""

    def __init__(self, folder: Path, quantization: Quantization) -> None:
        super().__init__(folder)
        self._block = quantization.block
        self._scales = {
            name.removesuffix(suffix): name
            for name in self._files
            for suffix in SUFFIXES
            if name.endswith(f".weight{suffix}")
        }

    @property
    def names(self) -> Set[str]:
        return self._files.keys() - set(self._scales.values())

    def read(self, name: str, *size: int) -> Matrix:
        if name not in self._scales:
            return self.stored(name, *size)
        codes = self.stored(name, *size, dtypes=(E4M3,))
        if self._block is None:
            return Scaled(codes, self._by_output(self._scales[name], len(codes)))
        return self._of_blocks(codes, self._scales[name], *self._block)

    def _by_output(self, name: str, outputs: int) -> Tensor:
        found = self.stored(name)
        if found.numel() not in (1, outputs):
            shape = tuple(found.shape)
            raise ModelError(
                f"{self.path(name)}: {name}: is {shape}, must have 1 or {outputs} scales"
            )
        return found.float().flatten().expand(outputs).contiguous()

    def _of_blocks(self, codes: Tensor, name: str, rows: int, columns: int) -> Scaled:
        """Rounded anew, with a scale for each output: products take no others."""
        outputs, k = codes.shape
        found = self.stored(name, -(-outputs // rows), -(-k // columns))
        wide = found.float().repeat_interleave(rows, 0)[:outputs]
        return scaled(codes.float() * wide.repeat_interleave(columns, 1)[:, :k])
