"""Decides what one engine step computes. No torch: it sees only token counts and blocks.

There is no prefill phase and no decode phase. A sequence has `len(tokens) - computed_tokens` tokens
left to compute; each step has a budget of tokens, first for running sequences, then for waiting
ones.
"""

from bisect import insort
from typing import NamedTuple

import msgspec

from inference.compact.options import CompactOptions
from inference.compact.schedule.blocks import BlockPool
from inference.compact.schedule.queue import WaitingQueue
from inference.compact.schedule.request import Request, Sequence
from inference.compact.schedule.speculate import Speculator, note_drafts

# Admission leaves this part of the pool free, so that running sequences grow without preemption.
WATERMARK_DIVISOR = 32


class Chunk(msgspec.Struct, frozen=True, eq=False):
    """Tokens `start` to `start + count` of a sequence, computed in this step.

    From its last `sampled_rows` rows tokens are sampled: none in the middle of a prompt, one where
    it reaches the last known token. `drafts` are guessed tokens that follow that one, counted in
    `count`; each has a sampled row, and none of them is in `sequence.tokens`.
    """

    sequence: Sequence
    start: int
    count: int
    sampled_rows: int
    drafts: list[int] = []

    @property
    def tokens(self) -> list[int]:
        """The ids of the chunk's rows; as long as `count` until a token is appended."""
        return self.sequence.tokens[self.start : self.start + self.count] + self.drafts


class Counts(NamedTuple):
    """What a scheduler has counted since it was made."""

    preemptions: int
    drafted: int
    accepted: int


