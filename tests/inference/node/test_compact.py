"""The real engine behind a real link: tokens, cache events, cancels, and not one strike."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.stream import JobStream
from inference.compact.options import CompactOptions
from inference.contract.blocks import chain_hashes
from inference.contract.frames import Job, Sampling
from inference.engines.compact import CompactEngine
from tests.inference.compact.tiny import continuation, job_of, prompt_of, save_model
from tests.support.fleet import (
    MODEL,
    World,
    fleet_server,
    make_model,
    new_request,
    outputs_of,
    running_node,
)
from tests.support.waiting import until

BLOCK_SIZE = 16


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, object]:
    folder = make_model(tmp_path_factory.mktemp("compact"))
    return folder, save_model(folder)


@contextlib.asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[World, NodeLink]]:
    world = World()
    options = CompactOptions(
        dtype="float32", device="cpu", kv_blocks=60, block_size=BLOCK_SIZE, running_max=8
    )
    engine = CompactEngine(folder, options)
    async with (
        fleet_server(world) as server,
        running_node(engine, server.url, folder) as node,
    ):
        await until(lambda: world.fleet.candidates(MODEL))
        link = world.fleet.candidates(MODEL)[0]
        yield world, link
        assert link._strikes == 0
        await until(lambda: not node.jobs.jobs_count)


def with_hashes(job: Job) -> Job:
    chain = chain_hashes(job.tokens, BLOCK_SIZE, job.salt)
    return msgspec.structs.replace(job, request=new_request(), hashes=b"".join(chain))


async def tokens_of(stream: JobStream) -> list[int]:
    return [token for output in await outputs_of(stream) for token in output.tokens]


async def test_greedy_tokens_and_the_index_follow_the_engine(
    checkpoint: tuple[Path, object],
) -> None:
    folder, oracle = checkpoint
    async with connected(folder) as (world, link):
        prompt = prompt_of(70)
        first = world.fleet.dispatch(link, with_hashes(job_of(prompt, max_tokens=12)))
        assert await tokens_of(first) == continuation(oracle, prompt, 12)
        assert first.usage.cached_tokens == 0
        chain = chain_hashes(prompt, BLOCK_SIZE, job_of(prompt).salt)
        index = world.fleet.index(BLOCK_SIZE)
        await until(lambda: index.cached_blocks(chain) == {link.identity.name: 4})
        again = world.fleet.dispatch(link, with_hashes(job_of(prompt, max_tokens=12)))
        assert await tokens_of(again) == continuation(oracle, prompt, 12)
        assert again.usage.cached_tokens == 64
        # How near it came to what its device can do, of which it told as it came.
        assert link.hello.ceilings is not None and link.hello.ceilings.read_bytes_s > 0
        shares = link.load and link.load.shares
        assert shares and shares.decode and shares.prefill
        foreign = chain_hashes(prompt, BLOCK_SIZE, b"salt-of-bob")
        assert index.cached_blocks(foreign) == {}


async def test_a_mixed_load_with_cancels_costs_no_strike(checkpoint: tuple[Path, object]) -> None:
    folder, _ = checkpoint
    dice = random.Random(5)
    async with connected(folder) as (world, link):

        async def one(number: int) -> None:
            sampling = Sampling(
                max_tokens=dice.randint(1, 40),
                n=dice.randint(1, 2),
                logprobs=dice.choice([None, 2]),
            )
            job = with_hashes(job_of(prompt_of(dice.randint(1, 90), seed=number % 3)))
            stream = world.fleet.dispatch(link, msgspec.structs.replace(job, sampling=sampling))
            reads = dice.randint(0, 60)
            while reads and await stream.batch():
                reads -= 1
            stream.cancel()
            usage = await stream.settled()
            assert usage.completion_tokens <= sampling.max_tokens * sampling.n
            world.fleet.acknowledge(link, job.request)

        for group in range(6):
            await asyncio.gather(*(one(group * 8 + number) for number in range(8)))
        assert (link.account.active, link.account.queued_tokens) == (0, 0)
        assert link.account.speed.learned_prefill
