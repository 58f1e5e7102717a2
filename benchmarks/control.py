"""The control of `bench-gateway`: a bare ASGI application without any of the work.

It answers a fixed JSON body, or under `PACED_PATH` and a number a stream of so many fixed events,
one every 5 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

PACED_PATH = "/paced/"
PACE_S = 0.005
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"control"}}]}\n\n'
BODY = b'{"id":"control","object":"chat.completion","choices":[]}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]
STREAM = [(b"content-type", b"text/event-stream")]


async def application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Read the body, answer the same to everyone."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    if scope["path"].startswith(PACED_PATH):
        await _stream(send, int(scope["path"].removeprefix(PACED_PATH)))
        return
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


async def _stream(send: Callable[[dict[str, Any]], Awaitable[None]], events: int) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": STREAM})
    for _ in range(events):
        await asyncio.sleep(PACE_S)
        await send({"type": "http.response.body", "body": EVENT, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
