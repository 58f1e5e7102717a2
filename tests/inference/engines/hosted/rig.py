"""A started engine of hosted models, and the lines that it reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from inference.contract.frames import Job, Usage
from inference.engines.hosted.engine import HostedEngine, HostedOptions
from tests.inference.engines.sink import Sink
from tests.support.upstream import text_chunk, usage_chunk

ANSWER = (text_chunk("Hi"), text_chunk("", finish="stop"), usage_chunk(7, 1))


def connection(url: str, *keys: str, **changes: Any) -> dict[str, Any]:
    """With keys named after their secrets."""
    model = {"name": "ours", "upstream": "big", "context_window": 4096}
    return {
        "name": "one",
        "kind": "openai",
        "url": url,
        "keys": [{"id": f"id-{key}", "secret": key} for key in keys],
        "models": [model | changes.pop("model", {})],
        **changes,
    }


class Rig:
    """A started engine, and the lines that it reads."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.engine = HostedEngine(HostedOptions(credits=8), lines=self._read)
        self.sink = Sink()

    def configure(self, *connections: dict[str, Any]) -> None:
        self.lines.put_nowait(json.dumps({"connections": connections}).encode() + b"\n")

    async def _read(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.lines.get()

    async def usage(self, job: Job) -> Usage:
        return (await self.sink.finished(job.request))[-1].usage


@contextlib.asynccontextmanager
async def started(*connections: dict[str, Any]) -> AsyncIterator[Rig]:
    rig = Rig()
    rig.configure(*connections)
    try:
        await rig.engine.start(rig.sink)
        yield rig
    finally:
        await rig.engine.close()
    assert not rig.sink.deaths
