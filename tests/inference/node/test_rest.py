"""A node that staff have drained: it finishes what it has, takes no more, stays, and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.gateway.nodes.limits import CLOSE_GOING_AWAY
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.stream import JobRejected
from controlplane.gateway.ports import Orders
from inference.contract.drain import Drain
from tests.support.fleet import (
    MODEL,
    World,
    echo_node,
    fleet_server,
    make_job,
    make_model,
    outputs_of,
)
from tests.support.waiting import until

ID = "0" * 32
SLOW = {"tokens_per_s": 50.0}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path)


async def _ready(world: World) -> NodeLink:
    await until(lambda: world.fleet.candidates(MODEL))
    return world.fleet.candidates(MODEL)[0]


async def test_what_runs_is_finished_and_nothing_new_is_taken_until_the_end(model: Path) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model, **SLOW) as node:
        link = await _ready(world)
        stream = world.fleet.dispatch(link, make_job(max_tokens=40))
        world.fleet_port.said[ID] = Orders(standing="draining", drain_s=60.0)
        await until(lambda: not world.fleet.candidates(MODEL) and node.rest)
        with pytest.raises(LookupError):
            world.fleet.dispatch(link, make_job())
        outputs = await outputs_of(stream)
        assert outputs[-1].finish == "length"
        assert link.identity.name in world.fleet.nodes()
        assert (ID, "draining") in world.fleet_port.seen
        world.fleet_port.said[ID] = Orders()
        await until(lambda: world.fleet.candidates(MODEL) and not node.rest)
        again = await outputs_of(world.fleet.dispatch(link, make_job(max_tokens=2)))
        assert again[-1].finish == "length"


async def test_at_the_deadline_what_still_runs_is_ended(model: Path) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model, **SLOW) as node:
        link = await _ready(world)
        stream = world.fleet.dispatch(link, make_job(max_tokens=100_000))
        await stream.batch()
        world.fleet_port.said[ID] = Orders(standing="draining", drain_s=0.0)
        outputs = await outputs_of(stream)
        assert outputs[-1].finish == "cancelled"
        assert node.jobs.jobs_count == 0 and link.account.active == 0


async def test_a_job_of_a_gateway_that_has_not_heard_is_refused(model: Path) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model) as node:
        link = await _ready(world)
        node.rest.obey(Drain(deadline_s=60.0))
        stream = world.fleet.dispatch(link, make_job())
        with pytest.raises(JobRejected) as refused:
            await outputs_of(stream)
        assert refused.value.code == "draining"
        node.rest.end()
        assert (await outputs_of(world.fleet.dispatch(link, make_job())))[-1].finish == "length"


async def test_a_node_taken_back_while_its_link_was_down_hears_of_it(model: Path) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model) as node:
        await _ready(world)
        world.fleet_port.said[ID] = Orders(standing="draining", drain_s=60.0)
        await until(lambda: node.rest)
        await server.stop()
        world.fleet_port.said[ID] = Orders()
        await server.start()
        link = await _ready(world)
        await until(lambda: not node.rest)
        assert (await outputs_of(world.fleet.dispatch(link, make_job())))[-1].finish == "length"


async def test_orders_that_come_when_a_link_is_gone_do_not_bring_it_back(model: Path) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model):
        link = await _ready(world)
        link.close(CLOSE_GOING_AWAY, "")
        link.obey(Orders(standing="draining", drain_s=60.0))
        assert world.fleet_port.seen[-1] == (ID, "disconnected")
