"""Bytes to a server and bytes back, on a socket of one's own: what no HTTP client would send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import uvicorn

from tests.support.asgi import Server
from tests.support.loopback import HOST, reserve_port
from tests.support.waiting import until

ANSWER_S_MAX = 20.0


class Told(NamedTuple):
    """One answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The typed error; fails where it is none, or not whole."""
        assert self.headers["content-type"] == "application/json", self
        error: dict[str, Any] = json.loads(self.body)["error"]
        assert error["message"] and {"type", "param", "code"} <= set(error), error
        return error


async def talk(port: int, *pieces: bytes, pause_s: float = 0.0, source: str = HOST) -> bytes:
    """Send the pieces from an address and return all that comes until the server closes."""
    reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0))
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            reading = asyncio.ensure_future(reader.read())
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause_s)
            return await reading
    finally:
        writer.close()


async def told(port: int, *pieces: bytes, pause_s: float = 0.0, source: str = HOST) -> list[Told]:
    """The answers among it."""
    return answers(await talk(port, *pieces, pause_s=pause_s, source=source))


def answers(data: bytes) -> list[Told]:
    """Answers in a row; one without a length or chunks goes to the end."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        line, *rest = head.decode("latin-1").split("\r\n")
        assert line.startswith("HTTP/1.1 "), line
        status = int(line.split()[1])
        headers = {n.lower(): v for n, _, v in (each.partition(": ") for each in rest)}
        body = b""
        if "content-length" in headers:
            size = int(headers["content-length"])
            body, data = data[:size], data[size:]
            assert len(body) == size
        elif headers.get("transfer-encoding") == "chunked":
            body, data = _unchunked(data)
        elif status != 100:
            body, data = data, b""
        found.append(Told(status, headers, body))
    return found


def _unchunked(data: bytes) -> tuple[bytes, bytes]:
    whole = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        whole, data = whole + data[:length], data[length + 2 :]
        if not length:
            return whole, data


@contextlib.asynccontextmanager
async def serving_app(
    app: Any, *, listener: socket.socket | None = None, **config: Any
) -> AsyncIterator[int]:
    """An application on a port, behind the product's own HTTP protocol."""
    port = reserve_port() if listener is None else listener.getsockname()[1]
    settings = uvicorn.Config(
        app,
        host=HOST,
        port=port,
        http="controlplane.bridge.http.connection:SocketProtocol",
        ws="controlplane.bridge.fleet.frames:FrameProtocol",
        lifespan="off",
        log_config=None,
        server_header=False,
        proxy_headers=False,
        **config,
    )
    server = Server(settings)
    task = asyncio.create_task(server.serve(None if listener is None else [listener]))
    try:
        await until(lambda: server.started)
        yield port
    finally:
        server.should_exit = True
        await task
