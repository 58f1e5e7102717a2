"""One run: requests when they are due, within bounds, until all is done or somebody stops it."""

import asyncio
import random
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from controlplane.insights.load import workloads
from controlplane.insights.load.samples import OK, LoadSample
from controlplane.insights.load.setup import SEED, LoadError, LoadSetup
from controlplane.insights.load.wire import LoadClient
from controlplane.insights.load.workloads import Body, LoadPrompts, Message
from controlplane.kernel.clock import monotonic_s

# How long requests that have started, or wait for a place, may go on after the last start.
DRAIN_S_MAX = 60.0
BURST = 8
RETRIES = 5
LEAVES_AFTER_MAX = 20
SLOW_PAUSE_S = 0.25
TOOL_S = 2.0


class _Spent(Exception):
    """All requests that may be sent have been."""


@dataclass
class LoadOutcome:
    """What a run has seen so far; `began_s` and `ended_s` are moments, 0 before they are."""

    samples: list[LoadSample] = field(default_factory=list)
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def seconds(self) -> float:
        return (self.ended_s or monotonic_s()) - self.began_s


class LoadRun:
    """Drives one run; `outcome` grows while it does. `run` names it, and makes its texts new."""

    def __init__(self, setup: LoadSetup, key: str, run: str) -> None:
        self.outcome = LoadOutcome(began_s=monotonic_s())
        self._setup = setup
        self._client = LoadClient(setup.url, key)
        self._prompts = LoadPrompts(setup.fields, run)
        # Which request is of which kind is the same in each run.
        self._chance = random.Random(SEED)
        self._places = asyncio.Semaphore(setup.concurrency)
        self._agents: deque[tuple[list[Message], int]] = deque()

    async def run(self) -> None:
        """Ask until bounds are reached, or until this is cancelled. Raises LoadError where not even
        the request for calibration, which is not counted, is answered.
        """
        outcome, setup = self.outcome, self._setup
        try:
            sample = LoadSample("calibration", monotonic_s())
            await self._client.ask(self._prompts.calibration(), sample)
            if sample.code != OK:
                raise LoadError(f"{setup.url} did not answer a first request: {sample.code}.")
            self._prompts.calibrate(sample.prompt_tokens)
            outcome.began_s = monotonic_s()
            with suppress(TimeoutError):
                async with asyncio.timeout(setup.seconds + DRAIN_S_MAX):
                    await (self._open() if setup.rate else self._closed())
        finally:
            outcome.ended_s = monotonic_s()
            self._client.close()

    async def _closed(self) -> None:
        async def stream() -> None:
            while self.outcome.seconds < self._setup.seconds:
                await self._unit(monotonic_s())

        async with asyncio.TaskGroup() as group:
            for _ in range(self._setup.streams):
                group.create_task(_until_spent(stream()))

    async def _open(self) -> None:
        async with asyncio.TaskGroup() as group:
            for due_s in self._setup.starts_s():
                planned_s = self.outcome.began_s + due_s
                await asyncio.sleep(max(0.0, planned_s - monotonic_s()))
                group.create_task(_until_spent(self._unit(planned_s)))

    async def _unit(self, planned_s: float) -> None:
        """What is due at one start: one request, or several where the kind is of several."""
        kind = self._chance.choice(self._setup.kinds)
        prompts, sample = self._prompts, LoadSample(kind, planned_s)
        match kind:
            case workloads.REFERENCE:
                return await self._agent(sample)
            case workloads.BURST:
                return await self._burst(planned_s)
            case workloads.SLOW_TOOLS:
                return await self._slow_tools(sample)
            case workloads.RETRIES:
                return await self._retry(sample)
            case workloads.BEYOND_WINDOW:
                body = prompts.beyond(self._setup.window)
            case workloads.GIANT_SCHEMAS:
                body = prompts.giant_tools()
            case _:
                body = prompts.body(prompts.agent())
        if kind == workloads.DISCONNECT:
            sample.leaves_after = self._chance.randint(1, LEAVES_AFTER_MAX)
        elif kind == workloads.SLOW_READER:
            sample.pause_s = SLOW_PAUSE_S
        await self._send(sample, body)

    async def _agent(self, sample: LoadSample) -> None:
        """The next turn of the agent that has waited longest, or the first one of a new agent."""
        messages, turn = self._agents.popleft() if self._agents else (self._prompts.agent(), 1)
        await self._send(sample, self._prompts.body(messages))
        if turn < self._setup.turns:
            self._agents.append((self._prompts.grow(messages), turn + 1))

    async def _burst(self, planned_s: float) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(BURST):
                body = self._prompts.body(self._prompts.agent())
                sent = self._send(LoadSample(workloads.BURST, planned_s), body)
                group.create_task(_until_spent(sent))

    async def _slow_tools(self, sample: LoadSample) -> None:
        body = self._prompts.with_tool()
        if await self._send(sample, body):
            await asyncio.sleep(TOOL_S)
            then = LoadSample(sample.kind, monotonic_s())
            await self._send(then, self._prompts.after_tool(body))

    async def _retry(self, sample: LoadSample) -> None:
        """The same again at once, as long as it fails."""
        body = self._prompts.body(self._prompts.agent())
        for _ in range(1 + RETRIES):
            if await self._send(sample, body):
                return
            sample = LoadSample(sample.kind, monotonic_s())

    async def _send(self, sample: LoadSample, body: Body) -> bool:
        """Whether the answer was whole."""
        if len(self.outcome.samples) >= self._setup.requests:
            raise _Spent
        self.outcome.samples.append(sample)
        async with self._places:
            await self._client.ask(body, sample)
        return sample.code == OK


async def _until_spent(work: Coroutine[Any, Any, object]) -> None:
    with suppress(_Spent):
        await work
