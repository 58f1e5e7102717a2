"""Keys and values of decoding sequences side by side, kept from step to step: on a CPU, gathering
them anew in every step takes as long as attending to them.
"""

from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from inference.compact.attention.cache import KvCache, zeros
from inference.compact.batch.tensors import DecodeGroup
from inference.compact.load.placement import Placement
from inference.compact.schedule.scheduler import Chunk

# Copies take at most this part of the cache's size, beside it; other groups are gathered.
SHARE = 2


class Copy:
    """Of one group: filled in its first step layer by layer, then each step adds its tokens."""

    def __init__(self, memory: Tensor, kv: KvCache, chunks: list[Chunk]) -> None:
        self._kv = kv
        self._sequences = [chunk.sequence for chunk in chunks]
        self._starts = [chunk.start for chunk in chunks]
        _, _, rows, heads, self.tokens, dim = memory.shape
        self._flat = [each.view(-1, dim) for each in memory]
        self._parts = [each.view(2, rows * heads, self.tokens, dim).unbind() for each in memory]
        # Where `_flat` has the first token of each row, in the order `[rows, 2, heads]` of slots.
        firsts = torch.arange(2 * rows * heads).view(2, rows, heads) * self.tokens
        self._firsts = firsts.transpose(0, 1)
        self._places: Tensor | None = None
        self._slots = firsts

    def follows(self, chunks: list[Chunk], tokens: int) -> bool:
        """Whether this is the same group, each sequence one token on."""
        return (
            tokens == self.tokens
            and self._sequences == [chunk.sequence for chunk in chunks]
            and self._starts == [chunk.start - 1 for chunk in chunks]
        )

    def move_on(self, chunks: list[Chunk], group: DecodeGroup, slots: Tensor) -> None:
        """From the next step on only what is in the `slots` is added."""
        self._starts = [chunk.start for chunk in chunks]
        self._slots = slots[group.start : group.stop]
        self._places = (self._firsts + (group.lengths - 1)[:, None, None]).reshape(-1)

    def gathered(self, layer: int, group: DecodeGroup) -> tuple[Tensor, Tensor]:
        """Keys and values `[rows * kv_heads, tokens, head_dim]`, this step's included."""
        keys, values = self._parts[layer]
        if self._places is None:
            for part, found in zip(
                (keys, values), self._kv.gather(layer, group.table), strict=True
            ):
                part.view(found.shape).copy_(found)
        else:
            flat = self._flat[layer]
            new = self._kv.kept[layer].take(self._slots, self._kv.dtype)
            flat.index_copy_(0, self._places, new.view(-1, flat.shape[1]))
        return keys, values


class Copies:
    """Memory for copies, given to the groups of a step from the first on."""

    def __init__(self, kv: KvCache, placement: Placement) -> None:
        self._kv = kv
        count = kv.blocks.nbytes // SHARE // kv.dtype.itemsize
        self._memory = zeros((count,), placement.device, kv.dtype)
        # By where they begin.
        self._last: dict[int, Copy] = {}

    def attach(
        self, groups: list[DecodeGroup], chunks: list[Chunk], slots: Tensor
    ) -> list[DecodeGroup]:
        """The groups of these chunks with their copies, as far as there is memory; kept are those
        of the step before that are the same in the same place.
        """
        layers, _, size, _, heads, dim = self._kv.blocks.shape
        last, self._last = self._last, {}
        attached, begin = [], 0
        for group in groups:
            members = chunks[group.start : group.stop]
            shape = (layers, 2, len(members), heads, group.table.shape[1] * size, dim)
            end = begin + prod(shape)
            if end > len(self._memory):
                break
            copy = last.get(begin)
            if copy is not None and copy.follows(members, shape[4]):
                copy.move_on(members, group, slots)
            else:
                copy = Copy(self._memory[begin:end].view(shape), self._kv, members)
            self._last[begin] = copy
            attached.append(replace(group, copy=copy))
            begin = end
        return attached + groups[len(attached) :]
