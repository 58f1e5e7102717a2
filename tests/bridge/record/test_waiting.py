"""Queue depth as it is sampled: requests that wait, where they wait, and what is stored of it."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from controlplane.bridge.fleet.gateways import link_facts
from controlplane.bridge.metrics.page import metrics_page
from controlplane.bridge.record import recorder as recorder_module
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.series import GaugeSample, QueueDepth
from controlplane.bridge.record.waiting import NodeWatch, WaitingSampler, queue_now, waiting_now
from controlplane.gateway.app_state import AppState
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.breaker import Cause
from controlplane.gateway.s4_route.queue import unmet
from controlplane.kernel import measures
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import (
    BATCH,
    BREAKER_OPENED,
    COLD_START,
    CREDITS,
    GAUGES,
    KV_USED_PERMILLE,
    RUNNING,
)
from inference.contract.roofline import Shares
from tests.support.fleet import MODEL, make_step
from tests.support.money import dsn, rows
from tests.support.nodes import hand_node
from tests.support.ports import ORGANIZATION
from tests.support.serving import Serving, bare, model
from tests.support.waiting import until

__all__ = ["bare", "model"]

WAITING = 3
SAMPLES = 5
FAST_S = 0.01
GAUGES_OF_ROOFLINE = (
    "sluice_node_decode_bandwidth_ratio",
    "sluice_node_prefill_compute_ratio",
)


def sampled(world: AppState) -> list[QueueDepth]:
    """What is sampled, less the time that has passed."""
    return [depth._replace(oldest_ms=0) for depth in waiting_now(world)]


async def test_every_waiting_request_is_counted_once_and_where_it_is(bare: Serving) -> None:
    world = bare.under_test.world
    assert list(waiting_now(world)) == [QueueDepth("", 0, 0)]
    async with hand_node(bare.under_test, bare.model, credits=1) as node:
        asked = [asyncio.create_task(bare.chat(max_tokens=2)) for _ in range(WAITING)]
        job = await node.job()
        await until(lambda: len(world.waiting) == WAITING - 1)
        two = (0, 2, 0)
        assert set(sampled(world)) == {QueueDepth("", 2, 1, two), QueueDepth(MODEL, 2, 1, two)}
        assert all(depth.oldest_ms > 0 for depth in waiting_now(world))
        told = queue_now(world)
        assert told["models"] == {MODEL: 2}
        assert told["pools"] == {"default": 2} and told["unmet"] == []
        assert isinstance(told["tenants"], dict)
        assert [waiting for waiting, _ in told["tenants"].values()] == [2]
        assert list(told["tenants"]) == [ORGANIZATION]
        await node.answer(job, "a")
        await until(lambda: QueueDepth("", 2, 0, two) in sampled(world))
        await node.answer(job, "b", finish="length")
        for _ in range(WAITING - 1):
            await node.answer(await node.job(), "ab", finish="length")
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
        assert set(waiting_now(world)) == {QueueDepth("", 0, 0), QueueDepth(MODEL, 0, 0)}
        await bare.under_test.at_rest()


async def test_a_pool_that_was_asked_for_in_vain_is_told_for_a_while(
    bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = bare.under_test.world
    assert queue_now(world)["unmet"] == []
    assert (await bare.chat()).status_code == 503
    assert queue_now(world)["unmet"] == ["default"]
    monkeypatch.setattr(unmet, "UNMET_S", 0.0)
    assert queue_now(world)["unmet"] == []


async def test_nodes_are_sampled_by_model_and_pool_and_their_events_counted_once(
    bare: Serving,
) -> None:
    world = bare.under_test.world
    watch = NodeWatch(world)
    assert list(watch.samples()) == []
    step = msgspec.structs.replace(make_step(), running=3, kv_free_blocks=16)
    async with hand_node(bare.under_test, bare.model, cold_start_ms=900) as node:
        await node.send(step)
        link = world.fleet.nodes()["hand"]
        await until(lambda: link.load is not None)
        found = set(watch.samples())
        places = (("", ""), (MODEL, ""), (MODEL, "default"))
        figures = {(RUNNING, 3), (BATCH, 3), (KV_USED_PERMILLE, 750), (CREDITS, 8), (COLD_START, 1)}
        assert found == {GaugeSample(*place, *each) for place in places for each in figures}
        link.breaker.eject(Cause.FAILURES)
        assert GaugeSample(MODEL, "default", BREAKER_OPENED, 1) in set(watch.samples())
        measures = {sample.measure for sample in watch.samples()}
        assert measures == {RUNNING, BATCH, KV_USED_PERMILLE, CREDITS}
    assert list(watch.samples()) == []


def has_told(link: NodeLink, shares: Shares | None) -> bool:
    """Whether its last step said this of its shares."""
    return link.load is not None and link.load.shares == shares


async def test_roofline_use_is_told_to_pages_and_to_prometheus_by_pool(bare: Serving) -> None:
    world = bare.under_test.world
    recorder = PostgresRecorder("")
    async with hand_node(bare.under_test, bare.model) as node:
        link = world.fleet.nodes()["hand"]
        for shares, pages in (
            (None, {}),
            (Shares(decode=0.5), {"decode_share": 0.5, "prefill_share": None}),
            (Shares(decode=0.25, prefill=0.75), {"decode_share": 0.25, "prefill_share": 0.75}),
        ):
            await node.send(msgspec.structs.replace(make_step(), shares=shares))
            await until(partial(has_told, link, shares))
            facts = link_facts(link)
            assert {name: facts[name] for name in facts if name.endswith("_share")} == pages
            page = metrics_page(world, recorder, ()).to_bytes().decode().splitlines()
            found = {line for line in page if line.startswith(GAUGES_OF_ROOFLINE)}
            decode, prefill = (f'{name}{{pool="default"}} ' for name in GAUGES_OF_ROOFLINE)
            expected = {decode: pages.get("decode_share"), prefill: pages.get("prefill_share")}
            assert found == {f"{name}{value}" for name, value in expected.items() if value}


def stored() -> dict[str, Histogram]:
    """The gauges of all models together."""
    query = "SELECT measure, data FROM histogram_minutes WHERE model = '' AND status_class = -1"
    merged: dict[str, Histogram] = {}
    for measure, data in rows(query):
        merged.setdefault(measure, Histogram()).merge(Histogram.from_bytes(data))
    return merged


async def test_an_idle_gateway_stores_that_nothing_waits(
    database: str, bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "SAMPLE_S", FAST_S)
    monkeypatch.setattr(recorder_module, "SERIES_FLUSH_S", FAST_S)
    recorder = PostgresRecorder(dsn())
    recorder.start()
    sampler = WaitingSampler(bare.under_test.world, recorder)
    sampler.start()
    await until(lambda: stored().get("waiting", Histogram()).count >= SAMPLES)
    await sampler.close()
    await recorder.close()
    found = stored()
    assert set(found) == set(GAUGES)
    assert {(one.total, one.zeros) for one in found.values()} == {(0, found["waiting"].count)}
