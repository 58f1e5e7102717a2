"""Projections as GPTQ and AWQ pack them into safetensors: words of 32 bits with 4 or 8 codes."""

from collections.abc import Set
from pathlib import Path

import torch
from torch import Tensor

from inference.compact.config.quantization import CODES, GROUPS, PARTS, SCALES, ZEROS, Quantization
from inference.compact.grouped import BYTE_BITS, Grouped, nibbles, paired
from inference.compact.load.safetensors import Safetensors
from inference.errors import ModelError

WORD_BITS = 32
# Which code of a word is the output at each place, in AWQ's order for "gemm".
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


class PackedSafetensors(Safetensors):
    """Has a `weight` for every module with packed codes, in place of its parts."""

    def __init__(self, folder: Path, quantization: Quantization) -> None:
        super().__init__(folder)
        self._quantization = quantization
        packed = f".{CODES}"
        self._modules = [n.removesuffix(CODES) for n in self._files if n.endswith(packed)]
        self._files |= {f"{each}weight": self._files[each + CODES] for each in self._modules}

    @property
    def names(self) -> Set[str]:
        """Without parts, and without the biases of zeros that GPTQ gives to modules with none."""
        parts = {module + part for module in self._modules for part in PARTS}
        biases = self._files.keys() & {f"{module}bias" for module in self._modules}
        return self._files.keys() - parts - {n for n in biases if not bool(self.stored(n).any())}

    def read(self, name: str, *size: int) -> Tensor | Grouped:
        module = name.removesuffix("weight")
        if module not in self._modules:
            return self.stored(name, *size)
        outputs, k = size
        group = self._quantization.group or k
        if k % group or k % WORD_BITS or outputs % WORD_BITS:
            raise ModelError(f"{self.path(name)}: {name}: {size} cannot be in groups of {group}")
        gptq = self._quantization.method == "gptq"
        return (self._gptq if gptq else self._awq)(module, outputs, k, group)

    def _gptq(self, module: str, outputs: int, k: int, group: int) -> Grouped:
        """Words hold inputs in turn, in the order that codes have in `Grouped` too."""
        bits = self._quantization.bits
        words = self._words(module + CODES, k * bits // WORD_BITS, outputs)
        order = module + GROUPS
        if order in self._files:
            found = self._words(order, k)
            if not torch.equal(found, torch.arange(k, dtype=torch.int32) // group):
                raise ModelError(
                    f"{self.path(order)}: {order}: groups of inputs out of order (desc_act) "
                    "are not supported"
                )
        zeros = self._words(module + ZEROS, k // group, outputs * bits // WORD_BITS)
        zeros = zeros.view(torch.uint8)
        zeros = zeros if bits == BYTE_BITS else nibbles(zeros)
        codes = words.t().contiguous().view(torch.uint8)
        return self._scaled(module, codes, zeros)

    def _awq(self, module: str, outputs: int, k: int, group: int) -> Grouped:
        """Words hold outputs, in an order of their own."""
        words = outputs * self._quantization.bits // WORD_BITS

        def unpacked(part: str, rows: int) -> Tensor:
            codes = nibbles(self._words(module + part, rows, words).view(torch.uint8))
            return codes.view(rows, words, -1)[..., AWQ_ORDER].reshape(rows, outputs)

        codes = paired(unpacked(CODES, k).t().contiguous())
        return self._scaled(module, codes, unpacked(ZEROS, k // group))

    def _words(self, name: str, *size: int) -> Tensor:
        return self.stored(name, *size, dtypes=(torch.int32,))

    def _scaled(self, module: str, codes: Tensor, zeros: Tensor) -> Grouped:
        """With zeros `[groups, outputs]`."""
        scales = self.stored(module + SCALES, *zeros.shape).float()
        least = -scales * (zeros.float() + self._quantization.zero_offset)
        bits = self._quantization.bits
        return Grouped(codes, scales.t().contiguous(), least.t().contiguous(), bits)
