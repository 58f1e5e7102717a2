"""The engine step: schedule, run, sample, publish. Single-threaded; its owner calls it."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from inference.compact.run.roofline import Roofline
from inference.compact.schedule.outputs import SampledToken, StopRules, output_of
from inference.compact.schedule.request import Request, TokenMask
from inference.compact.schedule.scheduler import Chunk, Counts, Scheduler
from inference.contract.frames import Job, KvEvents, Output, Step

SEED_BITS = 63
NEVER_US = 1 << 63


class Model(Protocol):
    """What computes a step."""

    def run(self, chunks: list[Chunk]) -> list[SampledToken]:
        """One token for each sampled row, in the order of the chunks."""


@dataclass(eq=False)
class StepLoop:
    """All requests of one engine, from `accept` to their last output."""

    model: Model
    scheduler: Scheduler
    stop_rules: StopRules
    clock_us: Callable[[], int]
    roofline: Roofline | None = None
    requests: dict[bytes, Request] = field(default_factory=dict, init=False)
    # When the step under way began, and what it computes; read by other threads.
    under_way: tuple[int, list[Chunk]] | None = field(default=None, init=False)
    _ended: list[Output] = field(default_factory=list, init=False)
    _due_us: int = field(default=NEVER_US, init=False)

    @property
    def has_work(self) -> bool:
        """Whether a step would compute or publish something."""
        return self.scheduler.has_work or bool(self._ended)

    def accept(
        self, job: Job, received_us: int, mask: Callable[[], TokenMask] | None = None
    ) -> None:
        """Take a job; its first choice prefills, the others follow once they can share that.

        `mask` makes what limits a choice's tokens, one for each.
        """
        seed = job.sampling.seed
        request = Request(
            self.stop_rules.bounded(job),
            ends=self.stop_rules.ends(job),
            block_size=self.scheduler.pool.block_size,
            received_us=received_us,
            seed=secrets.randbits(SEED_BITS) if seed is None else seed,
        )
        if mask is not None:
            for sequence in request.sequences:
                sequence.mask = mask()
        self.requests[job.request] = request
        self._due_us = min(self._due_us, request.deadline_us)
        self.scheduler.add(request.sequences[0])

    def end(self, request_id: bytes, finish: str) -> None:
        """End a request in whatever state it is; its blocks are free when this returns."""
        request = self.requests.pop(request_id, None)
        if request is None:
            return
        now_us = self.clock_us()
        self.scheduler.abort(request, now_us)
        for sequence in request.unfinished:
            sequence.finish = finish
            self._ended.append(output_of(sequence, [], now_us))

    def end_all(self, finish: str) -> Step:
        """End every request; the last outputs come with the load that is left."""
        for request_id in list(self.requests):
            self.end(request_id, finish)
        return self._report([], [], self.clock_us(), self.scheduler.counts)

    def step(self) -> tuple[Step, KvEvents | None]:
        """One engine step, and what it changed in the prefix cache."""
        started_us = self.clock_us()
        before = self.scheduler.counts
        self._end_overdue(started_us)
        chunks, outputs = self._compute(started_us)
        changed = self.scheduler.pool.changes.events()
        return self._report(chunks, outputs, started_us, before), changed

    def _compute(self, started_us: int) -> tuple[list[Chunk], list[Output]]:
        """What was computed, and what that made."""
        chunks = self.scheduler.schedule(started_us)
        self.under_way = started_us, chunks
        sampled = self.model.run(chunks) if chunks else []
        self.under_way = None
        self.scheduler.advance(chunks)
        return chunks, self._computed(chunks, sampled, started_us)

    def _computed(
        self, chunks: list[Chunk], sampled: list[SampledToken], began_us: int
    ) -> list[Output]:
        """Publish a step that began then, and note what it took."""
        outputs = self._publish(chunks, sampled)
        took_us = self.clock_us() - began_us
        self.scheduler.note_step(chunks, took_us)
        if self.roofline is not None:
            self.roofline.note(chunks, took_us)
        return outputs

    def _report(
        self, chunks: list[Chunk], outputs: list[Output], started_us: int, before: Counts
    ) -> Step:
        """A step frame with the load as it is now and everything that has ended since;
        `before` is what the scheduler had counted when the step began.
        """
        now_us = self.clock_us()
        oldest_us = self.scheduler.pool.oldest_us()
        ended, self._ended = self._ended, []
        counts = self.scheduler.counts
        return Step(
            outputs=ended + outputs,
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.queue),
            waiting_tokens=self.scheduler.waiting_tokens,
            kv_free_blocks=self.scheduler.pool.available,
            oldest_block_s=0.0 if oldest_us is None else (now_us - oldest_us) / 1e6,
            step_us=now_us - started_us,
            preemptions=counts.preemptions - before.preemptions,
            drafted=counts.drafted - before.drafted,
            accepted=counts.accepted - before.accepted,
            prefilled_tokens=sum(each.count for each in chunks if each.count > each.sampled_rows),
            kv_cached_blocks=self.scheduler.pool.evictable,
            shares=None if self.roofline is None else self.roofline.shares,
        )

    def _end_overdue(self, now_us: int) -> None:
        """Requests past their deadline end as `cancelled`: no client waits for them any more."""
        if now_us < self._due_us:
            return
        overdue = [key for key, each in self.requests.items() if each.deadline_us <= now_us]
        for request_id in overdue:
            self.end(request_id, "cancelled")
        self._due_us = min((each.deadline_us for each in self.requests.values()), default=NEVER_US)

    def _publish(self, chunks: list[Chunk], sampled: list[SampledToken]) -> list[Output]:
        """Append the sampled tokens, apply the stop rules and write one output per choice; none for
        those that have ended meanwhile.
        """
        now_us = self.clock_us()
        outputs = []
        last = 0
        for chunk in chunks:
            sequence, request = chunk.sequence, chunk.sequence.request
            first, last = last, last + chunk.sampled_rows
            if sequence.finish is not None:
                continue
            if request.first_token_us is None:
                prefilled = chunk.start + chunk.count - len(chunk.drafts)
                request.prefilled_tokens = max(request.prefilled_tokens, prefilled)
            if chunk.sampled_rows:
                taken = self._append(chunk, sampled[first:last], now_us)
                outputs.append(output_of(sequence, taken, now_us))
            elif request.scores:
                outputs.append(output_of(sequence, [], now_us))
        return outputs

    def _append(self, chunk: Chunk, sampled: list[SampledToken], now_us: int) -> list[SampledToken]:
        """Append tokens up to the first rejected draft or the end, and return them."""
        sequence = chunk.sequence
        request = sequence.request
        accepted = taken = 0
        if not request.job.sampling.max_tokens:
            sampled, sequence.finish = [], "length"
        for taken, each in enumerate(sampled, 1):
            if each.token is None:
                sequence.finish = "error"
                break
            sequence.append(each.token)
            request.completion_tokens += 1
            right = taken <= len(chunk.drafts) and each.token == chunk.drafts[taken - 1]
            accepted += right
            sequence.finish = self.stop_rules.reason(sequence, each.token)
            if sequence.finish is not None or not right:
                break
        if chunk.drafts:
            self.scheduler.accept(chunk, accepted)
        if request.first_token_us is None:
            request.first_token_us = now_us
            for sibling in request.sequences[1:]:
                self.scheduler.add(sibling)
        if sequence.finish is not None:
            self.scheduler.finish(sequence, now_us)
            if not request.unfinished:
                del self.requests[request.job.request]
        return sampled[:taken]
