"""One run: requests when they are due, within bounds, until all is done or somebody stops it."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.core.management.base import CommandError

from controlplane.insights.load import workloads
from controlplane.insights.load.answers import OK, PATIENT, LoadClient, LoadSample, Manners
from controlplane.insights.load.setup import SEED, LoadSetup
from controlplane.insights.load.workloads import Body, LoadPrompts, Message
from controlplane.kernel.clock import monotonic_s

# How long requests that have started, or wait for a place, may go on after the last start.
DRAIN_S_MAX = 60.0
PROGRESS_S = 0.5
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
        self.outcome = LoadOutcome()
        self._setup = setup
        self._asker = LoadClient(setup.url, key, setup.concurrency)
        self._prompts = LoadPrompts(setup, run)
        # Which request is of which kind is the same in each run.
        self._chance = random.Random(SEED)
        self._places = asyncio.Semaphore(setup.concurrency)
        self._agents: deque[tuple[list[Message], int]] = deque()

    async def run(self, stop: asyncio.Event, progress: Callable[[LoadOutcome], None]) -> None:
        """Ask until bounds are reached or `stop` is set. Raises CommandError where not even the
        request for calibration, which is not counted, is answered.
        """
        self.outcome.began_s = monotonic_s()
        try:
            work = asyncio.create_task(self._bounded())
            stopped = asyncio.create_task(stop.wait())
            while not work.done() and not stopped.done():
                progress(self.outcome)
                await asyncio.wait(
                    (work, stopped), timeout=PROGRESS_S, return_when=asyncio.FIRST_COMPLETED
                )
            self.outcome.ended_s = monotonic_s()
            stopped.cancel()
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
        finally:
            await self._asker.close()

    async def _calibrate(self) -> None:
        sample = LoadSample("calibration", monotonic_s())
        await self._asker.ask(self._prompts.calibration(), sample)
        if sample.code != OK:
            raise CommandError(f"{self._setup.url} did not answer a first request: {sample.code}.")
        self._prompts.calibrate(sample.prompt_tokens)

    async def _bounded(self) -> None:
        await self._calibrate()
        self.outcome.began_s = monotonic_s()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._setup.seconds + DRAIN_S_MAX):
                await (self._open() if self._setup.rate else self._closed())

    async def _closed(self) -> None:
        async def stream() -> None:
            while self.outcome.seconds < self._setup.seconds:
                await self._unit(monotonic_s())

        async with asyncio.TaskGroup() as group:
            for _ in range(self._setup.streams):
                group.create_task(self._until_spent(stream()))

    async def _open(self) -> None:
        async with asyncio.TaskGroup() as group:
            for due_s in self._due():
                planned_s = self.outcome.began_s + due_s
                await asyncio.sleep(max(0.0, planned_s - monotonic_s()))
                group.create_task(self._until_spent(self._unit(planned_s)))

    def _due(self) -> Iterator[float]:
        for number, due_s in enumerate(self._setup.starts_s()):
            if number >= self._setup.requests or due_s > self._setup.seconds:
                return
            yield due_s

    async def _until_spent(self, work: Coroutine[Any, Any, object]) -> None:
        with suppress(_Spent):
            await work

    async def _unit(self, planned_s: float) -> None:
        """What is due at one start: one request, or several where the kind is of several."""
        kind = self._chance.choice(self._setup.kinds)
        special = {
            workloads.BURST: self._burst,
            workloads.SLOW_TOOLS: self._slow_tools,
            workloads.RETRIES: self._retry,
        }.get(kind)
        if special is not None:
            await special(planned_s)
            return
        manners = PATIENT
        if kind == workloads.DISCONNECT:
            manners = Manners(leaves_after=self._chance.randint(1, LEAVES_AFTER_MAX))
        elif kind == workloads.SLOW_READER:
            manners = Manners(pause_s=SLOW_PAUSE_S)
        if kind == workloads.REFERENCE:
            await self._agent(planned_s)
        else:
            await self._send(kind, planned_s, self._body(kind), manners)

    def _body(self, kind: str) -> Body:
        if kind == workloads.BEYOND_WINDOW:
            return self._prompts.beyond_window()
        if kind == workloads.GIANT_SCHEMAS:
            return self._prompts.giant_tools()
        return self._prompts.body(self._prompts.agent())

    async def _agent(self, planned_s: float) -> None:
        """The next turn of the agent that has waited longest, or the first one of a new agent."""
        messages, turn = self._agents.popleft() if self._agents else (self._prompts.agent(), 1)
        await self._send(workloads.REFERENCE, planned_s, self._prompts.body(messages))
        if turn < self._setup.turns:
            self._agents.append((self._prompts.grow(messages), turn + 1))

    async def _burst(self, planned_s: float) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(BURST):
                body = self._body(workloads.BURST)
                sent = self._send(workloads.BURST, planned_s, body)
                group.create_task(self._until_spent(sent))

    async def _slow_tools(self, planned_s: float) -> None:
        body = self._prompts.with_tool()
        sample = await self._send(workloads.SLOW_TOOLS, planned_s, body)
        if sample.code == OK:
            await asyncio.sleep(TOOL_S)
            then = self._prompts.after_tool(body)
            await self._send(workloads.SLOW_TOOLS, monotonic_s(), then)

    async def _retry(self, planned_s: float) -> None:
        """The same again at once, as long as it fails."""
        body = self._body(workloads.RETRIES)
        sample = await self._send(workloads.RETRIES, planned_s, body)
        for _ in range(RETRIES):
            if sample.code == OK:
                return
            sample = await self._send(workloads.RETRIES, monotonic_s(), body)

    async def _send(
        self, kind: str, planned_s: float, body: Body, manners: Manners = PATIENT
    ) -> LoadSample:
        samples = self.outcome.samples
        if len(samples) >= self._setup.requests:
            raise _Spent
        sample = LoadSample(kind, planned_s)
        samples.append(sample)
        async with self._places:
            await self._asker.ask(body, sample, manners)
        return sample
