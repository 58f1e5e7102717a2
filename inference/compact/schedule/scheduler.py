"""Decides what one engine step computes. No torch: it sees only token counts and blocks.

There is no prefill phase and no decode phase. A sequence has `left` tokens to compute; each step
has a budget of tokens, first for sequences that decode, then for prompts. Of those the first gets
half at least, so that nobody is passed over for good, and short ones the rest, so that they do not
stand behind long ones. Background work rests while there is other work, but for every 16th step.
"""

from bisect import insort
from typing import NamedTuple

import msgspec

from inference.compact.options import CompactOptions
from inference.compact.schedule.blocks import BlockPool
from inference.compact.schedule.pace import Pace
from inference.compact.schedule.queue import WaitingQueue
from inference.compact.schedule.request import Request, Sequence
from inference.compact.schedule.speculate import Speculator, note_drafts

# Admission leaves this part of the pool free, so that running sequences grow without preemption.
WATERMARK_DIVISOR = 32
# Steps in a row that background work rests, and short prompts that are admitted in a row while the
# first in the queue finds no blocks.
RESTED_MAX = PASSED_OVER_MAX = 15
# A prompt is short if its part of so many steps is enough.
SHORT_STEPS = 4
# Less of a prompt is not worth its part in a step.
TOKENS_MIN = 16
# Rows of a step whose logits are needed for prompts alone: those of a large vocabulary are 150 MB.
SCORED_ROWS_MAX = 256


