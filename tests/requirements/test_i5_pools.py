"""I5: pools have nodes of their own; no request lands on one of another pool, task or tokenizer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from controlplane.gateway.nodes.models import Approval
from inference.contract.frames import Job
from inference.engines.echo import EchoEngine, EchoOptions
from inference.node.assets import ModelAssets
from inference.node.options import NodeOptions
from inference.node.service import Node
from tests.gateway.nodes.test_approval import foreign_model
from tests.support.encoders import ENCODER, PATH, add_encoder, encoder_node, make_encoder
from tests.support.fleet import MODEL
from tests.support.gateway import GatewayUnderTest
from tests.support.nodes import let_in
from tests.support.serving import CHAT_PATH, Serving
from tests.support.waiting import until

ROUNDS = 10


async def test_each_task_is_served_by_its_own_nodes(serving: Serving, tmp_path: Path) -> None:
    under_test = serving.under_test
    add_encoder(under_test)
    async with encoder_node(under_test, make_encoder(tmp_path / "encoder"), name="encoder"):
        await until(lambda: under_test.fleet.candidates(ENCODER))
        body = {"model": ENCODER, "input": ["abc", "d"]}
        embedded = await asyncio.gather(
            *(serving.client.post(PATH, json=body) for _ in range(ROUNDS))
        )
        chatted = await asyncio.gather(*(serving.chat() for _ in range(ROUNDS)))
        assert {answer.headers["x-sluice-node"] for answer in embedded} == {"encoder"}
        assert {answer.headers["x-sluice-node"] for answer in chatted} == {"node-1"}
        pools = {(each.operation, each.pool) for each in under_test.recorder.records}
        assert pools == {("embedding", "embeddings"), ("chat", "default")}


async def test_a_model_of_the_other_task_is_refused_by_name(serving: Serving) -> None:
    add_encoder(serving.under_test)
    turns = [{"role": "user", "content": "a"}]
    for path, body in (
        (PATH, {"model": MODEL, "input": "a"}),
        (CHAT_PATH, {"model": ENCODER, "messages": turns}),
    ):
        answer = await serving.client.post(path, json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (
            400, "model_task_mismatch", "model",
        )  # fmt: skip
    assert not serving.under_test.ledger.held


async def test_a_node_of_another_pool_gets_no_job_of_the_model(serving: Serving) -> None:
    under_test, engine = serving.under_test, Counting(serving.model, EchoOptions())
    async with joined(under_test, engine, ModelAssets(serving.model), pool="gold"):
        await until(lambda: "stranger" in under_test.fleet.nodes())
        answers = [await serving.chat() for _ in range(ROUNDS)]
        assert {answer.headers["x-sluice-node"] for answer in answers} == {"node-1"}
        assert engine.jobs == 1, "its own proof at the start"


async def test_a_foreign_tokenizer_gets_no_job(serving: Serving, tmp_path: Path) -> None:
    under_test = serving.under_test
    approval = Approval(digests=frozenset({ModelAssets(serving.model).digest}))
    under_test.fleet.approve({MODEL: approval})
    (tmp_path / "foreign").mkdir()
    foreign = foreign_model(tmp_path / "foreign")
    engine, assets = Counting(foreign, EchoOptions()), ModelAssets(foreign)
    async with joined(under_test, engine, assets, pool="default"):
        await until(lambda: "stranger" in under_test.fleet.nodes())
        answers = await asyncio.gather(*(serving.chat() for _ in range(ROUNDS)))
        assert {answer.headers["x-sluice-node"] for answer in answers} == {"node-1"}
        assert engine.jobs == 1, "its own proof at the start"
        under_test.fleet.approve({MODEL: Approval(digests=frozenset({assets.digest}))})
        await until(lambda: under_test.fleet.candidates(MODEL))
        assert (await serving.complete()).headers["x-sluice-node"] == "stranger"


class Counting(EchoEngine):
    """Counts what it is asked."""

    jobs = 0

    def submit(self, job: Job) -> None:
        """Count and take it."""
        self.jobs += 1
        super().submit(job)


@contextlib.asynccontextmanager
async def joined(
    under_test: GatewayUnderTest, engine: EchoEngine, assets: ModelAssets, *, pool: str
) -> AsyncIterator[None]:
    """A node named `stranger`, which may or may not serve."""
    options = NodeOptions(
        gateways=(under_test.fleet_url,),
        name="stranger",
        pool=pool,
        credential=let_in(under_test, "stranger"),
    )
    node = Node(engine, assets, options)
    await node.start()
    try:
        yield
    finally:
        await node.close()
