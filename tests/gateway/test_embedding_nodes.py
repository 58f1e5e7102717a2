"""Nodes that embed and nodes that generate: who gets what, and what is believed of an answer."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect

from inference.contract.frames import Job, ModelOffer, Output, Timing, Usage
from inference.contract.parts import Vectors
from inference.node.assets import ModelAssets
from tests.support.encoders import (
    CONTEXT,
    ENCODER,
    HIDDEN,
    PIECES,
    POOL,
    SHORT,
    Embedding,
    add_encoder,
    encoder_node,
    make_encoder,
)
from tests.support.fleet import make_hello, make_step
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.nodes import FRAME_BYTES, HandNode, let_in
from tests.support.waiting import until

TIMING = Timing(queue_us=1, prefill_us=2, decode_us=0, held_us=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
async def bare(folder: Path) -> AsyncIterator[Embedding]:
    under_test = GatewayUnderTest()
    add_encoder(under_test)
    async with running_gateway(under_test) as client:
        yield Embedding(under_test, client, folder)
        await under_test.at_rest()


@contextlib.asynccontextmanager
async def hand_encoder(
    bare: Embedding,
    *,
    name: str = "hand",
    pool: str = POOL,
    dimensions: tuple[int, ...] = (HIDDEN, SHORT),
) -> AsyncIterator[HandNode]:
    """A node whose frames a test writes, offering the encoder."""
    offer = ModelOffer(
        name=ENCODER, digest=ModelAssets(bare.model).digest, context_window=CONTEXT,
        vocab_size=len(PIECES), dimensions=list(dimensions),
    )  # fmt: skip
    headers = {"authorization": f"Bearer {let_in(bare.under_test, name)}"}
    url = bare.under_test.fleet_url
    async with connect(url, additional_headers=headers, max_size=FRAME_BYTES) as socket:
        node = HandNode(socket, bare.model)
        listening = asyncio.create_task(node.listen())
        await node.send(make_hello(node=name, pool=pool, models=[offer], block_size=1, kv_blocks=0))
        try:
            await bare.served()
            yield node
        finally:
            await socket.close()
            await listening


def answer_of(job: Job, places: list[int], *, finish: str | None, **changes: Any) -> Output:
    """Vectors of some inputs; `changes` make it wrong."""
    output = Output(
        request=job.request,
        choice=0,
        tokens=[],
        usage=Usage(
            prompt_tokens=sum(len(job.inputs[place]) for place in places),
            cached_tokens=0,
            completion_tokens=0,
        ),
        timing=TIMING,
        finish=finish,
        vectors=Vectors(places=places, data=array("f", [1.0] * HIDDEN * len(places)).tobytes()),
    )
    return msgspec.structs.replace(output, **changes)


async def test_p7_a_lost_node_is_replaced_though_it_had_begun(bare: Embedding) -> None:
    """P7: nothing has reached the client before the last vector, so the whole job starts anew."""
    async with hand_encoder(bare) as node:
        asking = asyncio.create_task(bare.embed(["a", "b"]))
        job = await node.job()
        await node.send(make_step(answer_of(job, [0], finish=None)))
        async with encoder_node(bare.under_test, bare.model, name="other"):
            await until(lambda: len(bare.under_test.fleet.candidates(ENCODER)) == 2)
            await node.socket.close()
            answer = await asking
    assert answer.status_code == 200 and answer.headers["x-sluice-node"] == "other"
    (settled,) = bare.under_test.ledger.settled.values()
    assert settled.counts.uncached == 6


async def test_p3_a_client_that_leaves_is_billed_for_what_was_embedded(bare: Embedding) -> None:
    async with hand_encoder(bare) as node:
        asking = asyncio.create_task(bare.embed(["a", "b", "c"]))
        job = await node.job()
        await node.send(make_step(answer_of(job, [1], finish=None)))
        await until(
            lambda: any(
                each.jobs.oldest_dispatch_s() for each in bare.under_test.fleet.nodes().values()
            )
        )
        asking.cancel()
        await until(lambda: node.cancelled == [job.request])
        usage = Usage(prompt_tokens=3, cached_tokens=0, completion_tokens=0)
        ended = answer_of(job, [], finish="cancelled", vectors=None, usage=usage)
        await node.send(make_step(ended))
        await bare.under_test.at_rest()
    (settled,) = bare.under_test.ledger.settled.values()
    assert settled.counts.uncached == 3
    assert bare.under_test.recorder.records[0].status == 499


@pytest.mark.parametrize("leaves", [True, False])
async def test_scores_that_never_come_leave_nothing_open(bare: Embedding, leaves: bool) -> None:
    body = {"model": ENCODER, "query": "a", "documents": ["b", "c"]}
    async with hand_encoder(bare) as node:
        asking = asyncio.create_task(bare.client.post("/v1/rerank", json=body))
        job = await node.job()
        await node.send(make_step(answer_of(job, [0], finish=None)))
        await until(lambda: bare.under_test.fleet.reports.live_calls == 1)
        if leaves:
            asking.cancel()
            await until(lambda: node.cancelled == [job.request])
            usage = Usage(prompt_tokens=3, cached_tokens=0, completion_tokens=0)
            ended = answer_of(job, [], finish="cancelled", vectors=None, usage=usage)
            await node.send(make_step(ended))
        else:
            await node.socket.close()
            assert (await asking).status_code == 503
        await bare.under_test.at_rest()
    (record,) = bare.under_test.recorder.records
    assert record.status == (499 if leaves else 503)


WRONG: dict[str, dict[str, Any]] = {
    "short data": {"vectors": Vectors(places=[0, 1], data=b"\0" * HIDDEN)},
    "not finite": {
        "vectors": Vectors(places=[0, 1], data=array("f", [float("nan")] * HIDDEN * 2).tobytes())
    },
    "foreign place": {
        "vectors": Vectors(places=[0, 2], data=array("f", [1.0] * HIDDEN * 2).tobytes())
    },
    "a place twice": {
        "vectors": Vectors(places=[0, 0], data=array("f", [1.0] * HIDDEN * 2).tobytes())
    },
    "more than was sent": {"usage": Usage(prompt_tokens=7, cached_tokens=0, completion_tokens=0)},
    "output tokens": {"usage": Usage(prompt_tokens=6, cached_tokens=0, completion_tokens=1)},
    "text": {"tokens": [1]},
    "no end": {"finish": None},
    "another end": {"finish": "done"},
    "the end before the last vector": {
        "finish": "length",
        "usage": Usage(prompt_tokens=3, cached_tokens=0, completion_tokens=0),
        "vectors": Vectors(places=[0], data=array("f", [1.0] * HIDDEN).tobytes()),
    },
    "vectors of nothing": {
        "finish": None,
        "usage": Usage(prompt_tokens=0, cached_tokens=0, completion_tokens=0),
        "vectors": Vectors(places=[], data=b""),
    },
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
async def test_vectors_that_cannot_be_are_not_passed_on(
    bare: Embedding, changes: dict[str, Any]
) -> None:
    async with hand_encoder(bare) as node:
        asking = asyncio.create_task(bare.embed(["a", "b"]))
        job = await node.job()
        await node.send(make_step(answer_of(job, [0, 1], **{"finish": "stop", **changes})))
        answer = await asking
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_is_overloaded")
        await until(lambda: node.cancelled == [job.request])
    (settled,) = bare.under_test.ledger.settled.values()
    assert settled.amount_nano == 0


async def test_a_repeated_vector_is_not_believed(bare: Embedding) -> None:
    async with hand_encoder(bare) as node:
        asking = asyncio.create_task(bare.embed(["a", "b"]))
        job = await node.job()
        await node.send(make_step(answer_of(job, [0], finish=None)))
        await node.send(make_step(answer_of(job, [0], finish=None)))
        assert (await asking).status_code == 503


@pytest.mark.parametrize("offered", [{"pool": "default"}, {"dimensions": ()}])
async def test_i5_a_node_of_another_pool_or_task_gets_nothing(
    bare: Embedding, offered: dict[str, Any]
) -> None:
    """I5: embeddings run on their own nodes, whatever else offers the name."""
    async with hand_encoder(bare, **offered) as node:
        answer = await bare.embed("a")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_node_available")
        assert node.jobs == []
    (settled,) = bare.under_test.ledger.settled.values()
    assert settled.amount_nano == 0


async def test_a_full_node_makes_the_rest_wait(bare: Embedding) -> None:
    async with encoder_node(bare.under_test, bare.model, running_max=1):
        await bare.served()
        answers = await asyncio.gather(*(bare.embed(["a" * 9] * 30) for _ in range(6)))
    assert [answer.status_code for answer in answers] == [200] * 6