class Chunk(msgspec.Struct, frozen=True, eq=False):
    """Tokens `start` to `start + count` of a sequence, computed in this step.

    From its last `sampled_rows` rows tokens are sampled: none in the middle of a prompt, one where
    it reaches the last known token. `drafts` are guessed tokens that follow that one, counted in
    `count`; each has a sampled row, and none of them is in `sequence.tokens`. Its last
    `scored_rows` rows score tokens of the prompt, each the one behind it. With `source`, its one
    token is that row of the draw before and has not been read.
    """

    sequence: Sequence
    start: int
    count: int
    sampled_rows: int
    drafts: list[int] = []
    scored_rows: int = 0
    source: int | None = None

    @property
    def logit_rows(self) -> int:
        """How many of its last rows need logits."""
        return max(self.sampled_rows, self.scored_rows)

    @property
    def tokens(self) -> list[int]:
        """The ids of the chunk's rows; as long as `count` until a token is appended. 0 for one that
        has not been read.
        """
        if self.source is not None:
            return [0]
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
        self.pace = Pace(options)
        self.queue = WaitingQueue()
        self.running: list[Sequence] = []
        self._others = self._rests = False
        self._rested = self._passed_over = 0
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
        return self.queue.tokens + sum(each.left for each in self.running if each.left > 1)

    def add(self, sequence: Sequence) -> None:
        cached = len(self.pool.match(sequence)) * self.pool.block_size
        sequence.uncached_tokens = len(sequence.tokens) - cached
        self.queue.push(sequence)

    @property
    def may_draft(self) -> bool:
        """Whether the next step may have drafts, which only follow tokens that have been read."""
        return self.speculator is not None and self.speculator.may_draft(self.running)

    def finish(self, sequence: Sequence, now_us: int) -> None:
        """Remove a sequence and release its blocks; one that is preempted has none."""
        if not sequence.blocks:
            self.queue.take(sequence)
            return
        self.running.remove(sequence)
        self.pool.release(sequence.blocks, now_us)
        sequence.blocks = []
        sequence.computed_tokens = sequence.cached_blocks = 0

    def abort(self, request: Request, now_us: int) -> None:
        """Drop all choices of a request, waiting or running."""
        self.queue.remove(request)
        for sequence in [each for each in self.running if each.request is request]:
            self.finish(sequence, now_us)

    def schedule(self, now_us: int, *, drafts: bool = True) -> list[Chunk]:
        """Spend one step's budget of tokens; decodes come first, as the runner needs them."""
        self._begin(now_us)
        preemptions = self.preemptions
        chunks = self._decodes(now_us, drafts=drafts)
        prompts = [each for each in self._awake() if each.left > 1]
        alone = not chunks and self._others and len(prompts) + len(self.queue) == 1
        tokens = self.options.step_tokens - sum(chunk.count for chunk in chunks)
        if chunks:
            tokens = min(tokens, self.options.mixed_prefill_tokens)
        if tokens and (prompts or self.queue):
            # A sequence preempted in this step must not be admitted again and push others out.
            admits = self.preemptions == preemptions
            room = _Room(self.pace, tokens, len(chunks), alone=alone)
            chunks += self._prompts(prompts, room, now_us if admits else None)
        return chunks

    def _prompts(self, prompts: list[Sequence], room: "_Room", now_us: int | None) -> list[Chunk]:
        """For the first prompt, then short ones, then the first again, then the others.

        None is admitted where there is no time.
        """
        chunks: list[Chunk] = []
        first = prompts.pop(0) if prompts else self._admit(now_us)
        short = [each for each in prompts if room.short(each.left)]
        if first is not None:
            self._give(first, room, chunks, self._part_of_first(short, room))
        for each in sorted(short, key=lambda each: (-each.request.job.priority, each.left)):
            self._give(each, room, chunks)
        while room.left and (admitted := self._admit_short(room, now_us)):
            self._give(admitted, room, chunks)
        if first is not None and room.left and chunks[0].count < first.left:
            # It was given less than is left over.
            room.take(chunks.pop(0), -1)
            self._give(first, room, chunks)
        for each in prompts:
            if each not in short:
                self._give(each, room, chunks)
        while room.left and (admitted := self._admit(now_us)):
            self._give(admitted, room, chunks)
        return chunks

    def _part_of_first(self, short: list[Sequence], room: "_Room") -> float:
        """Of the room: half of it, and what short prompts leave."""
        waiting = (each.uncached_tokens for each in self.queue.sequences)
        counts = [each.left for each in short] + [each for each in waiting if room.short(each)]
        return max(0.5, 1 - sum(map(room.share, counts)))

    def _begin(self, now_us: int) -> None:
        """Whether background work rests in this step, and blocks of it for the first in the queue.

        It lets go of them here, where nothing of it is scheduled yet.
        """
        first_ones = [each[0] for each in (self.running, self.queue.sequences) if each]
        self._others = not all(each.background for each in first_ones)
        self._rests = self._others and self._rested < RESTED_MAX
        self._rested = self._rested + 1 if self._rests else 0
        if self.queue and not (first := self.queue.peek()).background:
            while self.running and self.running[-1].background and self._room_for(first) is None:
                self._preempt(self.running[-1], now_us)

    def _awake(self) -> list[Sequence]:
        return [each for each in self.running if not (self._rests and each.background)]

    def _give(
        self, sequence: Sequence, room: "_Room", chunks: list[Chunk], part: float = 1.0
    ) -> None:
        """Tokens for a prompt, if there is room for any."""
        if count := room.of(sequence, part):
            chunks.append(self._chunk(sequence, count))
            room.take(chunks[-1])

    def advance(self, chunks: list[Chunk]) -> None:
        """Record that these chunks have been computed, drafts aside."""
        for chunk in chunks:
            chunk.sequence.computed_tokens = chunk.start + chunk.count - len(chunk.drafts)

    def accept(self, chunk: Chunk, count: int) -> None:
        """Record that the first `count` drafts were accepted; they have been appended."""
        sequence, drafted = chunk.sequence, len(chunk.drafts)
        sequence.computed_tokens += count
        self.cache_blocks(sequence, sequence.computed_tokens)
        note_drafts(sequence, drafted, count)
        self.drafted += drafted
        self.accepted += count

    def note_step(self, chunks: list[Chunk], step_us: int) -> None:
        """Measure a step: without prompt tokens for the speculator, for the pace any.

        One that only ended requests tells nothing.
        """
        if not chunks:
            return
        prompts = [(each.count, each.start) for each in chunks if each.count > each.sampled_rows]
        self.pace.note(len(chunks) - len(prompts), prompts, step_us)
        if self.speculator is not None and not prompts:
            drafted = sum(len(chunk.drafts) for chunk in chunks)
            self.speculator.measure(len(chunks), drafted, step_us)

    def _decodes(self, now_us: int, *, drafts: bool) -> list[Chunk]:
        """One token for each decoding sequence; where blocks run out, others are preempted."""
        chunks = []
        for sequence in self._awake():
            if sequence.left != 1 or not sequence.blocks:
                continue
            if self._allocate_slot(sequence, now_us):
                chunks.append(self._chunk(sequence, 1))
        if drafts and self.speculator is not None and self.speculator.begin(len(chunks)):
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

    def _admit_short(self, room: "_Room", now_us: int | None) -> Sequence | None:
        """Let the first short prompt run, past longer ones of its priority; None without one.

        While the first in the queue finds no blocks, that happens so many times and no more.
        """
        if not self.queue:
            return None
        head = self.queue.peek()
        blocked = self._room_for(head) is None
        if blocked and self._passed_over >= PASSED_OVER_MAX:
            return None
        for each in self.queue.sequences:
            if each.request.job.priority != head.request.job.priority:
                return None
            if room.short(each.uncached_tokens):
                admitted = self._admit(now_us, each)
                self._passed_over += blocked and admitted is not None
                return admitted
        return None

    def _room_for(self, sequence: Sequence) -> list[int] | None:
        """Its cached blocks, if there are blocks for all its other tokens and it may run."""
        if len(self.running) >= self.options.running_max or (self._rests and sequence.background):
            return None
        if sequence.source is not None:
            # Preempted with a token that has not been read; it will have been in the next step.
            return None
        cached = self.pool.match(sequence)
        needed = -(-len(sequence.tokens) // self.pool.block_size) - len(cached)
        watermark = self.pool.size // WATERMARK_DIVISOR if self.running else 0
        available = self.pool.available - self.pool.count_evictable(cached)
        return cached if needed + watermark <= available else None

    def _admit(self, now_us: int | None, sequence: Sequence | None = None) -> Sequence | None:
        """Let a waiting sequence, else the first, run if there are blocks for all its tokens; none
        where there is no time.

        The running list has higher priorities first, so that they are the last to be preempted.
        """
        if not self.queue or now_us is None:
            return None
        head = self.queue.peek()
        sequence = sequence or head
        cached = self._room_for(sequence)
        if cached is None:
            return None
        self.queue.take(sequence)
        if sequence is head:
            self._passed_over = 0
        self.pool.share(cached)
        size = self.pool.block_size
        needed = -(-len(sequence.tokens) // size) - len(cached)
        sequence.blocks = cached + self.pool.allocate(needed)
        sequence.computed_tokens = len(cached) * size
        sequence.cached_blocks = len(cached)
        insort(self.running, sequence, key=lambda each: -each.request.job.priority)
        request = sequence.request
        # Only the first admission of a request says how much of its prompt was cached before.
        if request.cached_tokens is None:
            request.cached_tokens = sequence.computed_tokens
            request.scheduled_us = now_us
        return sequence

    def _chunk(self, sequence: Sequence, count: int) -> Chunk:
        """Schedule `count` tokens. Blocks they fill are cached at once: a step stores all keys
        and values of a layer before it attends, so even sequences of the same step may share them.
        """
        start, end = sequence.computed_tokens, sequence.computed_tokens + count
        sampled, scored, unscored = int(end == sequence.end), 0, sequence.request.unscored
        if unscored:
            # After a preemption some are scored already.
            scored = max(0, min(count, end + 1 + unscored - len(sequence.request.job.tokens)))
        if sequence.source is None:
            self.cache_blocks(sequence, end)
        return Chunk(sequence, start, count, sampled, scored_rows=scored, source=sequence.source)

    def cache_blocks(self, sequence: Sequence, tokens: int) -> None:
        """Cache the full blocks of the first `tokens` tokens."""
        full = tokens // self.pool.block_size
        for index in range(sequence.cached_blocks, full):
            self.pool.cache(
                sequence.blocks[index], sequence.block_hash(index), sequence.block_tokens(index)
            )
        sequence.cached_blocks = max(sequence.cached_blocks, full)


class _Room:
    """What a step has left for prompts: tokens, rows whose logits they need, and time."""

    def __init__(self, pace: Pace, tokens: int, decoded: int, *, alone: bool) -> None:
        self._pace = pace
        self._tokens = tokens
        self._scorable = SCORED_ROWS_MAX
        self._us = self._whole_us = pace.room_us(decoded, alone=alone)

    @property
    def left(self) -> bool:
        return self._tokens > 0 and self._us > 0

    def of(self, sequence: Sequence, part: float) -> int:
        """How many tokens of a sequence fit in this part of it; a few where there is any room."""
        room = min(self._tokens, self._scorable) if sequence.request.unscored else self._tokens
        fitting, token_us = room, self._pace.token_us(sequence.computed_tokens)
        if token_us:
            fitting = int(self._us / token_us)
        few = TOKENS_MIN if self._us > 0 else 0
        return min(sequence.left, room, max(few, int(part * min(room, fitting))))

    def take(self, chunk: Chunk, times: int = 1) -> None:
        self._tokens -= times * chunk.count
        self._scorable -= times * chunk.scored_rows
        self._us -= times * chunk.count * self._pace.token_us(chunk.start)

    def share(self, tokens: int) -> float:
        """Which part of the room a prompt of so many tokens needs."""
        return max(tokens / self._tokens, tokens * self._pace.token_us(0) / self._whole_us)

    def short(self, tokens: int) -> bool:
        """Whether half of the room in a few steps is enough for so many."""
        return self.share(tokens) <= SHORT_STEPS / 2
