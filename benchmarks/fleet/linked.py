"""Simulated nodes over real sockets: `python -m benchmarks.fleet.linked PORT`, a plan on stdin.

Each says hello, sends a snapshot and answers pings. Lines after the plan say how many frames of
load each sends a second from then on, and cache events besides. It frames by hand, so that many
nodes fit into one process and the core left to them.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
from collections.abc import Callable
from functools import partial
from typing import cast

import msgspec
import uvloop

from benchmarks.fleet.blocks import BLOCK_SIZE, blocks_of
from inference.contract.blocks import HASH_BYTES
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.frames import (
    PROTOCOL_VERSION,
    FromNode,
    Hello,
    KvEvents,
    ModelOffer,
    Ping,
    Pong,
    Step,
    Welcome,
)

MODEL = "measured"
POOL, REGION = "default", "local"
BINARY, MASKED, IN_TWO, IN_EIGHT = 0x82, 0x80, 126, 127
SERVER_PING, CLIENT_PONG = 0x89, 0x8A
NO_MASK = bytes(4)
READY = "ready"
WELCOME_S_MAX = 30.0
# Fewer than the connections that a gateway takes of one address.
NODES_OF_AN_ADDRESS = 200
# New links a second, which leaves the gateway time for their snapshots.
DIALS_S = 25
STEP = Step(
    outputs=[], running=8, waiting=0, waiting_tokens=500, kv_free_blocks=9000, step_us=20_000,
    preemptions=0, oldest_block_s=9.0, prefilled_tokens=100, kv_cached_blocks=9000,
)  # fmt: skip


class LinkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes, and what each has; with every `steps_of_an_event` frames of load comes an
    event, with which `event_blocks` come and as many go.
    """

    credentials: list[str]
    blocks: int
    steps_of_an_event: int
    event_blocks: int

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.credentials)


class LinkedNode(asyncio.Protocol):
    """One node's end of one socket."""

    _transport: asyncio.Transport

    def __init__(self, plan: LinkPlan, number: int, lost: Callable[[str], None]) -> None:
        self.welcome = asyncio.get_running_loop().create_future()
        self._plan, self._number, self._lost = plan, number, lost
        self._buffer = bytearray()
        self._upgraded = False
        self._received = self._seq = 0
        self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a WebSocket."""
        # uvloop's is a transport by its methods alone.
        self._transport = cast(asyncio.Transport, transport)
        head = (
            "GET /fleet HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {self._plan.credentials[self._number]}\r\n\r\n"
        )
        self._transport.write(head.encode())

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing dials again: a link that broke is part of what is measured."""
        self._lost(f"node {self._number}: {exc}")

    def data_received(self, data: bytes) -> None:
        """Answer what has come whole."""
        self._buffer += data
        if not self._upgraded:
            head, empty, rest = bytes(self._buffer).partition(b"\r\n\r\n")
            if not empty:
                return
            if b" 101 " not in head.split(b"\r\n")[0]:
                self._lost(head.decode(errors="replace"))
                return
            self._upgraded, self._buffer = True, bytearray(rest)
            self._send(self._hello())
        while (place := _whole(self._buffer)) is not None:
            start, stop = place
            message, code = bytes(self._buffer[start:stop]), self._buffer[0]
            del self._buffer[:stop]
            if code == BINARY:
                self._take(message)
            elif code == SERVER_PING:
                self._transport.write(
                    bytes((CLIENT_PONG, MASKED | len(message))) + NO_MASK + message
                )

    def step(self) -> None:
        """Send the load."""
        self._send(STEP)

    def event(self) -> None:
        """Blocks come, and those of the event before go."""
        self._seq += 1
        stored = random.randbytes(self._plan.event_blocks * HASH_BYTES)
        self._send(KvEvents(seq=self._seq, stored=stored, removed=self._last))
        self._last = stored

    def _take(self, message: bytes) -> None:
        frame = decode_from_gateway(message)
        if isinstance(frame, Welcome):
            stored = blocks_of(self._number, self._plan.nodes, self._plan.blocks)
            self._send(KvEvents(seq=0, stored=stored, removed=b"", snapshot=True))
            self.welcome.set_result(None)
            return
        self._received += 1
        if isinstance(frame, Ping):
            self._send(Pong(number=frame.number, received=self._received))

    def _hello(self) -> Hello:
        offer = ModelOffer(name=MODEL, digest="", context_window=131_072, vocab_size=0)
        return Hello(
            protocol=PROTOCOL_VERSION, node=name_of(self._number), epoch=secrets.token_hex(16),
            pool=POOL, region=REGION, engine="remote", device="none", dtype="none",
            block_size=BLOCK_SIZE, kv_blocks=self._plan.blocks + self._plan.event_blocks,
            credits=64, capabilities=["text", "prefix_cache", "kv_events"], models=[offer],
            session=secrets.token_hex(16),
        )  # fmt: skip

    def _send(self, frame: FromNode) -> None:
        if self._transport.is_closing():
            return
        data = encode(frame)
        size = len(data)
        if size < IN_TWO:
            head = bytes((BINARY, MASKED | size))
        elif size < 1 << 16:
            head = bytes((BINARY, MASKED | IN_TWO)) + size.to_bytes(2, "big")
        else:
            head = bytes((BINARY, MASKED | IN_EIGHT)) + size.to_bytes(8, "big")
        self._transport.write(head + NO_MASK + data)


