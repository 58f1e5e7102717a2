"""What stage 5 reads: the outputs of one dispatched job, or the typed reason why they ended.

It neither decides on retries nor counts money; it says what the node delivered.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from controlplane.gateway.nodes.limits import STREAM_OUTPUTS_MAX
from controlplane.kernel.clock import MICROSECOND_NS, monotonic_ns
from inference.contract.frames import Job, Output, Timing, Usage

NO_USAGE = Usage(prompt_tokens=0, cached_tokens=0, completion_tokens=0)
NO_TIMING = Timing(queue_us=0, prefill_us=0, decode_us=0, held_us=0)


class RemoteTimes(NamedTuple):
    """What a job took on the way and on its node, microseconds."""

    network: int
    queue: int
    prefill: int
    decode: int


NO_TIMES = RemoteTimes(0, 0, 0, 0)
# Takes outputs in the turn that brings them; False where their reader has to be woken instead.
Sink = Callable[[list[Output]], bool]


class NodeLost(Exception):
    """The link, the node or its honesty failed. Before the first token a retry is safe."""


class SlowReader(Exception):
    """The reader fell behind by more than the bound; the job was cancelled."""


class JobRejected(Exception):
    """The node did not take the job; `code` is one of those of the `Rejected` frame."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class JobStream:
    """The outputs of one job in batches, first to last.

    `apart` is where another node has computed its prompt, as in `HandedOver`.
    """

    __slots__ = (
        "_broken", "_buffer", "_cancel", "_dispatched_ns", "_done", "_left", "_outputs_max",
        "_sink", "_waiter", "apart", "cancelled", "choices_open", "completion_tokens",
        "network_us", "node", "request", "timing", "usage",
    )  # fmt: skip

    def __init__(
        self,
        job: Job,
        *,
        node: str,
        cancel: Callable[[bytes], None],
        outputs_max: int = STREAM_OUTPUTS_MAX,
    ) -> None:
        self.request = job.request
        self.node = node
        self.usage = NO_USAGE
        self.timing = NO_TIMING
        self.cancelled = False
        self.choices_open = job.choices
        self.completion_tokens = 0
        self.network_us = 0
        self.apart: tuple[int, RemoteTimes] | None = None
        self._cancel = cancel
        self._outputs_max = outputs_max
        self._buffer: list[Output] = []
        self._sink: Sink | None = None
        self._broken: Exception | None = None
        self._done = self._left = False
        self._waiter: asyncio.Future[None] | None = None
        self._dispatched_ns = monotonic_ns()

    @property
    def times(self) -> RemoteTimes:
        timing = self.timing
        return RemoteTimes(self.network_us, timing.queue_us, timing.prefill_us, timing.decode_us)

    @property
    def ended(self) -> bool:
        """The node has nothing more to say on this job; `usage` is final."""
        return self._done

    def cancel(self) -> None:
        """Stop the job on the node; idempotent, and nothing after the end."""
        if self.cancelled or self._done:
            return
        self.cancelled = True
        self._buffer.clear()
        self._cancel(self.request)

    def leave(self) -> None:
        """End the batches of a job although its node has not: its answer is whole, or cancelled."""
        self._left = True
        self._wake()

    async def batch(self, sink: Sink | None = None) -> list[Output]:
        """All outputs that have come since the last call, at least one; empty at the end.

        While it waits `sink` is offered what comes, and only what that does not take is returned.
        Raises `NodeLost`, `SlowReader` or `JobRejected` once everything before it was read, and
        what the sink has raised.
        """
        while not self._buffer:
            if self._left:
                return []
            if self._broken is not None:
                raise self._broken
            if self._done:
                return []
            self._sink = sink
            try:
                await self._wait()
            finally:
                self._sink = None
        outputs, self._buffer = self._buffer, []
        return outputs

    async def settled(self) -> Usage:
        """Wait until the node has confirmed the end (or is lost) and return the last usage.

        Bounded by the link, which gives up on a cancel that is not confirmed.
        """
        while not self._done:
            self._buffer.clear()
            await self._wait()
        return self.usage

    def push(self, output: Output) -> None:
        """Take one checked output from the link, which calls `flush` behind the last of a step."""
        if self.timing is NO_TIMING:
            taken_us = (monotonic_ns() - self._dispatched_ns) // MICROSECOND_NS
            self.network_us = max(0, taken_us - output.timing.held_us)
        self.usage = output.usage
        self.timing = output.timing
        self.completion_tokens += len(output.tokens) or output.delivered
        if output.finish is not None:
            self.choices_open -= 1
            self._done = self.choices_open == 0
        if not self.cancelled and self._broken is None:
            self._buffer.append(output)
            if len(self._buffer) > self._outputs_max:
                self._overrun()

    def flush(self) -> None:
        """Hand on what was pushed, to the sink or to the reader."""
        if not (self._buffer or self._done):
            return
        if self._sink is not None and self._buffer:
            outputs, self._buffer = self._buffer, []
            try:
                if not self._sink(outputs):
                    self._buffer = outputs
                elif not self._done:
                    return
            except Exception as error:  # The edge of its request: the link serves others, too.
                self._broken = error
        self._wake()

    def lose(self, reason: str) -> None:
        """End with `NodeLost`; what has come before can still be read."""
        self._end(NodeLost(reason))

    def reject(self, code: str, message: str) -> None:
        self._end(JobRejected(code, message))

    def _overrun(self) -> None:
        self._broken = SlowReader(f"the reader is more than {self._outputs_max} outputs behind")
        if not self._done:
            self._cancel(self.request)

    def _end(self, error: Exception) -> None:
        if self._done:
            return
        self._done = True
        if self._broken is None and not self.cancelled:
            self._broken = error
        self._wake()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
            # What comes before the reader has run follows what it was woken for.
            self._sink = None
