"""Small applications behind a connection, each twice: through ASGI and as a gateway is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from controlplane.gateway.http.exchange import Exchange

JSON = "content-type: application/json"


class Echo:
    """Answers with what it was asked; under `/early` before the body, under `/slow` late."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.seen.append(path)
        body = b""
        while path != "/early":
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        first, second = await self._told(path, body, len(scope["headers"]))
        kind = (b"content-type", b"application/json")
        await send({"type": "http.response.start", "status": 200, "headers": [kind]})
        await send({"type": "http.response.body", "body": first, "more_body": True})
        await send({"type": "http.response.body", "body": second})

    async def _told(self, path: str, body: bytes, headers: int) -> tuple[bytes, bytes]:
        if path == "/slow":
            await self.go_on.wait()
        if path == "/fails":
            raise ValueError(path)
        told = {"path": path, "bytes": len(body), "headers": headers}
        return json.dumps(told).encode(), b" " * 3


class DirectEcho(Echo):
    """The same without ASGI."""

    def gateway_of(self, path: str) -> DirectEcho:
        """All paths are its own."""
        return self

    async def answer(self, exchange: Exchange) -> None:
        """Read, then send in two parts."""
        path = exchange.path
        self.seen.append(path)
        body = b""
        while path != "/early":
            body += await exchange.more()
            if exchange.disconnected:
                return
            if not exchange.more_body:
                break
        first, second = await self._told(path, body, len(exchange.headers))
        exchange.begin(200, [JSON], first)
        exchange.write(second, last=True)


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


class DirectGeneration(Generation):
    """The same without ASGI."""

    def gateway_of(self, path: str) -> DirectGeneration:
        """All paths are its own."""
        return self

    async def answer(self, exchange: Exchange) -> None:
        """Send a part and wait."""
        self.begun.append(exchange.path)
        left = asyncio.Event()
        exchange.on_gone = left.set
        exchange.begin(200, [], b"data: a")
        await left.wait()
        self.aborted.append(exchange.path)


class Much:
    """Answers `sizes` bytes by path."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.answered = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a" * self.sizes[scope["path"]]})
        self.answered += 1


class DirectMuch(Much):
    """The same without ASGI."""

    def gateway_of(self, path: str) -> DirectMuch:
        """All paths are its own."""
        return self

    async def answer(self, exchange: Exchange) -> None:
        """Whole, as most answers are."""
        size = self.sizes[exchange.path]
        exchange.answer(200, [f"content-length: {size}"], b"a" * size)
        self.answered += 1