def name_of(number: int) -> str:
    """What a node is called."""
    return f"linked-{number}"


def _whole(buffer: bytearray) -> tuple[int, int] | None:
    """Where the payload of the first frame lies; None until all of it is there."""
    if len(buffer) < 2:
        return None
    size, start = buffer[1], 2
    if size in (IN_TWO, IN_EIGHT):
        start = 4 if size == IN_TWO else 10
        size = int.from_bytes(buffer[2:start], "big")
    return (start, start + size) if len(buffer) >= start + size else None


async def _repeat(call: Callable[[], None], rate: float) -> None:
    """At this rate, beginning at a random moment; what was missed is not made up for."""
    await asyncio.sleep(random.random() / rate)
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    while True:
        call()
        due_s = max(due_s + 1 / rate, loop.time())
        await asyncio.sleep(due_s - loop.time())


async def _send_as_told(nodes: list[LinkedNode], plan: LinkPlan) -> None:
    """At the rate of the last line, from its coming on."""
    tasks: list[asyncio.Task[None]] = []
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        for task in tasks:
            task.cancel()
        steps_s = float(line)
        calls = [(node.step, steps_s) for node in nodes]
        calls += [(node.event, steps_s / plan.steps_of_an_event) for node in nodes]
        tasks = [asyncio.create_task(_repeat(call, rate)) for call, rate in calls]


async def run(port: int, plan: LinkPlan) -> None:
    """Until the process is ended."""
    loop, losses = asyncio.get_running_loop(), 0

    def lost(reason: str) -> None:
        nonlocal losses
        losses += 1
        if losses <= 3:
            print(f"link lost: {reason}", file=sys.stderr)

    nodes: list[LinkedNode] = []
    for number in range(plan.nodes):
        made = partial(LinkedNode, plan, number, lost)
        source = f"127.0.1.{1 + number // NODES_OF_AN_ADDRESS}", 0
        _, node = await loop.create_connection(made, "127.0.0.1", port, local_addr=source)
        await asyncio.wait_for(node.welcome, WELCOME_S_MAX)
        nodes.append(node)
        await asyncio.sleep(1 / DIALS_S)
    print(READY, flush=True)
    await _send_as_told(nodes, plan)


if __name__ == "__main__":
    first = sys.stdin.buffer.readline()
    uvloop.run(run(int(sys.argv[1]), msgspec.json.decode(first, type=LinkPlan)))
