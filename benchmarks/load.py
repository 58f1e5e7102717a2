"""A small HTTP load generator on asyncio streams: closed loop, keep-alive, bounded.

It runs on its own core and parses no more than it must, so that it is not what is measured.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple

import msgspec

OK_LINE = b"HTTP/1.1 200"
READ_BYTES = 65_536
ANSWER_S_MAX = 120.0
# How streams of each shape end that are complete.
ENDS = re.compile(rb"data: \[DONE\]|event: (?:message_stop|response\.(?:completed|incomplete))\n")
# Events with text in streams whose events have names.
NAMED_DELTAS = re.compile(rb"event: (?:content_block_delta|response\.output_text\.delta)\n")
END_OF_CHUNKS = b"0\r\n\r\n"
# The last event of a response repeats all of its text.
TAIL_BYTES = 16_384
CACHED_TOKENS = re.compile(rb'"cached_tokens":(\d+)')
COMPLETION_TOKENS = re.compile(rb'"(?:completion|output)_tokens":(\d+)')


@dataclass
class Tally:
    """What one run of the load has seen; times in seconds."""

    answers: int = 0
    errors: int = 0
    tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    total_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    gap_s: list[float] = field(default_factory=list)


def request_bytes(path: str, key: str, body: dict[str, object]) -> bytes:
    """An HTTP/1.1 POST of a JSON body."""
    data = msgspec.json.encode(body)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


class Seen(NamedTuple):
    """Of one answer: its head, its last bytes, and the time to its first text in seconds (NaN
    without any).
    """

    head: bytes
    tail: bytes = b""
    first_s: float = nan


class Connection:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()

    async def whole(self, request: bytes, tally: Tally) -> None:
        """Send and read an answer of known length."""
        assert self._reader is not None and self._writer is not None
        began = time.perf_counter()
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        await self._reader.readexactly(_length(head))
        tally.total_s.append(time.perf_counter() - began)
        _count(head, tally)

    async def stream(self, request: bytes, tally: Tally) -> Seen:
        """Send and read a chunked stream; gaps are between chunks with content."""
        assert self._reader is not None and self._writer is not None
        began = last = time.perf_counter()
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(OK_LINE):
            await self._reader.readexactly(_length(head))
            tally.errors += 1
            return Seen(head)
        ended = complete = fresh = False
        first_s = nan
        tail = b""
        while not ended:
            part = await self._reader.read(READ_BYTES)
            if not part:
                break
            now = time.perf_counter()
            count = _content_chunks(part)
            if count > 0:
                if fresh:
                    tally.gap_s.append(now - last)
                else:
                    fresh, first_s = True, now - began
                    tally.first_s.append(first_s)
                last = now
                tally.tokens += count
            tail = (tail + part)[-TAIL_BYTES:]
            complete = complete or ENDS.search(tail) is not None
            ended = tail.endswith(END_OF_CHUNKS)
        tally.total_s.append(time.perf_counter() - began)
        usage = COMPLETION_TOKENS.search(tail)
        tally.output_tokens += int(usage[1]) if usage else 0
        cached = CACHED_TOKENS.search(tail)
        tally.cached_tokens += int(cached[1]) if cached else 0
        _count(head if complete else b"HTTP/1.1 500", tally)
        return Seen(head, tail, first_s)


def _length(head: bytes) -> int:
    return int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])


def _content_chunks(part: bytes) -> int:
    """Events that carry text, in any shape; openings and closings carry none."""
    if b"event: " in part:
        return len(NAMED_DELTAS.findall(part))
    return sum(
        part.count(b'"%b":"' % field) - part.count(b'"%b":"",' % field)
        for field in (b"content", b"text")
    )


def _count(head: bytes, tally: Tally) -> None:
    if head.startswith(OK_LINE):
        tally.answers += 1
    else:
        tally.errors += 1


Work = Callable[[Connection, Tally], Awaitable[object]]


async def closed_loop(port: int, work: Work, *, clients: int, seconds: float) -> Tally:
    """Each client sends its next request when the last one is answered."""
    tally = Tally()
    until = time.perf_counter() + seconds

    async def client() -> None:
        connection = Connection(port)
        await connection.open()
        try:
            while time.perf_counter() < until:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await work(connection, tally)
        finally:
            connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return tally


def percentile(values: list[float], share: float) -> float:
    """Nearest rank over all samples; NaN when there are none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
