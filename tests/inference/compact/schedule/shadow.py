"""A stand-in for the model that computes nothing but remembers what a real cache would hold.

Each token slot keeps the hash of the whole prefix that its key and value would stand for, so any
block that is shared wrongly, freed early or overwritten is noticed when it is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from inference.compact.options import CompactOptions
from inference.compact.run.loop import StepLoop
from inference.compact.schedule.blocks import BlockPool
from inference.compact.schedule.outputs import SampledToken, StopRules
from inference.compact.schedule.scheduler import Chunk, Scheduler

VOCABULARY = 7


@dataclass
class ShadowDrawn:
    """Tokens of a step."""

    tokens: list[int]

    def read(self) -> list[SampledToken]:
        """As `Drawn.read`."""
        return [SampledToken(token) for token in self.tokens]


class ShadowModel:
    """Checks every read; the next token is a function of the prefix."""

    def __init__(self, block_size: int, options: CompactOptions) -> None:
        self.block_size = block_size
        self.options = options
        self.slots: dict[tuple[int, int], int] = {}
        self.drawn: list[int] | None = None

    def run(self, chunks: list[Chunk]) -> list[SampledToken]:
        """Store all, then read all, as each layer of the decoder does."""
        return self.launch(chunks, None)().read()

    def launch(self, chunks: list[Chunk], before: ShadowDrawn | None) -> Callable[[], ShadowDrawn]:
        """What a chunk takes of the step before, nobody has read yet."""
        self.drawn = None if before is None else before.tokens
        assert sum(chunk.count for chunk in chunks) <= self.options.step_tokens
        assert len({id(chunk.sequence) for chunk in chunks}) == len(chunks)
        prefixes = [self._prefixes(chunk) for chunk in chunks]
        for chunk, prefix in zip(chunks, prefixes, strict=True):
            for place in range(chunk.start, chunk.start + chunk.count):
                self.slots[self._slot(chunk, place)] = prefix[place]
        for chunk, prefix in zip(chunks, prefixes, strict=True):
            held = [self.slots[self._slot(chunk, place)] for place in range(len(prefix))]
            assert held == prefix
        tokens = [
            abs(seen) % VOCABULARY
            for chunk, prefix in zip(chunks, prefixes, strict=True)
            for seen in prefix[len(prefix) - chunk.sampled_rows :]
        ]
        return lambda: ShadowDrawn(tokens)

    def _prefixes(self, chunk: Chunk) -> list[int]:
        known = chunk.sequence.tokens[: chunk.start]
        assert len(known) == chunk.start
        tokens = known + chunk.tokens
        if chunk.source is not None:
            assert self.drawn is not None
            assert chunk.count == 1 and chunk.start == len(chunk.sequence.tokens)
            tokens[-1] = self.drawn[chunk.source]
        assert len(tokens) == chunk.start + chunk.count
        salt = int.from_bytes(chunk.sequence.request.job.salt)
        chain = itertools.accumulate(tokens, lambda before, new: hash((before, new)), initial=salt)
        return list(chain)[1:]

    def _slot(self, chunk: Chunk, place: int) -> tuple[int, int]:
        return chunk.sequence.blocks[place // self.block_size], place % self.block_size


def shadow_loop(
    options: CompactOptions, context_window: int, make: type[StepLoop] = StepLoop
) -> StepLoop:
    """A step loop on a clock that ticks once per reading, over a shadow model."""
    pool = BlockPool(options.kv_blocks or 1, options.block_size)
    ticks = itertools.count(1)
    return make(
        ShadowModel(options.block_size, options),
        Scheduler(pool, options),
        StopRules(frozenset({0}), context_window),
        lambda: next(ticks),
    )
