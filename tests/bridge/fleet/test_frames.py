"""Messages of one WebSocket, however the network cuts them; held to the `websockets` client."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState
from websockets.client import ClientProtocol
from websockets.frames import Close, Frame, Opcode
from websockets.uri import parse_uri

from controlplane.bridge.fleet import frames
from controlplane.bridge.fleet.frames import EXTENSION, FrameProtocol
from tests.support.waiting import until

MESSAGE_BYTES_MAX = 100_000
# Around what one, three and nine bytes of a head can tell. `websockets` counts a ping between two
# frames of a message with what is left for it, so the largest leaves room for one.
SIZES = (0, 1, 125, 126, 127, 65_535, 65_536, MESSAGE_BYTES_MAX - 125)
READ_S_MAX = 30.0


class Heard:
    """What an application has heard, in order: messages as they come, then the code of the end."""

    def __init__(self) -> None:
        self.told: list[bytes | str | int] = []
        self.line: FrameProtocol | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        self.line = scope["extensions"][EXTENSION]
        self.line.listen(self.told.append)
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            self.told.append(message["text"])
        self.told.append(message["code"])


class Peer(NamedTuple):
    """The other end: `websockets` makes its bytes, and the test sends them as it likes."""

    connection: ClientProtocol
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heard: Heard

    @property
    def line(self) -> FrameProtocol:
        assert self.heard.line is not None
        return self.heard.line

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def made(self) -> bytes:
        """What `websockets` wants to send."""
        return b"".join(self.connection.data_to_send())

    async def frames(self, count: int) -> list[Frame]:
        """The next frames that the server sends."""
        found: list[Frame] = []
        async with asyncio.timeout(READ_S_MAX):
            while len(found) < count:
                data = await self.reader.read(65_536)
                self.connection.receive_data(data) if data else self.connection.receive_eof()
                events = self.connection.events_received()
                found += [event for event in events if isinstance(event, Frame)]
                assert data or len(found) >= count, "the server has hung up"
        return found


@contextlib.asynccontextmanager
async def peer() -> AsyncIterator[Peer]:
    """A connection whose handshake is done."""
    heard = Heard()
    config = uvicorn.Config(
        heard, ws=FrameProtocol, ws_max_size=MESSAGE_BYTES_MAX, ws_per_message_deflate=False,
        log_config=None, lifespan="off",
    )  # fmt: skip
    config.load()
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
        lambda: FrameProtocol(config, ServerState(), {}), ours
    )
    reader, writer = await asyncio.open_connection(sock=theirs)
    connection = ClientProtocol(parse_uri("ws://localhost/fleet"), max_size=None)
    connection.send_request(connection.connect())
    made = Peer(connection, reader, writer, heard)
    try:
        await made.send(made.made())
        connection.receive_data(await reader.readuntil(b"\r\n\r\n"))
        list(connection.events_received())
        yield made
    finally:
        transport.abort()
        writer.close()
        await until(lambda: heard.told and isinstance(heard.told[-1], int))


class Sent(NamedTuple):
    """A message: of several frames with a ping between them, or of one."""

    body: bytes | str
    pieces: int

    def __repr__(self) -> str:
        return f"Sent({self.body[:20]!r} of {len(self.body)}, {self.pieces})"

    def put(self, connection: ClientProtocol) -> None:
        """Hand it to `websockets`."""
        data = self.body.encode() if isinstance(self.body, str) else self.body
        opcode = Opcode.TEXT if isinstance(self.body, str) else Opcode.BINARY
        cut = max(1, len(data) // self.pieces)
        parts = [data[at : at + cut] for at in range(0, max(1, len(data)), cut)]
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            kind = Opcode.CONT if number else opcode
            connection.send_frame(Frame(kind, part, fin=last))
            if not last:
                connection.send_ping(b"still there")


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(SIZES).map(bytes) | st.binary(max_size=300) | st.text(max_size=50),
        st.sampled_from((1, 1, 1, 3)),
    ).map(Sent._make),
    max_size=8,
)


@given(MESSAGES, st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_messages_arrive_whole_and_in_order_however_they_are_cut(
    sent: list[Sent], cuts: list[int]
) -> None:
    asyncio.run(_arrive(sent, cuts))


async def _arrive(sent: list[Sent], cuts: list[int]) -> None:
    async with peer() as client:
        for each in sent:
            each.put(client.connection)
        for part in _cut(client.made(), cuts):
            await client.send(part)
            await asyncio.sleep(0)
        await until(lambda: len(client.heard.told) == len(sent))
        for kind in (bytes, str):
            told = [each for each in client.heard.told if isinstance(each, kind)]
            assert told == [each.body for each in sent if isinstance(each.body, kind)]
        pings = sum(min(each.pieces, max(1, len(each.body))) - 1 for each in sent)
        assert pings == 0 or all(
            each.opcode is Opcode.PONG for each in await client.frames(min(pings, 1))
        )


def _cut(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """First as told, then what is left."""
    at = 0
    for size in cuts:
        yield data[at : at + size]
        at += size
    yield data[at:]


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_written_is_one_frame_that_websockets_reads(size: int) -> None:
    async with peer() as client:
        client.line.write(b"y" * size)
        (frame,) = await client.frames(1)
        assert (frame.opcode, frame.fin, bytes(frame.data)) == (Opcode.BINARY, True, b"y" * size)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_message_beyond_the_bound_is_refused_at_its_head(whole: bool) -> None:
    async with peer() as client:
        client.connection.send_frame(Frame(Opcode.BINARY, bytes(MESSAGE_BYTES_MAX + 1)))
        data = client.made()
        await client.send(data if whole else data[:14])
        (frame,) = await client.frames(1)
        assert Close.parse(bytes(frame.data)).code == 1009
        await until(lambda: client.heard.told)
        assert client.heard.told == [1009]


@pytest.mark.parametrize(
    "data", [b"\x82\x02hi", b"\xc2\x80mask", b"\x83\x80mask", b"\x00\x80mask", b"\x09\x80mask"]
)
async def test_what_is_no_frame_of_a_client_ends_the_connection(data: bytes) -> None:
    # Not masked; a reserved bit; an unknown opcode; the rest of nothing; a ping in pieces.
    async with peer() as client:
        await client.send(data)
        (frame,) = await client.frames(1)
        assert Close.parse(bytes(frame.data)).code == 1002


async def test_a_message_within_another_ends_the_connection() -> None:
    async with peer() as client:
        client.connection.send_frame(Frame(Opcode.BINARY, b"begun", fin=False))
        client.connection.send_frame(Frame(Opcode.BINARY, b"another"))
        await client.send(client.made())
        (frame,) = await client.frames(1)
        assert Close.parse(bytes(frame.data)).code == 1002
        assert b"another" not in client.heard.told


async def test_nothing_is_written_or_heard_once_it_has_ended() -> None:
    async with peer() as client:
        client.line.write(b"before")
        client.line.end(4400, "a reason " * 100)
        client.line.write(b"after")
        client.line.end(4401, "another")
        client.connection.send_frame(Frame(Opcode.BINARY, b"too late"))
        await client.send(client.made())
        before, close = await client.frames(2)
        assert bytes(before.data) == b"before"
        told = Close.parse(bytes(close.data))
        assert (told.code, told.reason[:9]) == (4400, "a reason ")
        assert len(told.reason) <= frames.REASON_BYTES_MAX
        await client.send(client.made())
        assert await client.reader.read() == b""
        assert client.heard.told == [4400]


async def test_a_peer_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "OUTBOUND_BYTES_MAX", 1_000_000)
    async with peer() as client:
        for _ in range(100):
            client.line.write(bytes(100_000))
        await until(lambda: client.heard.told == [1005])
        assert client.line.transport.get_write_buffer_size() == 0
