"""Decides what one engine step computes. No torch: it sees only token counts and blocks.

There is no prefill phase and no decode phase. A sequence lacks tokens (`len(tokens) - computed`);
each step hands out a budget of tokens, first to running sequences, then to waiting ones.
"""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

import msgspec

from inference.compact.blocks import BlockPool
from inference.compact.options import CompactOptions
from inference.compact.queue import WaitingQueue
from inference.compact.request import Request, Sequence
from inference.compact.speculate import Speculator, note_drafts

# Share of the pool that admission leaves alone, so that those who run can grow without preemption.
HELD_BACK_DIVISOR = 32


class Chunk(msgspec.Struct, frozen=True, eq=False):
    """Tokens `start` to `start + count` of a sequence, computed in this step.

    Its last `draws` rows are drawn from: none in the middle of a prompt, one where it reaches the
    last known token. `drafts` are guesses that follow that token, counted in `count`; a row is
    drawn from for each, and none of them is in `sequence.tokens`.
    """

    sequence: Sequence
    start: int
    count: int
    draws: int
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
        """Preemptions, drafts and accepted drafts so far."""
        return Counts(self.preemptions, self.drafted, self.accepted)

    @property
    def has_work(self) -> bool:
        """Whether the next step would compute anything."""
        return bool(self.running or self.queue)

    @property
    def waiting_tokens(self) -> int:
        """Uncached tokens that still have to be prefilled, waiting or half done."""
        lacking = (len(each.tokens) - each.computed for each in self.running)
        return self.queue.tokens + sum(count for count in lacking if count > 1)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        cached = len(self.pool.match(sequence)) * self.pool.block_size
        sequence.expected = len(sequence.tokens) - cached
        self.queue.push(sequence)

    def finish(self, sequence: Sequence, now_us: int) -> None:
        """Take a sequence off the running list and give its blocks back."""
        self.running.remove(sequence)
        self._release(sequence, now_us)

    def drop(self, request: Request, now_us: int) -> None:
        """Forget a request in whatever state its choices are."""
        self.queue.remove(request)
        for sequence in [each for each in self.running if each.request is request]:
            self.finish(sequence, now_us)

    def schedule(self, now_us: int) -> list[Chunk]:
        """Hand out one step's budget. Decodes come first in the list, as the runner wants them."""
        preemptions_before = self.preemptions
        chunks = self._decodes(now_us)
        budget = self.options.step_tokens - sum(chunk.count for chunk in chunks)
        if chunks:
            budget = min(budget, self.options.mixed_prefill_tokens)
        for sequence in self.running:
            lacking = len(sequence.tokens) - sequence.computed
            if lacking > 1 and budget:
                chunks.append(self._take(sequence, min(lacking, budget)))
                budget -= chunks[-1].count
        # Whoever was preempted a moment ago must not come straight back and push others out.
        calm = self.preemptions == preemptions_before
        while calm and budget and (admitted := self._admit(now_us)) is not None:
            lacking = len(admitted.tokens) - admitted.computed
            chunks.append(self._take(admitted, min(lacking, budget)))
            budget -= chunks[-1].count
        return chunks

    def advance(self, chunks: list[Chunk]) -> None:
        """Record that these chunks have been computed, drafts aside."""
        for chunk in chunks:
            sequence, request = chunk.sequence, chunk.sequence.request
            sequence.computed = chunk.start + chunk.count - len(chunk.drafts)
            if request.first_token_us is None:
                request.prefilled_tokens = max(request.prefilled_tokens, sequence.computed)

    def accept(self, chunk: Chunk, count: int) -> None:
        """Record that the first `count` drafts turned out right; they have been appended."""
        sequence, drafted = chunk.sequence, len(chunk.drafts)
        sequence.computed += count
        self._register(sequence, sequence.computed)
        note_drafts(sequence, drafted, count)
        self.drafted += drafted
        self.accepted += count

    def learn(self, chunks: list[Chunk], step_us: int) -> None:
        """Let the speculator know how long a step took that had no prompt tokens."""
        if self.speculator is not None and all(chunk.draws == chunk.count for chunk in chunks):
            drafted = sum(len(chunk.drafts) for chunk in chunks)
            self.speculator.measure(len(chunks), drafted, step_us)

    def _decodes(self, now_us: int) -> list[Chunk]:
        """One token for each sequence that lacks one; where blocks run out others yield theirs."""
        chunks = []
        for sequence in list(self.running):
            if sequence.computed + 1 != len(sequence.tokens) or not sequence.blocks:
                continue
            if self._grow(sequence, now_us):
                chunks.append(self._take(sequence, 1))
        if self.speculator is not None and self.speculator.begin(len(chunks)):
            return self._with_drafts(chunks, self.speculator)
        return chunks

    def _with_drafts(self, chunks: list[Chunk], speculator: Speculator) -> list[Chunk]:
        """Add guesses where the sequence's own blocks have room: nobody yields for a guess."""
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

    def _grow(self, sequence: Sequence, now_us: int) -> bool:
        """See to a block for the next token; False when the sequence itself had to yield.

        Victims come from the end of the running list, of the lowest priority the last admitted, so
        none has been scheduled in this step.
        """
        if sequence.computed < len(sequence.blocks) * self.pool.block_size:
            return True
        while not self.pool.available:
            victim = self.running[-1]
            self._preempt(victim, now_us)
            if victim is sequence:
                return False
        sequence.blocks += self.pool.allocate(1)
        return True

    def _preempt(self, sequence: Sequence, now_us: int) -> None:
        """Back to the queue with its tokens kept; much of it will be found in the prefix cache."""
        self.preemptions += 1
        self.finish(sequence, now_us)
        self.add(sequence)

    def _admit(self, now_us: int) -> Sequence | None:
        """Move the first waiting sequence to the running list if all its tokens find room.

        The list has higher priorities first, so that they are the last to give up their blocks.
        """
        if not self.queue or len(self.running) >= self.options.running_max:
            return None
        sequence = self.queue.peek()
        cached = self.pool.match(sequence)
        size = self.pool.block_size
        wanted = -(-len(sequence.tokens) // size) - len(cached)
        held_back = self.pool.size // HELD_BACK_DIVISOR if self.running else 0
        if wanted + held_back > self.pool.available - self.pool.idle_among(cached):
            return None
        self.queue.pop()
        self.pool.share(cached)
        sequence.blocks = cached + self.pool.allocate(wanted)
        sequence.computed = len(cached) * size
        sequence.registered = len(cached)
        insort(self.running, sequence, key=lambda each: -each.request.job.priority)
        self._note_first_schedule(sequence, now_us)
        return sequence

    def _note_first_schedule(self, sequence: Sequence, now_us: int) -> None:
        """Only the first admission of a request says how much of its prompt was cached before."""
        request = sequence.request
        if request.cached_tokens is None:
            request.cached_tokens = sequence.computed
            request.scheduled_us = now_us

    def _take(self, sequence: Sequence, count: int) -> Chunk:
        """Schedule `count` tokens. Blocks they fill are findable at once: a step stores all keys
        and values of a layer before it attends, so even sequences of the same step may share them.
        """
        start = sequence.computed
        chunk = Chunk(sequence, start, count, int(start + count == len(sequence.tokens)))
        self._register(sequence, start + count)
        return chunk

    def _register(self, sequence: Sequence, known: int) -> None:
        """Make the full blocks among the first `known` tokens findable."""
        full = known // self.pool.block_size
        for index in range(sequence.registered, full):
            self.pool.register(
                sequence.blocks[index], sequence.block_hash(index), sequence.block_tokens(index)
            )
        sequence.registered = max(sequence.registered, full)

    def _release(self, sequence: Sequence, now_us: int) -> None:
        self.pool.release(sequence.blocks, now_us)
        sequence.blocks = []
        sequence.computed = 0
        sequence.registered = 0