class Scheduler:
    """Owns the running list and the waiting queue; the pool is its only other state."""

    def __init__(self, pool: BlockPool, options: CompactOptions) -> None:
        self.pool = pool
        self.options = options
        self.speculator: Speculator | None = None
        if options.speculate != "off":
            self.speculator = Speculator(options.drafts_max, always=options.speculate == "on")
        self.queue = WaitingQueue()
        self.running: list[Sequence] = []
        self.preemptions = 0
        self.drafted = 0
        self.accepted = 0

    @property
    def counts(self) -> Counts:
        return Counts(self.preemptions, self.drafted, self.accepted)

    @property
    def has_work(self) -> bool:
        """Whether the next step would compute anything."""
        return bool(self.running or self.queue)

    @property
    def waiting_tokens(self) -> int:
        """Uncached tokens left to prefill, of waiting and of running sequences."""
        uncomputed = (len(each.tokens) - each.computed_tokens for each in self.running)
        return self.queue.tokens + sum(count for count in uncomputed if count > 1)

    def add(self, sequence: Sequence) -> None:
        cached = len(self.pool.match(sequence)) * self.pool.block_size
        sequence.uncached_tokens = len(sequence.tokens) - cached
        self.queue.push(sequence)

    def finish(self, sequence: Sequence, now_us: int) -> None:
        """Remove a running sequence and release its blocks."""
        self.running.remove(sequence)
        self._release(sequence, now_us)

    def abort(self, request: Request, now_us: int) -> None:
        """Drop all choices of a request, waiting or running."""
        self.queue.remove(request)
        for sequence in [each for each in self.running if each.request is request]:
            self.finish(sequence, now_us)

    def schedule(self, now_us: int) -> list[Chunk]:
        """Spend one step's budget of tokens; decodes come first, as the runner needs them."""
        preemptions = self.preemptions
        chunks = self._decodes(now_us)
        budget = self.options.step_tokens - sum(chunk.count for chunk in chunks)
        if chunks:
            budget = min(budget, self.options.mixed_prefill_tokens)
        for sequence in self.running:
            uncomputed = len(sequence.tokens) - sequence.computed_tokens
            if uncomputed > 1 and budget:
                chunks.append(self._chunk(sequence, min(uncomputed, budget)))
                budget -= chunks[-1].count
        # A sequence preempted in this step must not be admitted again and push others out.
        preempted = self.preemptions > preemptions
        while not preempted and budget and (admitted := self._admit(now_us)) is not None:
            uncomputed = len(admitted.tokens) - admitted.computed_tokens
            chunks.append(self._chunk(admitted, min(uncomputed, budget)))
            budget -= chunks[-1].count
        return chunks

    def advance(self, chunks: list[Chunk]) -> None:
        """Record that these chunks have been computed, drafts aside."""
        for chunk in chunks:
            sequence, request = chunk.sequence, chunk.sequence.request
            sequence.computed_tokens = chunk.start + chunk.count - len(chunk.drafts)
            if request.first_token_us is None:
                request.prefilled_tokens = max(request.prefilled_tokens, sequence.computed_tokens)

    def accept(self, chunk: Chunk, count: int) -> None:
        """Record that the first `count` drafts were accepted; they have been appended."""
        sequence, drafted = chunk.sequence, len(chunk.drafts)
        sequence.computed_tokens += count
        self._cache_blocks(sequence, sequence.computed_tokens)
        note_drafts(sequence, drafted, count)
        self.drafted += drafted
        self.accepted += count

    def note_step(self, chunks: list[Chunk], step_us: int) -> None:
        """Measure a step without prompt tokens for the speculator."""
        if self.speculator is not None and all(each.sampled_rows == each.count for each in chunks):
            drafted = sum(len(chunk.drafts) for chunk in chunks)
            self.speculator.measure(len(chunks), drafted, step_us)

    def _decodes(self, now_us: int) -> list[Chunk]:
        """One token for each decoding sequence; where blocks run out, others are preempted."""
        chunks = []
        for sequence in list(self.running):
            if sequence.computed_tokens + 1 != len(sequence.tokens) or not sequence.blocks:
                continue
            if self._allocate_slot(sequence, now_us):
                chunks.append(self._chunk(sequence, 1))
        if self.speculator is not None and self.speculator.begin(len(chunks)):
            return self._with_drafts(chunks, self.speculator)
        return chunks

    def _with_drafts(self, chunks: list[Chunk], speculator: Speculator) -> list[Chunk]:
        """Add drafts where a sequence's own blocks have room: nothing is preempted for one."""
        spare = self.options.step_tokens - len(chunks)
        drafting = []
        for chunk in chunks:
            sequence = chunk.sequence
            room = len(sequence.blocks) * self.pool.block_size - len(sequence.tokens)
            drafts = speculator.propose(sequence, min(room, spare), len(chunks))
            spare -= len(drafts)
            rows = 1 + len(drafts)
            drafting.append(Chunk(sequence, chunk.start, rows, rows, drafts))
        return drafting

    def _allocate_slot(self, sequence: Sequence, now_us: int) -> bool:
        """Make sure of a block for the next token; False when the sequence itself was preempted.

        Victims come from the end of the running list, of the lowest priority the last admitted, so
        none has been scheduled in this step.
        """
        if sequence.computed_tokens < len(sequence.blocks) * self.pool.block_size:
            return True
        while not self.pool.available:
            victim = self.running[-1]
            self._preempt(victim, now_us)
            if victim is sequence:
                return False
        sequence.blocks += self.pool.allocate(1)
        return True

    def _preempt(self, sequence: Sequence, now_us: int) -> None:
        """Back to the queue with its tokens kept; most will still be in the prefix cache."""
        self.preemptions += 1
        self.finish(sequence, now_us)
        self.add(sequence)

    def _admit(self, now_us: int) -> Sequence | None:
        """Let the first waiting sequence run if there are blocks for all its tokens.

        The running list has higher priorities first, so that they are the last to be preempted.
        """
        if not self.queue or len(self.running) >= self.options.running_max:
            return None
        sequence = self.queue.peek()
        cached = self.pool.match(sequence)
        size = self.pool.block_size
        needed = -(-len(sequence.tokens) // size) - len(cached)
        watermark = self.pool.size // WATERMARK_DIVISOR if self.running else 0
        if needed + watermark > self.pool.available - self.pool.count_evictable(cached):
            return None
        self.queue.pop()
        self.pool.share(cached)
        sequence.blocks = cached + self.pool.allocate(needed)
        sequence.computed_tokens = len(cached) * size
        sequence.cached_blocks = len(cached)
        insort(self.running, sequence, key=lambda each: -each.request.job.priority)
        self._note_first_schedule(sequence, now_us)
        return sequence

    def _note_first_schedule(self, sequence: Sequence, now_us: int) -> None:
        """Only the first admission of a request says how much of its prompt was cached before."""
        request = sequence.request
        if request.cached_tokens is None:
            request.cached_tokens = sequence.computed_tokens
            request.scheduled_us = now_us

    def _chunk(self, sequence: Sequence, count: int) -> Chunk:
        """Schedule `count` tokens. Blocks they fill are cached at once: a step stores all keys
        and values of a layer before it attends, so even sequences of the same step may share them.
        """
        start = sequence.computed_tokens
        chunk = Chunk(sequence, start, count, int(start + count == len(sequence.tokens)))
        self._cache_blocks(sequence, start + count)
        return chunk

    def _cache_blocks(self, sequence: Sequence, tokens: int) -> None:
        """Cache the full blocks of the first `tokens` tokens."""
        full = tokens // self.pool.block_size
        for index in range(sequence.cached_blocks, full):
            self.pool.cache(
                sequence.blocks[index], sequence.block_hash(index), sequence.block_tokens(index)
            )
        sequence.cached_blocks = max(sequence.cached_blocks, full)

    def _release(self, sequence: Sequence, now_us: int) -> None:
        self.pool.release(sequence.blocks, now_us)
        sequence.blocks = []
        sequence.computed_tokens = 0
        sequence.cached_blocks = 0
