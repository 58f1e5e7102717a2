"""A server of chats that only keeps time: `python -m benchmarks.driving.bare PORT TOKENS GAP_MS
FIRST_MS`.

It answers every request with the same stream, so that whoever drives it is what is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, cast

import uvloop

BACKLOG = 2_048
END_OF_HEAD, LENGTH = b"\r\n\r\n", b"content-length:"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

NOTHING = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


def event(data: dict[str, Any] | str) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    sent = f"data: {text}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(sent), sent)


TOKEN = event({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": " a"}}]})


class Bare(asyncio.Protocol):
    """One connection; the first token after `first_s`, then one each `gap_s`."""

    def __init__(self, tokens: int, gap_s: float, first_s: float) -> None:
        usage = {"prompt_tokens": 1_025, "completion_tokens": tokens}
        self._tokens, self._gap_s, self._first_s, self._came = tokens, gap_s, first_s, b""
        self._end = event({"choices": [], "usage": usage}) + event("[DONE]") + b"0\r\n\r\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, found, body = self._came.partition(END_OF_HEAD)
        if not found:
            return
        told = head.lower().partition(LENGTH)[2].split(b"\r\n", 1)[0]
        if len(body) < int(told or 0):
            return
        self._came = b""
        if not head.startswith(b"POST"):
            self._transport.write(NOTHING)
            return
        self._transport.write(HEAD)
        asyncio.get_running_loop().call_later(self._first_s, self._send, self._tokens)

    def _send(self, left: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(TOKEN if left else self._end)
        if left:
            asyncio.get_running_loop().call_later(self._gap_s, self._send, left - 1)


async def main() -> None:
    """Serve until a signal comes."""
    port, tokens, gap_ms, first_ms = sys.argv[1:]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Bare(int(tokens), float(gap_ms) / 1e3, float(first_ms) / 1e3),
        "127.0.0.1",
        int(port),
        backlog=BACKLOG,
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
