"""From the moment that a client closes to the moment that its node has freed the blocks.

The gateway runs in this process, with its money in memory, so that both moments are read from one
clock; the node is a process with the compact engine. The end is when the gateway hears of it, one
network hop later than it happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator

import msgspec
from django.conf import settings

from benchmarks.faults.ground import READY_S_MAX, until
from controlplane.gateway.nodes.limits import LinkLimits
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.nodes import let_in
from tests.support.ports import KEY, make_snapshot
from tests.support.shipped import long_prompt, no_end

NODE = "cancelling"
STREAMS = 8
TOKENS = 1_500
PROMPT_TOKENS = 64
EVENTS_SEEN = 3
STOP_S_MAX = 20.0
LEFT_S_MAX = 30.0
MS_PER_S = 1_000.0
ALLOWED_MS = 20.0
STEPS_ALLOWED = 2


async def measure_cancels(count: int) -> AsyncIterator[tuple[float, float]]:
    """Milliseconds that each took, and the bound at that moment: two steps and 20 ms."""
    under_test = GatewayUnderTest(limits=LinkLimits())
    under_test.keys.current = make_snapshot(settings.SHIPPED_MODEL_DIR.name, output_max=TOKENS)
    async with running_gateway(under_test), node_process(under_test):
        await until(lambda: serves(under_test), READY_S_MAX)
        (link,) = under_test.fleet.nodes().values()
        freed = asyncio.Event()
        under_test.fleet.on_credit.append(lambda *_: freed.set())
        clients = [await Client.open(under_test, seed) for seed in range(STREAMS)]
        for number in range(count):
            # The oldest, so that none ends by itself meanwhile.
            place = number % STREAMS
            async with asyncio.timeout(LEFT_S_MAX):
                while clients[place].ended:
                    # On a machine this slow it did: its credit is long back.
                    clients[place] = await Client.open(under_test, number)
                freed_ms = await clients[place].leave(freed)
            yield freed_ms, STEPS_ALLOWED * link.account.speed.step_s * MS_PER_S + ALLOWED_MS
            clients[place] = await Client.open(under_test, STREAMS + number)
        for client in clients:
            client.close()


def serves(under_test: GatewayUnderTest) -> bool:
    """The node is here, with its tokenizer."""
    return bool(under_test.fleet.candidates(settings.SHIPPED_MODEL_DIR.name))


class Client:
    """One stream that is read as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, under_test: GatewayUnderTest, seed: int) -> Client:
        """Ask, and wait until tokens come."""
        reader, writer = await asyncio.open_connection("127.0.0.1", under_test.port)
        writer.write(request(seed))
        try:
            for _ in range(EVENTS_SEEN):
                await reader.readuntil(b"data: ")
        except asyncio.IncompleteReadError as error:
            raise AssertionError(f"no stream, but {error.partial.decode()}") from error
        return cls(reader, writer)

    @property
    def ended(self) -> bool:
        """The whole answer has come."""
        return self._reading.done()

    def close(self) -> None:
        """Leave, whoever notices."""
        self._reading.cancel()
        self._writer.transport.abort()

    async def leave(self, freed: asyncio.Event) -> float:
        """Close; returns when the node has freed the job, with the milliseconds that took."""
        freed.clear()
        began_s = time.perf_counter()
        self.close()
        await freed.wait()
        return (time.perf_counter() - began_s) * MS_PER_S

    async def _read(self) -> None:
        while await self._reader.read(65_536):
            pass


def request(seed: int) -> bytes:
    """A stream for far longer than anybody reads."""
    prompt = long_prompt(PROMPT_TOKENS + seed)[seed:]
    body = msgspec.json.encode(
        {
            "model": settings.SHIPPED_MODEL_DIR.name,
            "prompt": prompt,
            "max_tokens": TOKENS,
            "stream": True,
            # They must not end by themselves.
            "logit_bias": no_end(),
        }
    )
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body


@contextlib.asynccontextmanager
async def node_process(under_test: GatewayUnderTest) -> AsyncIterator[None]:
    """A real node with the compact engine on the shipped model."""
    credential = let_in(under_test, NODE)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "inference", "--gateway", under_test.fleet_url, "--name", NODE,
        "--model", str(settings.SHIPPED_MODEL_DIR), "--engine", "compact",
        "--log-level", "WARNING",
        env={**os.environ, "SLUICE_NODE_CREDENTIAL": credential},
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        async with asyncio.timeout(STOP_S_MAX):
            await process.wait()
