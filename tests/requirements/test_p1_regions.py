"""P1, stage 2: the nearest region with room serves; a client's region is told by its network."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network

from controlplane.gateway.places import Places
from tests.support.nodes import hand_node, named_node
from tests.support.serving import Serving
from tests.support.waiting import until

# Of the client in these tests; the gateway itself stands in `local`.
PLACES = Places(networks=[(ip_network("127.0.0.0/8"), "eu")])


async def regions_of(serving: Serving, count: int) -> list[str]:
    """Where so many requests are served."""
    for _ in range(count):
        assert (await serving.chat()).status_code == 200
    await serving.under_test.at_rest()
    return [record.region for record in serving.under_test.recorder.records[-count:]]


async def test_the_clients_region_comes_first_then_the_gateways(bare: Serving) -> None:
    under_test = bare.under_test
    async with (
        named_node(under_test, bare.model, "a", region="local"),
        named_node(under_test, bare.model, "b", region="another"),
    ):
        async with named_node(under_test, bare.model, "c", region="eu"):
            assert await regions_of(bare, 3) == ["local"] * 3
            under_test.world.places = PLACES
            assert await regions_of(bare, 3) == ["eu"] * 3
        assert await regions_of(bare, 3) == ["local"] * 3
    async with named_node(under_test, bare.model, "b", region="another"):
        assert await regions_of(bare, 1) == ["another"]


async def test_a_full_region_is_left_for_the_next(bare: Serving) -> None:
    under_test = bare.under_test
    under_test.world.places = PLACES
    async with (
        hand_node(under_test, bare.model, credits=1, region="eu") as near,
        named_node(under_test, bare.model, "a", region="local"),
    ):
        running = asyncio.create_task(bare.chat(max_tokens=1))
        job = await near.job()
        assert (await bare.chat()).headers["x-sluice-node"] == "a"
        await near.answer(job, "x", finish="length")
        assert (await running).status_code == 200
        await under_test.at_rest()
    assert {record.region for record in under_test.recorder.records} == {"eu", "local"}


async def test_where_all_are_full_the_least_loaded_region_is_waited_for(bare: Serving) -> None:
    under_test = bare.under_test
    under_test.world.places = PLACES
    async with (
        hand_node(under_test, bare.model, name="near", credits=1, region="eu") as near,
        hand_node(under_test, bare.model, name="far", credits=2, region="local") as far,
    ):
        # The near one is full, and so is the far one, with less than it could have here.
        asked = [asyncio.create_task(bare.chat(max_tokens=1))]
        jobs = [(near, await near.job())]
        under_test.fleet.nodes()["far"].account.cap = 1
        asked.append(asyncio.create_task(bare.chat(max_tokens=1)))
        jobs.append((far, await far.job()))
        asked.append(asyncio.create_task(bare.chat(max_tokens=1)))
        await until(lambda: len(under_test.world.waiting) == 1)
        for node, job in jobs:
            await node.answer(job, "x", finish="length")
        await far.answer(await far.job(), "x", finish="length")
        assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * 3
        await under_test.at_rest()
