"""S7: four ways to ask one's own deployment, timed by a client of its gateway, kept and shown."""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command

from controlplane.gateway.ports import NodeIdentity
from controlplane.insights.compare import (
    MANNERS,
    Cards,
    Refused,
    Setup,
    WayResult,
    body_of,
    compare,
    rank,
)
from controlplane.insights.load.wire import LoadClient
from controlplane.kernel.price import TokenCounts, charge_nano
from controlplane.kernel.rules import RouteRule, Target
from controlplane.kernel.rules import Step as RuleStep
from inference.compact.options import CompactOptions
from inference.contract.frames import Step
from inference.engines.base import EngineEvents
from inference.engines.compact import CompactEngine
from inference.node.assets import ModelAssets
from inference.node.options import NodeOptions
from inference.node.service import Node
from tests.inference.compact.tiny import save_model
from tests.support.fleet import MODEL, echo_node
from tests.support.gateway import GatewayUnderTest
from tests.support.people import make_cast, signed_in
from tests.support.ports import KEY, PRICE
from tests.support.serving import Serving
from tests.support.shipped import SHIPPED
from tests.support.waiting import until

SETUP = Setup(large=MODEL, small=MODEL, requests=4, output_tokens=6, words=30)
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
BLOCK_TOKENS = 32


class Widths:
    """Passes an engine's events on, and knows the most requests that one step put out."""

    def __init__(self, events: EngineEvents) -> None:
        self._events = events
        self.on_kv = events.on_kv
        self.on_refused = events.on_refused
        self.on_death = events.on_death
        self.most = 0

    def on_step(self, step: Step) -> None:
        """Count, and pass on."""
        self.most = max(self.most, len({output.request for output in step.outputs}))
        self._events.on_step(step)


class WatchedEngine(CompactEngine):
    """The compact engine, and how wide its batches were."""

    widths: Widths

    async def start(self, events: EngineEvents) -> None:
        """As ever."""
        self.widths = Widths(events)
        await super().start(self.widths)


@asynccontextmanager
async def compact_node(under_test: GatewayUnderTest, folder: Path) -> AsyncIterator[WatchedEngine]:
    """A node that serves a checkpoint; it, its model and the folder have one name."""
    name, credential = folder.name, f"node_sluice_{folder.name}"
    identity = NodeIdentity(id=credential, name=name, models=None)
    under_test.fleet_port.identities[credential] = identity
    options = CompactOptions(device="cpu", dtype="float32", block_size=BLOCK_TOKENS)
    engine = WatchedEngine(folder, options)
    told = NodeOptions(gateways=(under_test.fleet_url,), name=name, credential=credential)
    node = Node(engine, ModelAssets(folder), told)
    await node.start()
    try:
        await until(lambda: under_test.fleet.candidates(name))
        yield engine
    finally:
        await node.close()


def make_small(folder: Path) -> Path:
    """A random model of a fiftieth of the shipped one's size, with its tokenizer."""
    save_model(folder, vocab_size=4096, max_position_embeddings=4096, eos_token_id=5)
    for name in TOKENIZER:
        shutil.copy(SHIPPED / name, folder / name)
    return folder


def know(under_test: GatewayUnderTest, *names: str) -> None:
    """Models of these names instead of the usual one."""
    snapshot = under_test.keys.current
    like = snapshot.models[MODEL]
    models = {name: msgspec.structs.replace(like, name=name) for name in names}
    under_test.keys.current = msgspec.structs.replace(snapshot, models=models)


@pytest.fixture
async def serving(steady: Serving) -> AsyncIterator[Serving]:
    """An echo node with the times of production: threads of a client run beside the loop."""
    async with echo_node(steady.under_test.fleet_url, steady.model, tokens_per_s=500.0):
        await steady.under_test.served()
        yield steady
        await steady.under_test.at_rest()


async def run(serving: Serving, setup: Setup = SETUP) -> list[WayResult]:
    """All four ways against the gateway under test; the client blocks, so in a thread."""
    told: list[WayResult] = []
    work = partial(
        compare,
        setup,
        LoadClient(f"{serving.under_test.url}/v1", KEY),
        {MODEL: Cards(nano_per_s=1_000, nodes=1)},
        done=told.append,
    )
    found = await asyncio.to_thread(work)
    assert told == found
    return found


async def test_each_way_is_timed_and_charged_as_the_gateway_charged_it(serving: Serving) -> None:
    found = await run(serving)
    await serving.under_test.at_rest()
    assert [one.name for one in found] == ["baseline", "gateway", "streaming", "whole"]
    assert all((one.requests, one.failed) == (4, 0) for one in found)
    records = serving.under_test.recorder.records
    # A first request of each way is not counted.
    assert len(records) == 4 * 5
    assert [record.stream for record in records] == [False] * 10 + [True] * 10
    for one in found:
        assert one.output_tokens == 4 * 6
        uncached = one.prompt_tokens - one.cached_tokens
        counts = TokenCounts(uncached=uncached, cached=one.cached_tokens, output=24)
        # Each charge is rounded by itself.
        assert one.charged_nano == pytest.approx(charge_nano(PRICE, counts), abs=4)
        assert one.per_thousand_nano == one.charged_nano * 1_000 // 24
        assert one.card_nano == pytest.approx(one.seconds * 1_000, abs=1)
    assert found[2].prompt_tokens < found[0].prompt_tokens
    # Six tokens at 2 ms each: whoever streams sees the first long before the last.
    assert found[2].ttft_p50_us < found[2].latency_p50_us
    assert found[0].ttft_p50_us == found[0].latency_p50_us


