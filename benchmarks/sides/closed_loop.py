"""A closed loop of requests around a compact engine in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from benchmarks.sides.protocol import Timed, Watch
from inference.contract.blocks import chain_hashes
from inference.contract.frames import Job, KvEvents, Sampling, Step
from inference.engines.compact import CompactEngine
from inference.errors import JobRefused

SALT = b"\1" * 16
DEADLINE_MS = 600_000
GREEDY = {"temperature": 0.0}


class _Sink:
    """The engine's events: outputs are stamped, the last step is kept."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.last: Step | None = None
        self.ended: asyncio.Queue[int] = asyncio.Queue()
        self.usage: dict[int, int] = {}
        self.logprob = 0.0
        self.error: BaseException | None = None

    def on_step(self, step: Step) -> None:
        """Stamp."""
        self.last = step
        for output in step.outputs:
            request = int.from_bytes(output.request)
            if output.tokens:
                self.watch.came(request, len(output.tokens))
            self.logprob += sum(each.logprob for each in output.prompt_logprobs or ())
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


class ClosedLoop:
    """The engine, started; `sampling` is what all requests ask for beside their length."""

    def __init__(self, engine: CompactEngine, sampling: dict[str, Any] | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.engine = engine
        self.sampling = sampling or GREEDY
        self.sink = _Sink()
        self.sent = 0
        self.loop.run_until_complete(self.engine.start(self.sink))

    def run(self, prompts: list[list[int]], outputs: list[int], width: int) -> dict[str, Any]:
        """A closed loop of `width` requests; says also how many tokens each found cached."""
        timed, cached = self.loop.run_until_complete(self._run(prompts, outputs, width))
        return {**vars(timed), "cached": cached}

    def scores(self, prompts: list[list[int]]) -> float:
        """Sum of the log probabilities of all tokens but each prompt's first."""
        self.sampling = {**self.sampling, "prompt_logprobs": 0}
        self.sink.logprob = 0.0
        self.run(prompts, [1] * len(prompts), 1)
        return self.sink.logprob

    async def _run(
        self, prompts: list[list[int]], outputs: list[int], width: int
    ) -> tuple[Timed, list[int]]:
        sink = self.sink
        sink.watch = Watch()
        first, done = self.sent, 0
        for place in range(len(prompts)):
            if place - done >= width:
                done += await self.one_ends()
            self.submit(prompts[place], outputs[place])
        while done < len(prompts):
            done += await self.one_ends()
        timed = sink.watch.done()
        return timed, [sink.usage.pop(number) for number in range(first, self.sent)]

    async def one_ends(self) -> int:
        """Wait for one more request to end, and count it; raises what the engine died of."""
        await self.one_ended()
        return 1

    async def one_ended(self) -> int:
        """Wait for one more request to end, and tell which; raises what the engine died of."""
        request = await self.sink.ended.get()
        if self.sink.error is not None:
            raise self.sink.error
        return request

    def submit(self, prompt: list[int], count: int) -> bytes:
        """Send one request, the next in number."""
        return self.send(self.job(prompt, count))

    def job(self, prompt: list[int], count: int) -> Job:
        """A request, which has its number once it is sent."""
        facts = self.engine.facts
        return Job(
            request=b"",
            model=facts.model,
            tokens=prompt,
            salt=SALT,
            hashes=b"".join(chain_hashes(prompt, facts.block_size, SALT)),
            sampling=Sampling(max_tokens=count, ignore_eos=True, **self.sampling),
            stop_tokens=[],
            deadline_ms=DEADLINE_MS,
        )

    def send(self, job: Job) -> bytes:
        """Send a request, the next in number."""
        request = self.sent.to_bytes(16)
        self.sink.watch.sent(self.sent)
        self.sent += 1
        self.engine.submit(msgspec.structs.replace(job, request=request))
        return request
