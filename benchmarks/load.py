"""Closed loops of the client of `sluice load`, and what all requests of one have seen.

It runs on its own core, so that it is not what is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from controlplane.insights.load.samples import OK, LoadSample, percentile
from controlplane.insights.load.wire import LoadConnection, request_bytes
from controlplane.kernel.clock import monotonic_s

__all__ = ["Connection", "Tally", "Work", "closed_loop", "percentile", "request_bytes"]

HOST = "127.0.0.1"


@dataclass
class Tally:
    """What one run of the load has seen; times in seconds."""

    answers: int = 0
    errors: int = 0
    tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    total_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    gap_s: list[float] = field(default_factory=list)

    def note(self, sample: LoadSample) -> None:
        """Count one that has been answered."""
        if sample.code != OK:
            self.errors += 1
            return
        self.answers += 1
        self.tokens += sample.events
        self.output_tokens += sample.output_tokens
        self.cached_tokens += sample.cached_tokens
        self.total_s.append(sample.total_s)
        self.gap_s += sample.gaps_s
        if sample.events:
            self.first_s.append(sample.ttft_s)


class Connection:
    """One keep-alive connection, opened when it is first needed and after failures."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: LoadConnection | None = None

    def close(self) -> None:
        """Hang up."""
        if self._open is not None:
            self._open.close()

    async def ask(self, request: bytes, tally: Tally) -> LoadSample:
        """Send, and read the answer, streamed or whole."""
        if self._open is None or self._open.closed:
            self._open = await LoadConnection.open_to(HOST, self._port)
        sample = LoadSample("", monotonic_s())
        await self._open.ask(request, sample)
        tally.note(sample)
        return sample


Work = Callable[[Connection, Tally], Awaitable[object]]


async def closed_loop(port: int, work: Work, *, clients: int, seconds: float) -> Tally:
    """Each client sends its next request when the last one is answered."""
    tally = Tally()
    until = time.perf_counter() + seconds

    async def client() -> None:
        connection = Connection(port)
        try:
            while time.perf_counter() < until:
                await work(connection, tally)
        finally:
            connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return tally
