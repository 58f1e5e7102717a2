"""The safety layer's classifier as a process of a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from controlplane.bridge.safety.client import SafetyClient

START_S_MAX = 60
FINE = "Here is the train to Vienna at nine."
FOUL = "you are a stupid fucking idiot"


@contextlib.asynccontextmanager
async def classifier(folder: Path) -> AsyncIterator[SafetyClient]:
    """A client whose process is warm; the process is killed afterwards."""
    made = SafetyClient(folder / "safety.sock")
    made.start_process()
    await warm(made)
    yield made
    await made.close()
    process = made._process
    assert process is not None
    process.kill()
    process.wait()


async def warm(client: SafetyClient) -> float:
    """The score of a harmless text, once the process answers."""
    async with asyncio.timeout(START_S_MAX):
        while True:
            try:
                return await client.score(FINE)
            except TimeoutError:
                await asyncio.sleep(0.1)
