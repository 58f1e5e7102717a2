"""How a node goes: in good order, with its jobs finished or handed back, or at once when deaf."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from inference.contract.frames import Job
from inference.engines.base import EngineEvents
from inference.engines.echo import EchoEngine, EchoOptions
from inference.engines.remote.engine import RemoteEngine
from inference.engines.remote.server import RemoteOptions
from inference.errors import ModelError
from inference.node import probe, service
from inference.node.assets import Assets, ModelAssets
from inference.node.drain import drain
from inference.node.options import NodeOptions
from inference.node.probe import start_engine
from inference.node.service import Node, Stop
from tests.support.fleet import (
    CREDENTIAL,
    MODEL,
    NODE,
    WAIT_S,
    World,
    echo_node,
    fleet_server,
    make_job,
    make_model,
    outputs_of,
)
from tests.support.nodes import named_node
from tests.support.serving import Serving, bare
from tests.support.upstream import hand_upstream, text_chunk, usage_chunk
from tests.support.waiting import until

__all__ = ["bare"]

SLOW_TOKENS_PER_S = 4.0


class Sleeper(EchoEngine):
    """Makes the first token, then sleeps through jobs without a word."""

    jobs = 0
    slept_jobs = 1_000

    def submit(self, job: Job) -> None:
        """Take it, and forget some after the first."""
        self.jobs += 1
        if not 1 < self.jobs <= 1 + self.slept_jobs:
            super().submit(job)


class Counting(EchoEngine):
    """Counts what it is asked."""

    jobs = 0

    def submit(self, job: Job) -> None:
        """Count and take it."""
        self.jobs += 1
        super().submit(job)


class Stillborn(EchoEngine):
    """Dies of its first job."""

    async def start(self, events: EngineEvents) -> None:
        """Remember whom to tell."""
        self.heard = events

    def submit(self, job: Job) -> None:
        """Die."""
        self.heard.on_death(RuntimeError("no kernel image"))


class Slow(EchoEngine):
    """Takes its time to load."""

    async def start(self, events: EngineEvents) -> None:
        """Load."""
        await asyncio.sleep(0.1)
        await super().start(events)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path)


def make_node(engine: EchoEngine, model: Path, *, probe_interval_s: float = 0.0) -> Node:
    settings = NodeOptions(
        gateways=("ws://127.0.0.1:1/fleet",),
        name=NODE,
        credential=CREDENTIAL,
        probe_interval_s=probe_interval_s,
    )
    return Node(engine, ModelAssets(model), settings)


async def test_jobs_not_begun_go_back_and_the_others_end(model: Path) -> None:
    world = World()
    async with (
        fleet_server(world) as server,
        echo_node(server.url, model, tokens_per_s=SLOW_TOKENS_PER_S) as node,
    ):
        await until(lambda: world.fleet.candidates(MODEL))
        (link,) = world.fleet.candidates(MODEL)
        begun = world.fleet.dispatch(link, make_job(max_tokens=50))
        await begun.batch()
        untouched = world.fleet.dispatch(link, make_job(max_tokens=50))
        await until(lambda: node.jobs.jobs_count == 2)
        draining = asyncio.create_task(drain(node, 0.0))
        with pytest.raises(Exception, match="stops before it could begin") as caught:
            await outputs_of(untouched)
        assert getattr(caught.value, "code", "") == "draining"
        assert (await outputs_of(begun))[-1].finish == "cancelled"
        world.fleet.acknowledge(link, begun.request)
        await draining
        assert node.jobs.jobs_count == node.jobs.reports_count == 0


async def test_a_client_does_not_notice_a_drain_before_its_first_token(bare: Serving) -> None:
    under_test = bare.under_test
    speed = SLOW_TOKENS_PER_S
    async with named_node(under_test, bare.model, "leaving", tokens_per_s=speed) as leaving:
        await under_test.served()
        asked = asyncio.create_task(bare.chat(max_tokens=2))
        await until(lambda: leaving.jobs.jobs_count)
        async with named_node(under_test, bare.model, "staying"):
            await drain(leaving, 0.0)
            answer = await asked
            assert answer.status_code == 200
            assert under_test.recorder.records[-1].node == "staying"
            await under_test.at_rest()


async def test_the_link_is_closed_in_good_order(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    with caplog.at_level(logging.INFO):
        async with fleet_server(world) as server:
            async with echo_node(server.url, model):
                await until(lambda: world.fleet.candidates(MODEL))
            await until(lambda: not world.fleet.nodes())
    assert f"node left name={NODE} reason='the socket closed with 1000' jobs=0" in caplog.text


async def test_an_idle_engine_that_makes_no_token_ends_the_node(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PROBE_TIMEOUT_S", 0.2)
    engine = Sleeper(model, EchoOptions())
    node = make_node(engine, model, probe_interval_s=0.05)
    await node.start()
    assert await asyncio.wait_for(node.stopped, WAIT_S) is Stop.ENGINE_DIED
    assert engine.jobs == 1 + service.PROBE_FAILURES_MAX
    await node.close()


async def test_an_idle_engine_that_misses_one_token_is_asked_again(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PROBE_TIMEOUT_S", 0.2)
    engine = Sleeper(model, EchoOptions())
    engine.slept_jobs = service.PROBE_FAILURES_MAX - 1
    node = make_node(engine, model, probe_interval_s=0.02)
    await node.start()
    await until(lambda: engine.jobs >= 2 + service.PROBE_FAILURES_MAX)
    assert not node.stopped.done()
    await node.close()


async def test_a_healthy_idle_engine_is_asked_again_and_again(model: Path) -> None:
    engine = Counting(model, EchoOptions())
    node = make_node(engine, model, probe_interval_s=0.02)
    await node.start()
    await until(lambda: engine.jobs >= 4)
    assert not node.stopped.done()
    await node.close()


async def test_an_engine_that_dies_of_its_first_token_is_a_model_error(model: Path) -> None:
    node = make_node(Stillborn(model, EchoOptions()), model)
    with pytest.raises(ModelError, match="no kernel image"):
        await asyncio.wait_for(node.start(), WAIT_S)
    await node.close()


async def test_a_long_load_is_talked_about(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(probe, "LOADING_LOG_S", 0.02)
    engine = Slow(model, EchoOptions())
    node = make_node(engine, model)
    with caplog.at_level(logging.INFO):
        await start_engine(engine, node)
    assert f"loading model={MODEL}" in caplog.text
    with contextlib.suppress(asyncio.CancelledError):
        await engine.close()


async def test_a_server_that_has_gone_ends_its_node() -> None:
    async with hand_upstream() as upstream:
        upstream.listed = [{"id": MODEL, "context_window": 64}]
        settings = NodeOptions(
            gateways=("ws://127.0.0.1:1/fleet",),
            name=NODE,
            credential=CREDENTIAL,
            probe_interval_s=0.05,
        )
        engine = RemoteEngine(RemoteOptions(url=upstream.url, name=MODEL))
        node = Node(engine, Assets(), settings)
        starting = asyncio.create_task(node.start())
        exchange = await upstream.next()
        await exchange.answer(text_chunk("1", finish="length"), usage_chunk(1, 1))
        await starting
    assert await asyncio.wait_for(node.stopped, WAIT_S) is Stop.ENGINE_DIED
    await node.close()
