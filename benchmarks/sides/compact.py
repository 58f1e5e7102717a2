"""Our compact engine as a node runs it: `python -m benchmarks.sides.compact DIR OPTIONS`.

The options are those of `CompactOptions`, in JSON. With `started.COMPACT_ENVIRONMENT`, which a node
sets for itself before torch is imported.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.load import percentile
from benchmarks.sides.closed_loop import ClosedLoop
from benchmarks.sides.protocol import Watch, answer_until_closed
from inference.compact.load.placement import CPU_KV_BYTES
from inference.compact.options import CompactOptions
from inference.compact.run.loop import Model, StepLoop
from inference.compact.run.native import NativeDecoder
from inference.compact.run.runner import Runner
from inference.contract.frames import Job
from inference.engines.compact import CompactEngine

READ_BYTES = 200_000_000
READ_PASSES = 12
CANCELS_WIDTH = 64
CANCELS_SHARE = 0.3
LONG_PROMPTS, LONG_TOKENS, LONG_OUTPUT = 24, 3_000, 8
# So many times as many are there to follow those that end.
MORE = 12
SHORTS, SHORT_TOKENS, SHORT_OUTPUT, SHORT_EVERY_S = 60, 32, 4, 0.1


class _Opened(CompactEngine):
    """The engine, with a look at the memory that it took for its cache."""

    runner: Model

    def build(self) -> StepLoop:
        """As ever; the model is kept in sight."""
        step_loop = super().build()
        self.runner = step_loop.model
        return step_loop

    def cache_bytes(self) -> int | None:
        """Size of the cache's memory; None where torch keeps it, with a spare block of its own."""
        model = self.runner.model if isinstance(self.runner, Runner) else None
        return model.cache.nbytes if isinstance(model, NativeDecoder) else None


class _Compact(ClosedLoop):
    engine: _Opened

    def __init__(self, path: str, options: CompactOptions) -> None:
        self.kv_bytes = options.kv_bytes or CPU_KV_BYTES
        super().__init__(_Opened(Path(path), options))

    def kv_exceeded(self) -> int | None:
        """Bytes of the cache above its stated size."""
        taken = self.engine.cache_bytes()
        return None if taken is None else max(0, taken - self.kv_bytes)

    def cancels(self, requests: int) -> dict[str, int]:
        """Short requests, some cancelled at a random moment; what the pool lacks afterwards."""
        return self.loop.run_until_complete(self._cancels(requests))

    async def _cancels(self, requests: int) -> dict[str, int]:
        draw = random.Random(0)
        facts, done, cancelled = self.engine.facts, 0, 0
        self.sink.watch = Watch()
        for number in range(requests):
            if number - done >= CANCELS_WIDTH:
                done += await self.one_ends()
            prompt = draw.choices(range(300, facts.vocab_size), k=draw.randint(1, 96))
            request = self.submit(prompt, draw.randint(1, 24))
            if draw.random() < CANCELS_SHARE:
                cancelled += 1
                self.loop.call_later(draw.random() / 50, self.engine.cancel, request)
        while done < requests:
            done += await self.one_ends()
        assert self.sink.last is not None
        self.sink.usage.clear()
        return {"cancelled": cancelled, "leaked": facts.kv_blocks - self.sink.last.kv_free_blocks}

    def short_beside_long(self) -> dict[str, float]:
        """Short requests at a fixed pace, alone and beside so many long prompts at any time."""
        return self.loop.run_until_complete(self._short_beside_long())

    async def _short_beside_long(self) -> dict[str, float]:
        alone_s, _ = await self._shorts(0)
        beside_s, tokens_s = await self._shorts(LONG_PROMPTS)
        return {
            "short_beside_long_p95_ratio": round(beside_s / alone_s, 2),
            "short_alone_p95_ms": round(alone_s * 1e3, 1),
            "short_beside_long_p95_ms": round(beside_s * 1e3, 1),
            "prompt_tokens_s": round(tokens_s, 1),
        }

    async def _shorts(self, long: int) -> tuple[float, float]:
        """The p95 of short requests to their first token in seconds, and prompt tokens a second."""
        draw = random.Random(self.sent)
        made = [(SHORT_TOKENS, SHORT_OUTPUT)] * SHORTS + [(LONG_TOKENS, LONG_OUTPUT)] * long * MORE
        # Made before, so that nothing but the engine computes while they run.
        jobs = [self.job(draw.choices(range(300, 2_000), k=size), count) for size, count in made]
        self.sink.watch = watch = Watch()
        began, sent = time.perf_counter(), sum(size for size, _ in made[: SHORTS + long])
        running = {int.from_bytes(self.send(job)) for job in jobs[SHORTS : SHORTS + long]}
        answered = self.loop.create_task(self._answered(running, jobs[SHORTS + long :]))
        firsts = []
        for job in jobs[:SHORTS]:
            firsts.append(int.from_bytes(self.send(job)))
            await asyncio.sleep(SHORT_EVERY_S)
        sent += LONG_TOKENS * await answered
        assert self.sink.last is not None
        tokens_s = (sent - self.sink.last.waiting_tokens) / (time.perf_counter() - began)
        for request in running:
            self.engine.cancel(request.to_bytes(16))
        while running:
            running.discard(await self.one_ended())
        self.sink.usage.clear()
        return percentile([watch.first_s[number] for number in firsts], 0.95), tokens_s

    async def _answered(self, running: set[int], more: list[Job]) -> int:
        """Wait for all short requests; a long one that ends is followed by the next. How many."""
        left, followed = SHORTS, 0
        while left:
            request = await self.one_ended()
            if request not in running:
                left -= 1
                continue
            running.remove(request)
            if followed < len(more):
                running.add(int.from_bytes(self.send(more[followed])))
                followed += 1
        return followed


def read_gb_s() -> float:
    """Fastest of several passes of torch's own sum over 200 MB, all threads: GB/s."""
    data = torch.zeros(READ_BYTES // 4)
    best = float("inf")
    for _ in range(READ_PASSES):
        began = time.perf_counter()
        data.sum()
        best = min(best, time.perf_counter() - began)
    return READ_BYTES / best / 1e9


def load() -> dict[str, Any]:
    """The engine named on the command line."""
    path, options = sys.argv[1:]
    compact = _Compact(path, CompactOptions(**json.loads(options)))
    return {
        "run": compact.run,
        "scores": compact.scores,
        "cancels": compact.cancels,
        "short_beside_long": compact.short_beside_long,
        "kv_exceeded": compact.kv_exceeded,
        "read_gb_s": read_gb_s,
    }


if __name__ == "__main__":
    answer_until_closed(load)
