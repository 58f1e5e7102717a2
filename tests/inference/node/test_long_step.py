"""A step that lasts longer than the gateway waits for one: it goes on if it computes, and ends if
it hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from controlplane.gateway.nodes.facts import LinkState
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.stream import NodeLost
from inference.compact.config.shape import ModelShape
from inference.compact.load.placement import Placement
from inference.compact.options import CompactOptions
from inference.compact.run.runner import Runner
from inference.compact.schedule.outputs import SampledToken
from inference.compact.schedule.scheduler import Chunk
from inference.contract.frames import Job
from inference.engines.compact import CompactEngine
from inference.node.jobs import LOST
from inference.node.options import STEP_S_MAX
from tests.inference.compact.tiny import job_of, prompt_of, save_model
from tests.support.fleet import (
    MODEL,
    QUICK,
    World,
    fleet_server,
    make_model,
    new_request,
    outputs_of,
    running_node,
)
from tests.support.waiting import until

PROGRESS_S = 4.0
LIMITS = msgspec.structs.replace(QUICK, progress_timeout_s=PROGRESS_S, cancel_confirm_s=PROGRESS_S)
BLOCK_OF_WORK = bytes(1 << 20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_model(tmp_path_factory.mktemp("long"))
    save_model(made)
    return made


class LongEngine(CompactEngine):
    """Once `long` is set, a step lasts until `done` is, and repeats `work` meanwhile."""

    def __init__(self, folder: Path, work: Callable[[threading.Event], object]) -> None:
        super().__init__(folder, CompactOptions(dtype="float32", device="cpu", kv_blocks=60))
        self.long, self.begun, self.done = (threading.Event() for _ in range(3))
        self.work = work

    def load(self, folder: Path, shape: ModelShape, placement: Placement) -> Runner:
        """A model whose steps can be made long."""
        engine = self

        class LongRunner(Runner):
            """The model itself."""

            def run(self, chunks: list[Chunk]) -> list[SampledToken]:
                """As ever, but late."""
                while engine.long.is_set() and not engine.done.is_set():
                    engine.begun.set()
                    engine.work(engine.done)
                return super().run(chunks)

        return LongRunner.load(folder, shape, placement)


def compute(_: threading.Event) -> object:
    """Takes CPU time, and leaves Python to others."""
    return hashlib.sha256(BLOCK_OF_WORK)


def hang(done: threading.Event) -> object:
    """Takes none."""
    return done.wait()


@contextlib.asynccontextmanager
async def connected(engine: LongEngine, folder: Path) -> AsyncIterator[tuple[World, NodeLink]]:
    world = World(LIMITS)
    async with fleet_server(world) as server, running_node(engine, server.url, folder):
        try:
            await until(lambda: world.fleet.candidates(MODEL))
            yield world, world.fleet.candidates(MODEL)[0]
        finally:
            engine.done.set()


def job() -> Job:
    return msgspec.structs.replace(job_of(prompt_of(20), max_tokens=3), request=new_request())


async def test_a_step_that_computes_keeps_its_link_its_jobs_and_its_cancels(folder: Path) -> None:
    engine = LongEngine(folder, compute)
    async with connected(engine, folder) as (world, link):
        assert link.hello.silence_s == STEP_S_MAX
        engine.long.set()
        streams = [world.fleet.dispatch(link, job()) for _ in range(2)]
        await until(engine.begun.is_set)
        streams.append(world.fleet.dispatch(link, job()))
        for stream in streams[1:]:
            stream.cancel()
        await asyncio.sleep(1.5 * PROGRESS_S)
        assert link.state is LinkState.READY and not link.suspect
        assert not any(stream.ended for stream in streams)
        engine.done.set()
        outputs = await outputs_of(streams[0])
        assert sum(len(each.tokens) for each in outputs) == 3
        for stream in streams[1:]:
            assert (await stream.settled()).completion_tokens <= 1
        assert link._strikes == 0


async def test_a_step_keeps_the_links_of_all_gateways_also_when_its_own_is_lost(
    folder: Path,
) -> None:
    engine, own, other = LongEngine(folder, compute), World(LIMITS), World(LIMITS)
    other.fleet.gateway = "gateway-2"
    async with contextlib.AsyncExitStack() as servers:
        second = await servers.enter_async_context(fleet_server(other))
        restarts = await servers.enter_async_context(contextlib.AsyncExitStack())
        first = await restarts.enter_async_context(fleet_server(own))
        node = await servers.enter_async_context(
            running_node(engine, first.url, folder, second.url)
        )
        servers.callback(engine.done.set)
        await until(lambda: own.fleet.candidates(MODEL) and other.fleet.candidates(MODEL))
        link = other.fleet.candidates(MODEL)[0]
        engine.long.set()
        own.fleet.dispatch(own.fleet.candidates(MODEL)[0], job())
        await until(engine.begun.is_set)
        waiting, cancelled = (other.fleet.dispatch(link, job()) for _ in range(2))
        cancelled.cancel()
        await restarts.aclose()
        await until(lambda: node.jobs.owned_by(node.jobs.requests()[0], LOST))
        await asyncio.sleep(1.5 * PROGRESS_S)
        assert link.state is LinkState.READY and not link.suspect
        assert not waiting.ended and not cancelled.ended
        engine.done.set()
        assert sum(len(each.tokens) for each in await outputs_of(waiting)) == 3
        await cancelled.settled()
        assert link._strikes == 0


async def test_a_step_that_hangs_loses_its_link(folder: Path) -> None:
    engine = LongEngine(folder, hang)
    async with connected(engine, folder) as (world, link):
        engine.long.set()
        stream = world.fleet.dispatch(link, job())
        with pytest.raises(NodeLost, match="no step"):
            await stream.batch()
        assert link.state is LinkState.CLOSED
