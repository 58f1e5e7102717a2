"""The types of values in GGUF files: blocks of some bytes for so many values of a row."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from inference.compact.grouped import BYTE_BITS, NIBBLE_BITS, Grouped, paired
from inference.compact.load.rounding import quantized

HALF_BYTES = 2
# Codes a byte, and for each group of them scale and least, all `[blocks, ...]`.
Coded = tuple[Tensor, Tensor, Tensor]


class Blocks(NamedTuple):
    """`read` gets `[blocks, size_bytes]`; plain values have a dtype in its place."""

    values: int
    size_bytes: int
    read: Callable[[Tensor], Coded] | torch.dtype
    bits: int = BYTE_BITS

    def weight(self, data: Tensor, size: tuple[int, ...]) -> Tensor | Grouped:
        """From all the bytes of a tensor of this size."""
        if isinstance(self.read, torch.dtype):
            return data.view(self.read).view(size)
        codes, scales, least = (
            part.reshape(size[0], -1) for part in self.read(data.view(-1, self.size_bytes))
        )
        codes = paired(codes) if self.bits == NIBBLE_BITS else codes
        return Grouped(codes, scales, least, self.bits)


def _half(blocks: Tensor, start: int) -> Tensor:
    """`[blocks, 1]`."""
    return blocks[:, start : start + HALF_BYTES].contiguous().view(torch.float16).float()


def _halves(packed: Tensor, parts: int) -> Tensor:
    """Of each part of a block, what its bytes' low halves hold comes before what the high do."""
    apart = packed.reshape(len(packed), parts, 1, -1)
    return torch.cat((apart & 0xF, apart >> NIBBLE_BITS), 2).flatten(1)


def _bits_of(packed: Tensor, step: int) -> Tensor:
    """Of `[blocks, parts, bytes]`: the lowest bits of all bytes of a part, then the next."""
    shifts = torch.arange(0, 8, step, dtype=torch.uint8)[:, None]
    return packed[:, :, None] >> shifts & (1 << step) - 1


def _q8_0(blocks: Tensor) -> Coded:
    scales = _half(blocks, 0)
    return blocks[:, 2:] ^ 0x80, scales, scales * -128


def _q4_0(blocks: Tensor) -> Coded:
    scales = _half(blocks, 0)
    return _halves(blocks[:, 2:], 1), scales, scales * -8


def _q4_1(blocks: Tensor) -> Coded:
    return _halves(blocks[:, 4:], 1), _half(blocks, 0), _half(blocks, 2)


def _fifth(packed: Tensor) -> Tensor:
    """The fifth bit of each code of 32, from four bytes."""
    return (packed[:, :, None] >> torch.arange(8, dtype=torch.uint8) & 1).flatten(1) << NIBBLE_BITS


def _q5_0(blocks: Tensor) -> Coded:
    scales = _half(blocks, 0)
    return _halves(blocks[:, 6:], 1) | _fifth(blocks[:, 2:6]), scales, scales * -16


def _q5_1(blocks: Tensor) -> Coded:
    codes = _halves(blocks[:, 8:], 1) | _fifth(blocks[:, 4:8])
    return codes, _half(blocks, 0), _half(blocks, 2)


def _k_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and least of eight groups, six bits each in twelve bytes, times those of the block."""
    low, high, both = blocks[:, 4:16].view(-1, 3, 4).unbind(1)
    scales = torch.cat((low & 0x3F, both & 0xF | low >> 2 & 0x30), 1)
    least = torch.cat((high & 0x3F, both >> 4 | high >> 2 & 0x30), 1)
    return _half(blocks, 0) * scales, -_half(blocks, 2) * least


def _q4_k(blocks: Tensor) -> Coded:
    return _halves(blocks[:, 16:], 4), *_k_scales(blocks)


def _q5_k(blocks: Tensor) -> Coded:
    fifth = _bits_of(blocks[:, None, 16:48], 1).flatten(1) << NIBBLE_BITS
    return _halves(blocks[:, 48:], 4) | fifth, *_k_scales(blocks)


def _q6_k(blocks: Tensor) -> Coded:
    """Its groups of 16 become 8 bits in groups of 32: 0.4 % off, where Q6_K itself is 1.6 % off."""
    upper = _bits_of(blocks[:, 128:192].view(-1, 2, 32), 2).flatten(1) << NIBBLE_BITS
    codes = (_halves(blocks[:, :128], 2) | upper).view(-1, 16, 16).float() - 32
    scales = _half(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    whole = quantized((codes * scales[..., None]).flatten(1), BYTE_BITS)
    return whole.codes, whole.scales, whole.least


# By their numbers in the file.
BLOCKS = {
    0: Blocks(1, 4, torch.float32),
    1: Blocks(1, 2, torch.float16),
    30: Blocks(1, 2, torch.bfloat16),
    2: Blocks(32, 18, _q4_0, NIBBLE_BITS),
    3: Blocks(32, 20, _q4_1, NIBBLE_BITS),
    6: Blocks(32, 22, _q5_0),
    7: Blocks(32, 24, _q5_1),
    8: Blocks(32, 34, _q8_0),
    12: Blocks(256, 144, _q4_k, NIBBLE_BITS),
    13: Blocks(256, 176, _q5_k),
    14: Blocks(256, 210, _q6_k),
}
