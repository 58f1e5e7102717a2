"""Our compact engine as a node runs it: `python -m benchmarks.sides.compact DIR WIDTH KV_MIB`.

With `engine.COMPACT_ENVIRONMENT`, which a node sets for itself before torch is imported.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.sides.protocol import Timed, Watch, answer_until_closed
from inference.compact.loop import Model, StepLoop
from inference.compact.native.decoder import NativeDecoder
from inference.compact.options import MEBIBYTE, CompactOptions
from inference.compact.runner import Runner
from inference.contract.blocks import chain_hashes
from inference.contract.frames import Job, KvEvents, Sampling, Step
from inference.engines.base import JobRefused
from inference.engines.compact import CompactEngine

SALT = b"\1" * 16
DEADLINE_MS = 600_000
READ_BYTES = 200_000_000
READ_PASSES = 12
CANCELS_WIDTH = 64
CANCELS_SHARE = 0.3


class _Sink:
    """The engine's events: outputs are stamped, the last step is kept."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.last: Step | None = None
        self.ended: asyncio.Queue[int] = asyncio.Queue()
        self.usage: dict[int, int] = {}
        self.error: BaseException | None = None

    def on_step(self, step: Step) -> None:
        """Stamp."""
        self.last = step
        for output in step.outputs:
            request = int.from_bytes(output.request)
            if output.tokens:
                self.watch.came(request, len(output.tokens))
            if output.finish is not None:
                self.usage[request] = output.usage.cached_tokens
                self.ended.put_nowait(request)

    def on_kv(self, events: KvEvents) -> None:
        """Nobody routes here."""

    def on_refused(self, request: bytes, refused: JobRefused) -> None:
        """Nothing here may be refused."""
        self.on_death(refused)

    def on_death(self, error: BaseException) -> None:
        """Keep the reason for whoever waits."""
        self.error = error
        self.ended.put_nowait(-1)


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


class _Compact:
    def __init__(self, path: str, width: int, kv_mib: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.kv_bytes = kv_mib * MEBIBYTE
        options = CompactOptions(running_max=width, kv_bytes=self.kv_bytes)
        self.engine = _Opened(Path(path), options)
        self.sink = _Sink()
        self.sent = 0
        self.loop.run_until_complete(self.engine.start(self.sink))

    def run(self, prompts: list[list[int]], outputs: list[int], width: int) -> dict[str, Any]:
        """A closed loop of `width` requests; says also how many tokens each found cached."""
        timed, cached = self.loop.run_until_complete(self._run(prompts, outputs, width))
        return {**vars(timed), "cached": cached}

    async def _run(
        self, prompts: list[list[int]], outputs: list[int], width: int
    ) -> tuple[Timed, list[int]]:
        sink = self.sink
        sink.watch = Watch()
        first, done = self.sent, 0
        for place in range(len(prompts)):
            if place - done >= width:
                done += await self._one_ends()
            self._submit(prompts[place], outputs[place])
        while done < len(prompts):
            done += await self._one_ends()
        timed = sink.watch.done()
        return timed, [sink.usage.pop(number) for number in range(first, self.sent)]

    async def _one_ends(self) -> int:
        await self.sink.ended.get()
        if self.sink.error is not None:
            raise self.sink.error
        return 1

    def _submit(self, prompt: list[int], count: int) -> bytes:
        request = self.sent.to_bytes(16)
        self.sink.watch.sent(self.sent)
        self.sent += 1
        facts = self.engine.facts
        self.engine.submit(
            Job(
                request=request,
                model=facts.model,
                tokens=prompt,
                salt=SALT,
                hashes=b"".join(chain_hashes(prompt, facts.block_size, SALT)),
                sampling=Sampling(max_tokens=count, temperature=0.0, ignore_eos=True),
                stop_tokens=[],
                deadline_ms=DEADLINE_MS,
            )
        )
        return request

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
                done += await self._one_ends()
            prompt = draw.choices(range(300, facts.vocab_size), k=draw.randint(1, 96))
            request = self._submit(prompt, draw.randint(1, 24))
            if draw.random() < CANCELS_SHARE:
                cancelled += 1
                self.loop.call_later(draw.random() / 50, self.engine.cancel, request)
        while done < requests:
            done += await self._one_ends()
        assert self.sink.last is not None
        self.sink.usage.clear()
        return {"cancelled": cancelled, "leaked": facts.kv_blocks - self.sink.last.kv_free_blocks}


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
    compact = _Compact(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    return {
        "run": compact.run,
        "cancels": compact.cancels,
        "kv_exceeded": compact.kv_exceeded,
        "read_gb_s": read_gb_s,
    }


if __name__ == "__main__":
    answer_until_closed(load)
