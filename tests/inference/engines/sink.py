"""Collects what an engine says, and waits for what a test wants to see."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from inference.contract.frames import KvEvents, Output, Step
from inference.errors import JobRefused

WAIT_S = 60.0


class Sink:
    """Events of one engine, with the order of steps and KV events kept."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.kv: list[KvEvents] = []
        self.deaths: list[BaseException] = []
        self.refused: dict[bytes, JobRefused] = {}
        self.outputs: dict[bytes, list[Output]] = defaultdict(list)
        self._changed = asyncio.Event()

    def on_step(self, step: Step) -> None:
        self.steps.append(step)
        for output in step.outputs:
            self.outputs[output.request].append(output)
        self._changed.set()

    def on_kv(self, events: KvEvents) -> None:
        self.kv.append(events)
        self._changed.set()

    def on_refused(self, request: bytes, refused: JobRefused) -> None:
        assert not self.outputs[request], "refused after an output"
        self.refused[request] = refused
        self._changed.set()

    def on_death(self, error: BaseException) -> None:
        self.deaths.append(error)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; fails after a minute."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def finishes(self, request: bytes) -> list[str]:
        """Ends of a request's choices so far."""
        return [each.finish for each in self.outputs[request] if each.finish is not None]

    async def finished(self, request: bytes, choices: int = 1) -> list[Output]:
        """All outputs of a request, once each choice has ended exactly once."""
        await self.until(lambda: len(self.finishes(request)) >= choices)
        assert len(self.finishes(request)) == choices
        return self.outputs[request]
