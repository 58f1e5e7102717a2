"""Traces on their way out: a bounded queue of finished requests, and a task that exports them.

On a request's way there is one append. What becomes of it, spans, protobuf and HTTP, happens on
another thread; a collector that is away or slow costs traces, which are counted, and nothing else.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import structlog

from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.tasks import end

QUEUE_MAX = 2_048
BATCH_MAX = 256
EXPORT_S = 1.0
CLOSE_S_MAX = 5.0

Export = Callable[[Sequence[FinishedRequest]], bool]
"""Sends the spans of some requests, and says whether the collector took them; may block."""

log = structlog.get_logger(__name__)


class TraceQueue:
    """Exports until it is closed."""

    def __init__(self, export: Export) -> None:
        self.exported = 0
        self.dropped = 0
        self._export = export
        self._queue: deque[FinishedRequest] = deque()
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="traces")

    async def close(self) -> None:
        """Export what is left, within a bound."""
        if self._task is None:
            return
        await end(self._task)
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                while self._queue:
                    await self._send()
        except TimeoutError:
            self.dropped += len(self._queue)
            log.warning("traces_dropped", requests=len(self._queue))

    def take(self, record: FinishedRequest) -> None:
        """Queue a request whose trace is recorded; the newest is dropped when the queue is full."""
        if len(self._queue) >= QUEUE_MAX:
            self.dropped += 1
            return
        self._queue.append(record)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EXPORT_S)
            while self._queue:
                await self._send()

    async def _send(self) -> None:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_MAX))]
        try:
            taken = await asyncio.to_thread(self._export, batch)
        except Exception:
            # Whatever a library or a collector does, later traces are still sent.
            log.exception("traces_not_exported")
            taken = False
        if taken:
            self.exported += len(batch)
        else:
            self.dropped += len(batch)
        if taken is self._failing:
            self._failing = not taken
            event = "traces_taken_again" if taken else "traces_not_taken"
            log.warning(event, requests_dropped=self.dropped)
