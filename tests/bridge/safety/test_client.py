"""The classifier's client under load: a scorer on a real Unix socket that takes its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.bridge.safety import client as module
from controlplane.bridge.safety.client import LENGTH, SCORE, SafetyClient


class SlowScorer:
    """Answers each text, which is a number, with that number; counts its connections."""

    def __init__(self, socket: Path) -> None:
        self.wait_s = 0.0
        self.connections = 0
        self._socket = socket
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._connected, self._socket)

    async def stop(self) -> None:
        """Stop listening and hang up."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.add(asyncio.get_running_loop().create_task(self._answer(reader, writer)))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.read(LENGTH.size):
                (size,) = LENGTH.unpack(head)
                text = await reader.readexactly(size)
                await asyncio.sleep(self.wait_s)
                writer.write(SCORE.pack(float(text)))
        finally:
            writer.close()


class SoleClient(SafetyClient):
    """Must never start a process: the scorer is there."""

    def start_process(self) -> None:
        """Asked for only where the scorer was taken for gone."""
        raise AssertionError("the scorer was taken for gone")


@pytest.fixture
async def scorer(tmp_path: Path) -> AsyncIterator[SlowScorer]:
    made = SlowScorer(tmp_path / "safety.sock")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def client(scorer: SlowScorer, tmp_path: Path) -> AsyncIterator[SafetyClient]:
    made = SoleClient(tmp_path / "safety.sock")
    yield made
    await made.close()


async def test_ten_texts_a_second_are_all_checked_by_a_slow_scorer(
    client: SafetyClient, scorer: SlowScorer
) -> None:
    scorer.wait_s = 0.3
    asked = []
    for number in range(20):
        asked.append(asyncio.create_task(client.score(str(number))))
        await asyncio.sleep(0.1)
    assert await asyncio.gather(*asked) == list(range(20))
    assert scorer.connections <= module.CONNECTIONS_MAX


async def test_who_gives_up_while_waiting_disturbs_nobody(
    client: SafetyClient, scorer: SlowScorer
) -> None:
    scorer.wait_s = 0.3
    asked = [asyncio.create_task(client.score(str(n))) for n in range(module.CONNECTIONS_MAX)]
    waiting = asyncio.create_task(client.score("9"))
    await asyncio.sleep(0.1)
    waiting.cancel()
    assert await asyncio.gather(*asked) == list(range(module.CONNECTIONS_MAX))


async def test_a_late_answer_is_nobodys(client: SafetyClient, scorer: SlowScorer) -> None:
    scorer.wait_s = 1.0
    client.score_s = 0.1
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await client.score("1")
    assert time.monotonic() - began < 1.0
    scorer.wait_s = 0.0
    client.score_s = 60.0
    await asyncio.sleep(1.0)
    assert await client.score("2") == 2


async def test_a_connection_that_died_while_idle_is_not_asked(
    client: SafetyClient, scorer: SlowScorer
) -> None:
    assert await client.score("1") == 1
    await scorer.stop()
    await scorer.start()
    assert await client.score("2") == 2
