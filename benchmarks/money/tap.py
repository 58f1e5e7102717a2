"""Between one gateway and PostgreSQL: sees its calls pass, and kills it at a named point of one.

A point is a prepared statement of the lanes and a moment: `before` the call reaches PostgreSQL,
`inside` while it runs, `after` it is answered and before the gateway hears so.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

SOCKET = ".s.PGSQL.5432"
CHUNK_BYTES = 64 * 1024
STOP_S_MAX = 5.0
BIND = ord("B")
STATEMENTS = {"hold": (b"hold",), "settle": (b"settle", b"settle_alone"), "flush": (b"barrier",)}
MOMENTS = ("before", "inside", "after")
POINTS = tuple(f"{moment} {name}" for name in STATEMENTS for moment in MOMENTS)


class Tap:
    """A socket in `folder` that leads to the one in `server`; `kill` ends the gateway."""

    def __init__(self, folder: Path, server: Path, kill: Callable[[], None]) -> None:
        self._folder = folder
        self._server = server
        self._kill = kill
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tap")
        self._pumps: set[asyncio.Task[None]] = set()
        self._moment = ""
        self._statements: tuple[bytes, ...] = ()
        self.fired = threading.Event()

    def __enter__(self) -> Tap:
        self._thread.start()
        starting = asyncio.start_unix_server(self._join, self._folder / SOCKET)
        self._listener = asyncio.run_coroutine_threadsafe(starting, self._loop).result(STOP_S_MAX)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(STOP_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S_MAX)
        self._loop.close()

    def arm(self, point: str) -> None:
        """Kill at the next call that comes to this point."""
        self.fired.clear()
        self._moment, _, name = point.partition(" ")
        self._statements = STATEMENTS[name]

    def _fire(self) -> None:
        self._statements = ()
        self._kill()
        self.fired.set()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)
        # Cancelled only when all of it ends.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            there, back = await asyncio.open_unix_connection(self._server / SOCKET)
            link = Link(self, (reader, writer), (there, back))
            with contextlib.closing(writer), contextlib.closing(back):
                await asyncio.wait(
                    {asyncio.create_task(link.ask()), asyncio.create_task(link.answer())},
                    return_when=asyncio.FIRST_COMPLETED,
                )

    async def _stop(self) -> None:
        self._listener.close()
        for task in self._pumps:
            task.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """One connection: messages to the server one by one, its answers as they come."""

    def __init__(self, tap: Tap, gateway: Ends, server: Ends) -> None:
        self._tap = tap
        self._gateway = gateway
        self._server = server
        self._answer_kills = False

    async def ask(self) -> None:
        """From the gateway to PostgreSQL, until either has gone."""
        reader, writer = self._gateway[0], self._server[1]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            # The first message has no type.
            size = await reader.readexactly(4)
            writer.write(size + await reader.readexactly(struct.unpack("!I", size)[0] - 4))
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
                due = head[0] == BIND and _statement(body) in self._tap._statements
                moment = self._tap._moment if due else ""
                if moment == "before":
                    self._tap._fire()
                    return
                self._answer_kills |= moment == "after"
                writer.write(head + body)
                if moment == "inside":
                    # With all that follows in the pipeline, or nothing would run.
                    writer.write(await asyncio.wait_for(reader.read(CHUNK_BYTES), STOP_S_MAX))
                    await writer.drain()
                    self._tap._fire()
                    return
                await writer.drain()

    async def answer(self) -> None:
        """From PostgreSQL to the gateway, until either has gone."""
        reader, writer = self._server[0], self._gateway[1]
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self._answer_kills and self._tap._statements:
                    self._tap._fire()
                    return
                writer.write(data)
                await writer.drain()


def _statement(bind: bytes) -> bytes:
    """The name of the prepared statement that a Bind message names."""
    _, _, rest = bind.partition(b"\0")
    return rest.partition(b"\0")[0]
