"""An OpenAI-compatible server whose answers a test writes, byte by byte where it matters."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.fleet import WAIT_S

Answer = tuple[int, dict[str, Any] | str]
STREAM = "text/event-stream"
DONE = "[DONE]"


def text_chunk(text: str, *, finish: str | None = None, choice: int = 0) -> dict[str, Any]:
    """A chunk of a chat."""
    delta = {"content": text} if text else {}
    return {"choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}


def thought_chunk(text: str, *, field: str = "reasoning_content") -> dict[str, Any]:
    """A chunk of what a model thinks before it answers."""
    return {"choices": [{"index": 0, "delta": {field: text}, "finish_reason": None}]}


def usage_chunk(
    prompt: int, completion: int, *, cached: int | None = None, reasoning: int | None = None
) -> dict[str, Any]:
    """The chunk that carries the count."""
    details = None if cached is None else {"cached_tokens": cached}
    thought = None if reasoning is None else {"reasoning_tokens": reasoning}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    more = {"prompt_tokens_details": details, "completion_tokens_details": thought}
    return {"choices": [], "usage": {**usage, **more}}


@dataclass
class Exchange:
    """One request that came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def begin(self, status: int = 200, kind: str = STREAM, *extra: str) -> None:
        """Status line and headers."""
        lines = [f"HTTP/1.1 {status} Whatever", f"content-type: {kind}", *extra]
        await self.raw("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode())

    async def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def part(self, data: bytes) -> None:
        """One part of a chunked body."""
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, data: dict[str, Any] | str) -> None:
        """One server-sent event."""
        text = data if isinstance(data, str) else json.dumps(data)
        await self.part(f"data: {text}\n\n".encode())

    async def end(self) -> None:
        """The body is complete."""
        await self.raw(b"0\r\n\r\n")

    async def answer(self, *chunks: dict[str, Any]) -> None:
        """A whole stream."""
        await self.begin()
        for chunk in chunks:
            await self.event(chunk)
        await self.event(DONE)
        await self.end()

    async def refuse(self, status: int, body: dict[str, Any] | str) -> None:
        """An error and its body."""
        await self.begin(status, "application/json")
        await self.part((body if isinstance(body, str) else json.dumps(body)).encode())
        await self.end()

    async def left(self) -> None:
        """Wait until the client has closed the connection."""
        await asyncio.wait_for(self.closed.wait(), WAIT_S)


class HandUpstream:
    """The server; `listed` is what its list of models has, `list_status` how that is answered,
    `answers` what other paths are answered with, `asked` the bodies that came there.
    """

    def __init__(self) -> None:
        self.url = ""
        self.listed: list[dict[str, Any]] = [{"id": "big", "max_model_len": 4096}]
        self.list_status = 200
        self.answers: dict[str, Answer | Callable[[dict[str, Any]], Answer]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.exchanges: asyncio.Queue[Exchange] = asyncio.Queue()
        self._writers: set[asyncio.StreamWriter] = set()

    async def next(self) -> Exchange:
        """The next request for a completion."""
        return await asyncio.wait_for(self.exchanges.get(), WAIT_S)

    async def on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Requests of one connection until it is closed."""
        self._writers.add(writer)
        last: Exchange | None = None
        try:
            while request := await _read_request(reader):
                last = Exchange(*request, reader, writer)
                if last.path.endswith("/models"):
                    await last.refuse(self.list_status, {"data": self.listed})
                elif last.path.partition("?")[0].endswith(("/completions", "/messages")):
                    self.exchanges.put_nowait(last)
                else:
                    await self._tell(last)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            if last is not None:
                last.closed.set()
            self._writers.discard(writer)
            writer.close()

    async def _tell(self, exchange: Exchange) -> None:
        if exchange.body:
            self.asked.append((exchange.path, exchange.body))
        answer = self.answers.get(exchange.path, (404, {}))
        await exchange.refuse(*(answer(exchange.body) if callable(answer) else answer))

    def hang_up(self) -> None:
        """Cut every connection."""
        for writer in self._writers:
            writer.transport.abort()


async def _read_request(
    reader: asyncio.StreamReader,
) -> tuple[str, dict[str, str], dict[str, Any]] | None:
    with contextlib.suppress(asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return first.split(" ")[1], headers, json.loads(body or b"{}")
    return None


@contextlib.asynccontextmanager
async def hand_upstream() -> AsyncIterator[HandUpstream]:
    """Running on a loopback port."""
    upstream = HandUpstream()
    server = await asyncio.start_server(upstream.on_connection, "127.0.0.1", 0)
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield upstream
    finally:
        server.close()
        upstream.hang_up()
        await server.wait_closed()
