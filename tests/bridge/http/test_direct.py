"""What a gateway sends goes out at once in one write, and it hears of clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from controlplane.bridge.http.connection import DOORS, SocketProtocol
from controlplane.bridge.http.exchanges import UNSENT_BYTES_MAX
from controlplane.gateway.http.exchange import Exchange
from tests.bridge.http.apps import JSON
from tests.support.raw import answers, serving_app, talk, told
from tests.support.waiting import until

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
DATE = b"Sun, 06 Nov 1994 08:49:37 GMT"
Answer = Callable[[Exchange], Awaitable[None]]


class Wire(asyncio.Transport):
    """Keeps what is written, in pieces; `full` makes its protocol pause."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written: list[bytes] = []
        self.closed = self.full = self._reading_paused = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, SocketProtocol)
        self._protocol = protocol

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))
        if self.full:
            self._protocol.pause_writing()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def is_reading(self) -> bool:
        return not self._reading_paused

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False


class App:
    """A gateway that answers with a function."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def gateway_of(self, path: str) -> App:
        """All paths are its own."""
        return self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nothing is ASGI's")

    async def answer(self, exchange: Exchange) -> None:
        """Whatever the test says."""
        await self._answer(exchange)


def connected(answer: Answer) -> tuple[SocketProtocol, Wire]:
    """A connection that nobody is at the other end of."""
    config = uvicorn.Config(App(answer), proxy_headers=False, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    state.default_headers = [(b"date", DATE)]
    protocol, wire = SocketProtocol(config, state, {}, asyncio.get_running_loop()), Wire()
    wire.set_protocol(protocol)
    protocol.connection_made(wire)
    return protocol, wire


async def turns(count: int = 5) -> None:
    """Let what can run do so."""
    for _ in range(count):
        await asyncio.sleep(0)


async def whole(exchange: Exchange) -> None:
    exchange.answer(200, [JSON, "content-length: 2"], b"{}")


async def streamed(exchange: Exchange) -> None:
    exchange.begin(200, [JSON], b"one")
    for part in (b"two", b""):
        exchange.write(part)
    exchange.write(b"three", last=True)


async def streamed_in_turns(exchange: Exchange) -> None:
    exchange.begin(200, [JSON], b"one")
    await turns()
    exchange.write(b"two")
    exchange.write(b"too")
    await turns()
    exchange.write(b"x" * (UNSENT_BYTES_MAX + 1))
    exchange.write(b"three", last=True)


HEAD = b"HTTP/1.1 200 OK\r\ndate: " + DATE + b"\r\n" + JSON.encode() + b"\r\n"


@pytest.mark.parametrize(
    ("answer", "asked", "written"),
    [
        (whole, GET, [HEAD + b"content-length: 2\r\n\r\n{}"]),
        (whole, LAST, [HEAD + b"content-length: 2\r\nconnection: close\r\n\r\n{}"]),
        (whole, GET.replace(b"GET", b"HEAD"), [HEAD + b"content-length: 2\r\n\r\n"]),
        (
            streamed,
            LAST,
            [
                HEAD
                + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
                + b"3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"
            ],
        ),
        (
            streamed,
            GET.replace(b"1.1", b"1.0"),
            [HEAD + b"connection: close\r\n\r\nonetwothree"],
        ),
        (
            streamed_in_turns,
            GET.replace(b"1.1", b"1.0"),
            [
                HEAD + b"connection: close\r\n\r\none",
                b"twotoo",
                b"x" * (UNSENT_BYTES_MAX + 1),
                b"three",
            ],
        ),
    ],
)
async def test_an_answer_is_one_write_and_so_is_what_a_turn_sends_of_a_stream(
    answer: Answer, asked: bytes, written: list[bytes]
) -> None:
    protocol, wire = connected(answer)
    protocol.data_received(asked)
    await turns(20)
    assert [each for each in wire.written if each] == written
    assert wire.closed == (b"connection: close" in written[0])
    protocol.connection_lost(None)


@given(st.integers(0, 300), st.lists(st.integers(1, 2_000), max_size=8), st.booleans())
@settings(max_examples=60)
def test_bytes_cut_anywhere_give_the_same_answers(
    size: int, places: list[int], chunked: bool
) -> None:
    body = b"x" * size
    head = b"POST /a HTTP/1.1\r\nHost: a\r\n"
    if chunked:
        half = size // 2
        parts = [body[:half], body[half:]]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in parts if each)
        asked = head + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"
    else:
        asked = head + b"Content-Length: %d\r\n\r\n" % size + body
    data = asked * 3

    async def count(exchange: Exchange) -> None:
        found = 0
        while True:
            found += len(await exchange.more())
            if not exchange.more_body:
                break
        exchange.answer(200, [JSON, f"content-length: {len(str(found))}"], str(found).encode())

    async def sent() -> list[bytes]:
        protocol, wire = connected(count)
        ends = sorted({place % len(data) for place in places} | {len(data)})
        for since, end in zip([0, *ends], ends, strict=False):
            protocol.data_received(data[since:end])
            await turns(2)
        await turns(20)
        protocol.connection_lost(None)
        return [each.body for each in answers(b"".join(wire.written))]

    assert asyncio.run(sent()) == [str(size).encode()] * 3
    assert not DOORS._of


class Stages:
    """Tells when a client leaves, at whichever stage it does."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.told = 0
        self.ended = asyncio.Event()
        self.through = False

    def note(self) -> None:
        self.told += 1
        self.ended.set()

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.disconnected:
            self.note()
        exchange.on_gone = self.note
        if self.stage == "body":
            await exchange.more()
        elif self.stage in ("stream", "paused"):
            exchange.begin(200, [JSON], b"one")
            await turns(1)
            assert exchange.paused == (self.stage == "paused")
            await (exchange.drained() if exchange.paused else self.ended.wait())
        elif self.stage == "answered":
            await whole(exchange)
        else:
            await self.ended.wait()
        if self.stage == "begun":
            # To nobody.
            exchange.begin(200, [JSON], b"one")
        assert not exchange.paused
        assert exchange.disconnected == (self.stage != "answered")
        self.through = True


