"""How connections end with clients that read nothing, or leave, on real sockets under uvloop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from controlplane.bridge.http import connection
from controlplane.bridge.http.connection import DOORS
from controlplane.bridge.http.head import PIPELINED_MAX
from controlplane.gateway.round_trip import EXTENSION
from tests.support.loopback import HOST
from tests.support.raw import serving_app
from tests.support.waiting import until

# Less than makes the server's transport pause, and more.
SIZES = {"/little": 48 * 1024, "/much": 160 * 1024}


async def answer_much(scope: Any, receive: Any, send: Any) -> None:
    """Answers through as small a buffer in the kernel as there may be."""
    kept = socket.fromfd(
        scope["extensions"][EXTENSION]["socket"].fileno(), socket.AF_INET, socket.SOCK_STREAM
    )
    with kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a" * SIZES[scope["path"]]})


def raw_client(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    client.connect((HOST, port))
    return client


async def read_nothing(asked: bytes, *, half_closed: bool) -> None:
    async with serving_app(answer_much, timeout_keep_alive=1) as port:
        with raw_client(port) as client:
            client.sendall(asked)
            await until(lambda: DOORS._of)
            if half_closed:
                await asyncio.sleep(0.1)
                client.shutdown(socket.SHUT_WR)
            await until(lambda: not DOORS._of)


@pytest.mark.parametrize(
    ("path", "header", "half_closed"),
    [
        # Writing pauses; the answer ends the connection; the wait for a request; the client.
        (b"/much", b"", False),
        (b"/little", b"Connection: close\r\n", False),
        (b"/little", b"", False),
        (b"/little", b"", True),
    ],
)
def test_a_client_that_reads_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, path: bytes, header: bytes, half_closed: bool
) -> None:
    monkeypatch.setattr(connection, "FLUSH_S_MAX", 0.2)
    asked = b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n" + header + b"\r\n"
    uvloop.run(read_nothing(asked, half_closed=half_closed))


async def read_slowly() -> int:
    async with serving_app(answer_much) as port:
        with raw_client(port) as client:
            client.setblocking(False)
            client.send(b"GET /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            count = 0
            while data := await asyncio.get_running_loop().sock_recv(client, 1 << 14):
                count += len(data)
    return count


def test_a_client_that_reads_slowly_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FLUSH_S_MAX", 0.2)
    monkeypatch.setattr(connection, "FLUSH_BYTES_MIN", 1)
    assert uvloop.run(read_slowly()) > SIZES["/much"]


class Generation:
    """Streams until its client has left."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.aborted: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.append(scope["path"])
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: a", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.aborted.append(scope["path"])


async def leave(after: bytes) -> Generation:
    app = Generation()
    async with serving_app(app) as port:
        with raw_client(port) as client:
            client.sendall(b"POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na")
            await until(lambda: app.begun)
            client.sendall(after)
            await asyncio.sleep(0.1)
        await until(lambda: app.aborted and not DOORS._of)
    return app


@pytest.mark.parametrize("count", [0, 1, 3, PIPELINED_MAX, PIPELINED_MAX + 1])
def test_a_client_that_leaves_aborts_what_runs_and_what_waits(count: int) -> None:
    app = uvloop.run(leave(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n" * count))
    assert (app.begun, app.aborted) == (["/first"], ["/first"])
