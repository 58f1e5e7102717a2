"""An engine that runs in a process of another environment, behind the `Engine` protocol."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from inference.contract.frames import Cancel, Job, KvEvents, KvSnapshotRequest, Step
from inference.engines.base import EngineEvents, EngineFacts
from inference.errors import JobRefused
from tests.support.engine_link import (
    LENGTH_BYTES,
    Died,
    FromChild,
    Ready,
    Refused,
    Taken,
    ToChild,
    from_child,
    packed,
)
from tests.support.vllm_server import ENVIRONMENT, end_group, start_group, vllm_python

ANSWER_S_MAX = 120.0
LOAD_S_MAX = 300.0
END_S_MAX = 120.0
LOG_CHARS_MAX = 6_000


class EngineChild:
    """The process. It outlives a test: loading takes long, and vLLM cannot be loaded twice."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers: SimpleQueue[Taken | KvEvents | Ready | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: EngineEvents | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        ready = self._answers.get(timeout=LOAD_S_MAX)
        assert isinstance(ready, Ready), "the process ended before its engine had loaded"
        self.facts = ready.facts

    def attach(self, events: EngineEvents | None) -> None:
        """Whom to tell, on the running event loop."""
        self._loop = None if events is None else asyncio.get_running_loop()
        self._events = events

    def ask(self, message: ToChild) -> Taken | KvEvents | Ready | None:
        """Send and wait for the answer, which the child gives at once."""
        self._connection.sendall(packed(message))
        return self._answers.get(timeout=ANSWER_S_MAX)

    def _read(self) -> None:
        with self._connection.makefile("rb") as stream, contextlib.suppress(OSError):
            while head := stream.read(LENGTH_BYTES):
                message = from_child.decode(stream.read(int.from_bytes(head, "big")))
                if isinstance(message, Taken | Ready) or (
                    isinstance(message, KvEvents) and message.snapshot
                ):
                    self._answers.put(message)
                elif self._loop is not None:
                    self._loop.call_soon_threadsafe(self._tell, message)
        self._answers.put(None)

    def _tell(self, message: FromChild) -> None:
        if self._events is None:
            return
        if isinstance(message, Step):
            self._events.on_step(message)
        elif isinstance(message, KvEvents):
            self._events.on_kv(message)
        elif isinstance(message, Refused):
            refused = JobRefused(message.code, message.message)
            self._events.on_refused(message.request, refused)
        elif isinstance(message, Died):
            self._events.on_death(RuntimeError(message.message))


class ChildEngine:
    """One test's view of the process. Closing it ends this test's requests, not the process."""

    def __init__(self, child: EngineChild) -> None:
        self._child = child
        self._events: EngineEvents | None = None
        self._open: dict[bytes, int] = {}
        self._idle = asyncio.Event()

    @property
    def facts(self) -> EngineFacts:
        """Those of the engine in the process."""
        return self._child.facts

    async def start(self, events: EngineEvents) -> None:
        """It runs already."""
        self._events = events
        self._child.attach(self)

    def submit(self, job: Job) -> None:
        """Raises `JobRefused`."""
        answer = self._child.ask(job)
        assert isinstance(answer, Taken)
        if answer.code is not None:
            raise JobRefused(answer.code, answer.message)
        self._open[job.request] = job.sampling.n

    def cancel(self, request: bytes) -> None:
        """Returns when the engine has it: a slow test must not count what was made before."""
        self._child.ask(Cancel(request=request))

    def kv_snapshot(self) -> KvEvents:
        """Ask for it."""
        answer = self._child.ask(KvSnapshotRequest())
        assert isinstance(answer, KvEvents)
        return answer

    def computing(self) -> None:
        """Its own process would have to tell."""

    async def close(self) -> None:
        """End this test's requests, so that the next one finds an idle engine."""
        for request in list(self._open):
            self.cancel(request)
        async with asyncio.timeout(END_S_MAX):
            while self._open:
                self._idle.clear()
                await self._idle.wait()
        self._child.attach(None)

    def on_step(self, step: Step) -> None:
        """Keep account of what is open."""
        for output in step.outputs:
            if output.finish is not None:
                self._open[output.request] -= 1
                if not self._open[output.request]:
                    self._end(output.request)
        assert self._events is not None
        self._events.on_step(step)

    def on_kv(self, events: KvEvents) -> None:
        """Pass it on."""
        assert self._events is not None
        self._events.on_kv(events)

    def on_refused(self, request: bytes, refused: JobRefused) -> None:
        """Pass it on."""
        assert self._events is not None
        self._end(request)
        self._events.on_refused(request, refused)

    def on_death(self, error: BaseException) -> None:
        """Pass it on."""
        assert self._events is not None
        self._events.on_death(error)

    def _end(self, request: bytes) -> None:
        del self._open[request]
        self._idle.set()


@contextlib.contextmanager
def vllm_child(folder: Path, log: Path, options: dict[str, Any]) -> Iterator[EngineChild]:
    """vLLM with a model, until the block ends."""
    ours, theirs = socket.socketpair()
    argv: Sequence[str] = (
        vllm_python(), "-m", "tests.support.engine_child", str(theirs.fileno()), str(folder),
        msgspec.json.encode(options).decode(),
    )  # fmt: skip
    process = start_group(argv, {**os.environ, **ENVIRONMENT}, log, keep=(theirs.fileno(),))
    theirs.close()
    try:
        with ours:
            yield EngineChild(ours)
            ours.shutdown(socket.SHUT_WR)
            # It closes its engine, and says by its exit status whether it could.
            status = process.wait(END_S_MAX)
        assert status == 0, log.read_text()[-LOG_CHARS_MAX:]
    finally:
        end_group(process)