POST = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"


@pytest.mark.parametrize(
    ("stage", "count"),
    [
        ("early", 1), ("begun", 1), ("body", 1), ("stream", 1), ("paused", 1), ("answered", 0),
    ],
)  # fmt: skip
async def test_a_client_that_leaves_is_noticed_once_at_every_stage(stage: str, count: int) -> None:
    stages = Stages(stage)
    protocol, wire = connected(stages)
    wire.full = stage == "paused"
    protocol.data_received(POST if stage == "body" else GET)
    if stage != "early":
        await turns()
    before = len(wire.written)
    protocol.connection_lost(None)
    await turns()
    assert stages.through and stages.told == count
    assert len(wire.written) == before
    assert not protocol.tasks and not DOORS._of


@pytest.fixture
async def failing() -> AsyncIterator[int]:
    async def answer(exchange: Exchange) -> None:
        text = "a\r\nset-cookie: b" if exchange.path == "/crlf" else "a\0b"
        exchange.answer(200, [JSON, f"x-sluice-route: {text}", "content-length: 0"], b"")

    async with serving_app(App(answer)) as port:
        yield port


@pytest.mark.parametrize("path", [b"/crlf", b"/nul"])
async def test_a_header_never_becomes_two(failing: int, path: bytes) -> None:
    (answer,) = await told(failing, GET.replace(b"/a", path))
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert "set-cookie" not in answer.headers


async def test_a_client_that_reads_nothing_is_answered_no_more() -> None:
    """It asks on and on; what it is told waits in bounds, and goes on once it reads."""
    protocol, wire = connected(whole)
    protocol.pause_writing()
    for _ in range(8):
        protocol.data_received(GET)
        await turns()
    assert wire.written == []
    protocol.resume_writing()
    await turns(40)
    assert len(wire.written) == 8
    protocol.pause_writing()
    for _ in range(1_000):
        if wire.is_reading():
            protocol.data_received(GET[:-2] + b"x: " + b"a" * 9_000 + b"\r\n\r\n")
    await turns()
    assert not wire.is_reading() and len(wire.written) == 8
    protocol.resume_writing()
    await turns(60)
    assert wire.is_reading()
    protocol.connection_lost(None)


async def test_a_connection_ends_when_it_rests_and_not_while_it_is_used() -> None:
    async with serving_app(App(whole), timeout_keep_alive=1) as port:
        # Each request comes before the time is over, all of them together take longer.
        data = await talk(port, *[GET] * 6, pause_s=0.3)
        assert [each.status for each in answers(data)] == [200] * 6
    await until(lambda: not DOORS._of)


async def test_a_refused_body_ends_its_request_though_answers_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    protocol, wire = connected(whole)
    protocol.data_received(GET)
    await turns()
    protocol.pause_writing()
    protocol.data_received(POST.replace(b"Content-Length: 9", b"Transfer-Encoding: chunked"))
    protocol.data_received(b"zz\r\n")
    await turns()
    first, second = answers(b"".join(wire.written))
    assert first.status == 200
    assert json.loads(second.body)["error"]["code"] == "malformed_request"
    protocol.connection_lost(None)


@pytest.mark.parametrize("size", [1_000, 100_000, 1_000_000])
async def test_a_client_that_leaves_after_a_body_of_any_size_is_noticed(size: int) -> None:
    """Reading goes on once the body is taken: who does not read does not see the client leave."""
    read, left = asyncio.Event(), asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        exchange.on_gone = left.set
        while exchange.more_body:
            await exchange.more()
        exchange.take()
        read.set()
        await left.wait()

    async with serving_app(App(answer)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST.replace(b"9", str(size).encode()) + b"a" * size)
        await asyncio.wait_for(read.wait(), 20)
        writer.transport.abort()
        await asyncio.wait_for(left.wait(), 20)


async def test_a_body_that_was_here_at_once_keeps_no_one_from_leaving() -> None:
    taken, left = list[int](), asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        exchange.on_gone = left.set
        taken.append(len(exchange.take()))
        await left.wait()

    protocol, wire = connected(answer)
    protocol.data_received(POST.replace(b"9", b"100000") + b"a" * 100_000)
    assert not wire.is_reading()
    await turns()
    assert taken == [100_000] and wire.is_reading()
    protocol.connection_lost(None)
    assert left.is_set()
    await turns()


async def test_an_idle_connection_that_becomes_a_websocket_is_not_closed_for_having_been_idle() -> (
    None
):
    protocol, _ = connected(whole)
    protocol.data_received(GET)
    await turns()
    idle = protocol._idle_timer
    assert idle is not None and not idle.cancelled()
    protocol.handle_websocket_upgrade = lambda: None  # type: ignore[method-assign]
    protocol.data_received(
        GET[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert idle.cancelled()
