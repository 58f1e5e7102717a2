"""A remote engine between a sink and a server whose every byte the test decides."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from inference.contract.frames import Job, Output, Sampling
from inference.engines.remote.engine import RemoteEngine
from inference.engines.remote.server import RemoteOptions
from inference.errors import JobRefused
from tests.inference.engines.sink import Sink
from tests.support.fleet import new_request
from tests.support.upstream import Exchange, HandUpstream, hand_upstream

KEY = "sk-upstream-secret"
MESSAGES = b'{"messages":[{"role":"user","content":"hello"}]}'


class Rig:
    """A started engine between a sink and a hand-made server."""

    def __init__(self, engine: RemoteEngine, sink: Sink, upstream: HandUpstream) -> None:
        self.engine = engine
        self.sink = sink
        self.upstream = upstream

    async def submit(self, job: Job) -> Exchange:
        """Submit, and what the server sees of it."""
        self.engine.submit(job)
        return await self.upstream.next()

    async def refused(self, job: Job) -> JobRefused:
        """The refusal that comes instead of outputs."""
        await self.sink.until(lambda: job.request in self.sink.refused)
        assert not self.sink.outputs[job.request]
        return self.sink.refused[job.request]


def make_job(request_json: bytes = MESSAGES, **changes: Any) -> Job:
    fields: dict[str, Any] = {"max_tokens": 8, **changes.pop("sampling", {})}
    return Job(
        request=new_request(),
        model="ours",
        tokens=[],
        salt=b"tenant",
        hashes=changes.pop("hashes", b""),
        sampling=Sampling(**fields),
        stop_tokens=[],
        request_json=request_json,
        **{"deadline_ms": 60_000, **changes},
    )


@contextlib.asynccontextmanager
async def started(
    upstream: HandUpstream, *, folder: Path | None = None, **options: Any
) -> AsyncIterator[Rig]:
    chosen = {"name": "ours", "upstream_model": "big", "key": KEY, "credits": 4, **options}
    engine = RemoteEngine(RemoteOptions(url=upstream.url, **chosen), folder)
    sink = Sink()
    try:
        await engine.start(sink)
        yield Rig(engine, sink, upstream)
    finally:
        await engine.close()
    assert not sink.deaths


@pytest.fixture
async def upstream() -> AsyncIterator[HandUpstream]:
    async with hand_upstream() as server:
        yield server


@pytest.fixture
async def rig(upstream: HandUpstream) -> AsyncIterator[Rig]:
    async with started(upstream) as rig:
        yield rig


def text_of(outputs: list[Output]) -> str:
    return "".join(output.text or "" for output in outputs)