async def test_on_compact_nodes_each_way_does_what_it_says(steady: Serving, tmp_path: Path) -> None:
    under_test, small = steady.under_test, make_small(tmp_path / "small")
    know(under_test, SHIPPED.name, small.name)
    setup = Setup(large=SHIPPED.name, small=small.name, requests=8, output_tokens=12, words=120)
    async with (
        compact_node(under_test, SHIPPED) as large_engine,
        compact_node(under_test, small) as small_engine,
    ):
        found = await run(steady, setup)
        await under_test.at_rest()
    baseline, gateway, streaming, whole = found
    assert [one.model for one in found] == [SHIPPED.name] * 3 + [small.name]
    assert all((one.requests, one.failed) == (8, 0) for one in found)
    # Batches: one at a time on the large model, several in a step on the small one.
    assert large_engine.widths.most == 1 < small_engine.widths.most
    assert all(one.under_way is not None and one.under_way <= 1 for one in found[:3])
    assert whole.under_way is not None and whole.under_way > 1
    # Cache: a prompt that begins with a new id finds nothing, one that keeps its beginning does.
    assert [one.cached_tokens for one in found[:3]] == [0, 0, 0]
    assert whole.cached_tokens > whole.prompt_tokens // 2
    assert whole.cached_tokens % BLOCK_TOKENS == 0
    assert streaming.prompt_tokens < 0.6 * min(baseline.prompt_tokens, gateway.prompt_tokens)
    assert streaming.ttft_p50_us < streaming.latency_p50_us
    # All of it as recorded: streams, and what was charged, but for each way's first request.
    records = under_test.recorder.records
    assert [record.stream for record in records] == [False] * 18 + [True] * 18
    charged: dict[str, list[int]] = defaultdict(list)
    for record in records:
        charged[record.model].append(record.cost_nano)
    assert whole.charged_nano == sum(charged[small.name][1:])
    firsts = (0, 9, 18)
    assert sum(one.charged_nano for one in found[:3]) == sum(
        nano for place, nano in enumerate(charged[SHIPPED.name]) if place not in firsts
    )


async def test_a_way_names_the_model_that_served_it(serving: Serving) -> None:
    under_test = serving.under_test
    know(under_test, MODEL, "large")
    rule = RouteRule(
        name="all", version=1, steps=(RuleStep(targets=(Target(model=MODEL, pool="default"),)),)
    )
    under_test.keys.current = msgspec.structs.replace(under_test.keys.current, rules=(rule,))
    found = await run(serving, msgspec.structs.replace(SETUP, large="large"))
    assert [(one.model, one.served) for one in found[:3]] == [("large", (MODEL,))] * 3
    assert [one.models for one in found] == [f"{MODEL} (asked for large)"] * 3 + [MODEL]
    # The time of the cards is that of the nodes that worked.
    assert all(one.card_nano for one in found)


def test_only_the_last_way_keeps_what_is_shared_in_front() -> None:
    for manner in MANNERS:
        first, second = (
            body_of(SETUP, manner, number)["messages"][0]["content"] for number in (1, 2)
        )
        assert (first == second) is manner.shared
        assert first.startswith("Request ") is not manner.shared


async def test_a_way_ends_when_its_time_is_over(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(range(10_000))
    monkeypatch.setattr("controlplane.insights.compare.monotonic_s", lambda: float(next(moments)))
    found = await run(serving, Setup(large=MODEL, small=MODEL, requests=50, seconds=4, words=5))
    assert all(1 <= one.requests <= 4 for one in found)


async def test_without_any_answer_it_says_what_the_gateway_said(bare: Serving) -> None:
    with pytest.raises(Refused, match="No node serves"):
        await run(bare)


def test_percentiles_are_values_that_were_seen() -> None:
    values = [5, 7, 9, 400]
    assert (rank(values, 0.5), rank(values, 0.95), rank([3], 0.95)) == (7, 400, 3)


@pytest.mark.usefixtures("database")
def test_the_command_names_what_is_wrong_before_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICE_API_KEY", raising=False)
    with pytest.raises(CommandError, match="--requests is 1 to"):
        call_command("sluice", "compare", "--requests", "100000")
    with pytest.raises(CommandError, match="--large: No node serves"):
        call_command("sluice", "compare")
    with pytest.raises(CommandError, match="SLUICE_API_KEY"):
        call_command("sluice", "preflight", "-", "--url", "http://127.0.0.1:1")


@pytest.mark.usefixtures("database")
def test_pages_and_api_say_what_to_do_before_the_first_one() -> None:
    cast = make_cast()
    client = signed_in(cast.alice)
    page = client.get("/insights/comparison").content.decode()
    assert "manage.py sluice compare" in page
    told: Any = client.get(f"/api/insights/organizations/{cast.acme.id}/comparisons").json()
    assert (told["object"], told["data"], told["has_more"]) == ("list", [], False)
