"""An ASGI server for tests, which ends as soon as it is told to."""

from __future__ import annotations

import socket
from math import inf

import uvicorn

from tests.support.waiting import until


class Server(uvicorn.Server):
    """uvicorn's looks ten times a second whether it is to end, and rests before it does."""

    async def main_loop(self) -> None:
        """Until `should_exit`."""
        await self.on_tick(0)
        await until(lambda: self.should_exit, inf)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what listens, then let every connection and request end."""
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        state = self.server_state
        await until(lambda: not state.connections and not state.tasks, inf)
        for server in self.servers:
            await server.wait_closed()
