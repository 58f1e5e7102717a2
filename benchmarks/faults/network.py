"""The network between nodes and gateways, as loopback proxies that can stop to forward.

A cut says nothing to either end: connections stay open, bytes wait, new connections hang. Where a
line is severed its connections break, and what was under way is lost. It runs in a thread with a
loop of its own, so that whoever uses it may block.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from types import TracebackType

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024
STOP_S_MAX = 5.0


class Network:
    """One proxy for each pair of node and gateway."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network")
        self._open: dict[str, asyncio.Event] = {}
        self._lines: dict[str, set[asyncio.WriteTransport]] = {}
        self._servers: list[asyncio.Server] = []
        self._pumps: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Network:
        self._thread.start()
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

    def dial(self, node: str, port: int) -> int:
        """The port that this node dials to reach the gateway at `port`."""
        listener = socket.create_server((HOST, 0))
        serving = self._serve(node, port, listener)
        asyncio.run_coroutine_threadsafe(serving, self._loop).result(STOP_S_MAX)
        return int(listener.getsockname()[1])

    def cut(self, node: str) -> None:
        """Forward nothing more of this node's, either way."""
        self._loop.call_soon_threadsafe(self._open[node].clear)

    def sever(self, node: str) -> None:
        """Break all connections of this node, and let new ones hang."""
        self._loop.call_soon_threadsafe(self._sever, node)

    def mend(self, node: str) -> None:
        """Forward again, what has waited first."""
        self._loop.call_soon_threadsafe(self._open[node].set)

    def _sever(self, node: str) -> None:
        self._open[node].clear()
        for line in list(self._lines.get(node, ())):
            line.abort()

    async def _serve(self, node: str, port: int, listener: socket.socket) -> None:
        gate = self._open.setdefault(node, asyncio.Event())
        gate.set()
        lines = self._lines.setdefault(node, set())

        async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._pumps.add(task)
                task.add_done_callback(self._pumps.discard)
            await gate.wait()
            with contextlib.closing(writer), contextlib.suppress(OSError):
                await _join(reader, writer, port, gate, lines)

        self._servers.append(await asyncio.start_server(join, sock=listener))

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._pumps:
            task.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    port: int,
    gate: asyncio.Event,
    lines: set[asyncio.WriteTransport],
) -> None:
    """Forward both ways until either end closes; meanwhile both connections are among the lines."""
    far_reader, far_writer = await asyncio.open_connection(HOST, port)
    both = {writer.transport, far_writer.transport}
    lines |= both
    ways = [
        asyncio.create_task(_pump(reader, far_writer, gate)),
        asyncio.create_task(_pump(far_reader, writer, gate)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        lines -= both
        far_writer.close()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            await gate.wait()
            writer.write(data)
            await writer.drain()
