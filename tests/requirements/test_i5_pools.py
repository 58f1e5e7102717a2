"""I5: embeddings have nodes of their own; no request lands on a node of the other task."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.encoders import ENCODER, PATH, add_encoder, encoder_node, make_encoder
from tests.support.fleet import MODEL, until
from tests.support.serving import CHAT_PATH, Serving

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
