"""How connections end with clients that read nothing, or leave, on real sockets under uvloop."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from controlplane.bridge.http import connection
from controlplane.bridge.http.connection import DOORS
from controlplane.bridge.http.head import PIPELINED_MAX
from tests.bridge.http.apps import DirectGeneration, DirectMuch, Generation, Much
from tests.support.loopback import HOST
from tests.support.raw import serving_app
from tests.support.waiting import until

# Less than makes the server's transport pause, and more.
SIZES = {"/little": 48 * 1024, "/much": 160 * 1024}


APPS = [Much, DirectMuch]


def narrow_listener() -> socket.socket:
    """Its connections have as small a buffer in the kernel as there may be."""
    listener = socket.create_server((HOST, 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    return listener


def raw_client(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    client.connect((HOST, port))
    return client


async def read_nothing(app: Much, asked: bytes, *, half_closed: bool) -> None:
    async with serving_app(app, listener=narrow_listener(), timeout_keep_alive=1) as port:
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
@pytest.mark.parametrize("kind", APPS)
def test_a_client_that_reads_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Much],
    path: bytes,
    header: bytes,
    half_closed: bool,
) -> None:
    monkeypatch.setattr(connection, "FLUSH_S_MAX", 0.2)
    asked = b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n" + header + b"\r\n"
    uvloop.run(read_nothing(kind(SIZES), asked, half_closed=half_closed))


async def read_slowly(app: Much) -> int:
    async with serving_app(app, listener=narrow_listener()) as port:
        with raw_client(port) as client:
            client.setblocking(False)
            client.send(b"GET /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            count = 0
            while data := await asyncio.get_running_loop().sock_recv(client, 1 << 14):
                count += len(data)
    return count


@pytest.mark.parametrize("kind", APPS)
def test_a_client_that_reads_slowly_is_not(
    monkeypatch: pytest.MonkeyPatch, kind: type[Much]
) -> None:
    monkeypatch.setattr(connection, "FLUSH_S_MAX", 0.2)
    monkeypatch.setattr(connection, "FLUSH_BYTES_MIN", 1)
    assert uvloop.run(read_slowly(kind(SIZES))) > SIZES["/much"]


async def leave(app: Generation, after: bytes) -> None:
    async with serving_app(app) as port:
        with raw_client(port) as client:
            client.sendall(b"POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na")
            await until(lambda: app.begun)
            client.sendall(after)
            await asyncio.sleep(0.1)
        await until(lambda: app.aborted and not DOORS._of)


@pytest.mark.parametrize("count", [0, 1, 3, PIPELINED_MAX, PIPELINED_MAX + 1])
@pytest.mark.parametrize("kind", [Generation, DirectGeneration])
def test_a_client_that_leaves_aborts_what_runs_and_what_waits(
    kind: type[Generation], count: int
) -> None:
    app = kind()
    uvloop.run(leave(app, b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n" * count))
    assert (app.begun, app.aborted) == (["/first"], ["/first"])
