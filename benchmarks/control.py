"""The control of `bench-gateway`: a bare ASGI application that answers a fixed JSON body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

BODY = b'{"id":"control","object":"chat.completion","choices":[]}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]


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
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
