"""Run as a process: the vLLM engine at one end of a socket, for tests outside its environment.

Arguments: the socket's file descriptor, the model's folder, the engine's options as JSON.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import msgspec

from inference.contract.frames import Cancel, Job, KvEvents, Step
from inference.engines.base import Engine
from inference.engines.vllm.engine import VllmEngine
from inference.engines.vllm.options import VllmOptions
from inference.errors import JobRefused
from tests.support.engine_link import (
    LENGTH_BYTES,
    Died,
    FromChild,
    Ready,
    Refused,
    Taken,
    packed,
    to_child,
)


class Mouth:
    """`EngineEvents` that are written to the socket."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def say(self, message: FromChild) -> None:
        """Queue a message."""
        self._writer.write(packed(message))

    def on_step(self, step: Step) -> None:
        """Pass it on."""
        self.say(step)

    def on_kv(self, events: KvEvents) -> None:
        """Pass it on."""
        self.say(events)

    def on_refused(self, request: bytes, refused: JobRefused) -> None:
        """Pass it on."""
        self.say(Refused(request=request, code=refused.code, message=str(refused)))

    def on_death(self, error: BaseException) -> None:
        """Pass it on."""
        self.say(Died(message=f"{type(error).__name__}: {error}"))


def submit(engine: Engine, job: Job) -> Taken:
    """Give the engine a job."""
    try:
        engine.submit(job)
    except JobRefused as refused:
        return Taken(code=refused.code, message=str(refused))
    return Taken(code=None, message="")


async def serve(connection: socket.socket, engine: Engine) -> None:
    """Until the other end hangs up."""
    reader, writer = await asyncio.open_connection(sock=connection)
    mouth = Mouth(writer)
    await engine.start(mouth)
    mouth.say(Ready(facts=engine.facts))
    try:
        while True:
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
            message = to_child.decode(await reader.readexactly(length))
            if isinstance(message, Job):
                mouth.say(submit(engine, message))
            elif isinstance(message, Cancel):
                engine.cancel(message.request)
                mouth.say(Taken(code=None, message=""))
            else:
                mouth.say(engine.kv_snapshot())
    except asyncio.IncompleteReadError:
        await engine.close()


def main() -> None:
    """Entry point."""
    descriptor, folder, options = sys.argv[1:]
    engine = VllmEngine(Path(folder), msgspec.json.decode(options.encode(), type=VllmOptions))
    asyncio.run(serve(socket.socket(fileno=int(descriptor)), engine))


if __name__ == "__main__":
    main()
