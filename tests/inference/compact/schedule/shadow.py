"""A stand-in for the model that computes nothing but remembers what a real cache would hold.

Each token slot keeps the hash of the whole prefix that its key and value would stand for, so any
block that is shared wrongly, freed early or overwritten is noticed when it is read.
"""

from __future__ import annotations

import itertools

from inference.compact.options import CompactOptions
from inference.compact.run.loop import StepLoop
from inference.compact.schedule.blocks import BlockPool
from inference.compact.schedule.outputs import SampledToken, StopRules
from inference.compact.schedule.scheduler import Chunk, Scheduler

VOCABULARY = 7


class ShadowModel:
    """Checks every read; the next token is a function of the prefix."""

    def __init__(self, block_size: int, options: CompactOptions) -> None:
        self.block_size = block_size
        self.options = options
        self.slots: dict[tuple[int, int], int] = {}

    def run(self, chunks: list[Chunk]) -> list[SampledToken]:
        """Store all, then read all, as each layer of the decoder does."""
        assert sum(chunk.count for chunk in chunks) <= self.options.step_tokens
        assert len({id(chunk.sequence) for chunk in chunks}) == len(chunks)
        prefixes = [self._prefixes(chunk) for chunk in chunks]
        for chunk, prefix in zip(chunks, prefixes, strict=True):
            for place in range(chunk.start, chunk.start + chunk.count):
                self.slots[self._slot(chunk, place)] = prefix[place]
        for chunk, prefix in zip(chunks, prefixes, strict=True):
            held = [self.slots[self._slot(chunk, place)] for place in range(len(prefix))]
            assert held == prefix
        return [
            SampledToken(abs(seen) % VOCABULARY)
            for chunk, prefix in zip(chunks, prefixes, strict=True)
            for seen in prefix[len(prefix) - chunk.sampled_rows :]
        ]

    def _prefixes(self, chunk: Chunk) -> list[int]:
        tokens = chunk.sequence.tokens[: chunk.start] + chunk.tokens
        salt = int.from_bytes(chunk.sequence.request.job.salt)
        chain = itertools.accumulate(tokens, lambda before, new: hash((before, new)), initial=salt)
        return list(chain)[1:]

    def _slot(self, chunk: Chunk, place: int) -> tuple[int, int]:
        return chunk.sequence.blocks[place // self.block_size], place % self.block_size


def shadow_loop(options: CompactOptions, context_window: int) -> StepLoop:
    """A step loop on a clock that ticks once per reading, over a shadow model."""
    pool = BlockPool(options.kv_blocks or 1, options.block_size)
    ticks = itertools.count(1)
    return StepLoop(
        ShadowModel(options.block_size, options),
        Scheduler(pool, options),
        StopRules(frozenset({0}), context_window),
        lambda: next(ticks),
    )
