"""A virtual node: a roofline model of an 8B model on a data-centre GPU, stepped like an engine.

Chunked prefill in order of arrival beside decoding, prompt and output reserved at admission, so
nothing is ever preempted. Steps that only decode are taken together until something changes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from benchmarks.fleet.cache import KvChange, NodeCache
from benchmarks.fleet.chains import BLOCK_TOKENS, Request


@dataclass(frozen=True, slots=True)
class Gpu:
    """What one node can do; `speed` divides every time."""

    prefill_tokens_per_s: float = 30_000.0
    step_s_min: float = 0.006
    step_s_per_active: float = 30e-6
    step_s_per_kv_token: float = 50e-9
    budget_tokens: int = 2048
    running_max: int = 128
    kv_blocks: int = 400_000 // BLOCK_TOKENS
    speed: float = 1.0

    def step_s(self, tokens: int, active: int, kv_tokens: int) -> float:
        """Seconds that a step over `tokens` new tokens takes."""
        return (
            max(self.step_s_min, tokens / self.prefill_tokens_per_s)
            + self.step_s_per_active * active
            + self.step_s_per_kv_token * kv_tokens
        ) / self.speed


class Chunk(NamedTuple):
    """Prompt tokens of one request that one step computed; `last` when its first token came."""

    request: Request
    tokens: int
    last: bool


class Frame(NamedTuple):
    """What a node tells after a step: what changed, and its state, as of time `at`.

    Of `free_blocks`, `unused_blocks` hold what is cached and not in use. After a stretch of steps
    that only decoded, `step_s` is that of the last.
    """

    node: int
    at: float
    step_s: float
    chunks: list[Chunk]
    ended: list[Request]
    changes: list[KvChange]
    running: int
    waiting: int
    queued_tokens: int
    free_blocks: int
    unused_blocks: int
    oldest_used_at: float | None


class Prefilling:
    """A request that runs and has prompt tokens left to compute."""

    __slots__ = ("computed", "private_blocks", "request")

    def __init__(self, request: Request, private_blocks: int) -> None:
        self.request = request
        self.computed = request.cached_tokens
        self.private_blocks = private_blocks


class VirtualNode:
    """Takes requests by `submit`; `finish_steps` at `wakes_at` says what they led to."""

    def __init__(self, number: int, gpu: Gpu) -> None:
        self.number = number
        self.gpu = gpu
        self.cache = NodeCache(gpu.kv_blocks)
        self.wakes_at = math.inf
        self.waiting: deque[Request] = deque()
        self.queued_tokens = 0
        self._prefilling: list[Prefilling] = []
        # Those that decode: the step that brings their last token, a number, blocks not stored.
        self._decoding: list[tuple[int, int, Request, int]] = []
        self._numbers = 0
        self._steps_done = 0
        self._kv_tokens = 0
        self._chunks: list[tuple[Prefilling, int]] = []
        self._began_at = 0.0
        self._steps = 0
        self._step_s = 0.0
        self._growth_s = 0.0

    @property
    def running(self) -> int:
        """Requests that have been admitted."""
        return len(self._prefilling) + len(self._decoding)

    def submit(self, request: Request, now: float) -> None:
        """Queue a request; a stretch of decoding is cut short for it at the end of its step."""
        self.waiting.append(request)
        cached = request.cached_at(request.matched_blocks(self.cache.held))
        request.expected_tokens = request.prompt_tokens - cached
        self.queued_tokens += request.expected_tokens
        if self.wakes_at == math.inf:
            self._plan(now)
        elif self._steps > 1 and self.running < self.gpu.running_max:
            self._cut(now)

    def finish_steps(self) -> Frame:
        """The steps under way are done; go on with the next."""
        now = self.wakes_at
        decoding = len(self._decoding)
        step_s = self._step_s + self._growth_s * (self._steps - 1)
        self._steps_done += self._steps
        self._kv_tokens += self._steps * decoding
        chunks = [self._computed(here, tokens, now) for here, tokens in self._chunks]
        ended = self._ended(now)
        self._plan(now)
        changes, self.cache.changes = self.cache.changes, []
        return Frame(
            node=self.number,
            at=now,
            step_s=step_s,
            chunks=chunks,
            ended=ended,
            changes=changes,
            running=self.running,
            waiting=len(self.waiting),
            queued_tokens=self.queued_tokens,
            free_blocks=self.cache.free_blocks + self.cache.unused_blocks,
            unused_blocks=self.cache.unused_blocks,
            oldest_used_at=self.cache.oldest_used_at(),
        )

    def _computed(self, here: Prefilling, tokens: int, now: float) -> Chunk:
        request = here.request
        here.computed += tokens
        self._kv_tokens += tokens
        self.queued_tokens -= tokens
        here.private_blocks -= self.cache.store(request, here.computed // BLOCK_TOKENS)
        last = here.computed == request.prompt_tokens
        if last:
            request.first_at = now
            self._prefilling.remove(here)
            self._numbers += 1
            ends = self._steps_done + request.output_tokens - 1
            heappush(self._decoding, (ends, self._numbers, request, here.private_blocks))
        return Chunk(request, tokens, last)

    def _ended(self, now: float) -> list[Request]:
        ended = []
        while self._decoding and self._decoding[0][0] <= self._steps_done:
            _, _, request, private_blocks = heappop(self._decoding)
            every = (request.prompt_tokens + request.output_tokens) // BLOCK_TOKENS
            self.cache.release(private_blocks - self.cache.store(request, every))
            self.cache.unpin(request.path, now)
            self._kv_tokens -= request.prompt_tokens + request.output_tokens - 1
            request.ended_at = now
            ended.append(request)
        return ended

    def _plan(self, now: float) -> None:
        decoding = len(self._decoding)
        self._chunks = self._fill(self.gpu.budget_tokens - decoding)
        if not self._chunks and not decoding:
            self.wakes_at = math.inf
            return
        tokens = decoding + sum(tokens for _, tokens in self._chunks)
        self._began_at = now
        self._step_s = self.gpu.step_s(tokens, self.running, self._kv_tokens)
        self._growth_s = self.gpu.step_s_per_kv_token * decoding / self.gpu.speed
        self._steps = 1 if self._chunks else self._decoding[0][0] - self._steps_done
        self.wakes_at = now + self._duration(self._steps)

    def _fill(self, budget: int) -> list[tuple[Prefilling, int]]:
        """The prompt tokens of the next step, first come first served."""
        chunks: list[tuple[Prefilling, int]] = []
        for here in self._prefilling:
            if budget <= 0:
                return chunks
            tokens = min(budget, here.request.prompt_tokens - here.computed)
            chunks.append((here, tokens))
            budget -= tokens
        while budget > 0 and self.waiting and (new := self._admitted()) is not None:
            tokens = min(budget, new.request.prompt_tokens - new.computed)
            chunks.append((new, tokens))
            budget -= tokens
        return chunks

    def _admitted(self) -> Prefilling | None:
        """Start the first that waits, if there is a slot and there are blocks for it."""
        if self.running >= self.gpu.running_max:
            return None
        request = self.waiting[0]
        every = -(-(request.prompt_tokens + request.output_tokens) // BLOCK_TOKENS)
        self.cache.pin(request.path)
        matched = request.matched_blocks(self.cache.held)
        if not self.cache.reserve(every - matched):
            self.cache.unpin(request.path, self._began_at)
            return None
        self.waiting.popleft()
        request.cached_tokens = request.cached_at(matched)
        uncached = request.prompt_tokens - request.cached_tokens
        self.queued_tokens += uncached - request.expected_tokens
        self._kv_tokens += request.cached_tokens
        new = Prefilling(request, every - matched)
        self._prefilling.append(new)
        return new

    def _cut(self, now: float) -> None:
        """End the stretch with the step that runs at `now`: it may take prompts after it."""
        low, high = 1, self._steps
        while low < high:
            middle = (low + high) // 2
            if self._began_at + self._duration(middle) > now:
                high = middle
            else:
                low = middle + 1
        self._steps = low
        self.wakes_at = self._began_at + self._duration(low)

    def _duration(self, steps: int) -> float:
        return steps * self._step_s + self._growth_s * (steps * (steps - 1) / 2)
