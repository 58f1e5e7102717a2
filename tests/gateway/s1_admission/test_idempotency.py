"""`Idempotency-Key` on inference: a retry gets the first answer or is told why; charged once."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from controlplane.gateway.s1_admission import claim
from inference.contract.frames import Job
from tests.support.fleet import MODEL
from tests.support.nodes import HandNode, hand_node
from tests.support.ports import make_key
from tests.support.serving import CHAT_PATH, Serving
from tests.support.waiting import until

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "abcd"}], "max_tokens": 6}
REPLAYED = "x-sluice-idempotent-replay"


async def send(
    serving: Serving,
    key: str = "one",
    path: str = CHAT_PATH,
    authorization: str | None = None,
    **fields: Any,
) -> httpx2.Response:
    headers = {"idempotency-key": key}
    if authorization:
        headers["authorization"] = f"Bearer {authorization}"
    return await serving.client.post(path, json={**BODY, **fields}, headers=headers)


async def begin(node: HandNode) -> Job:
    """A first token, and no more."""
    job = await node.job()
    await node.answer(job, "x")
    return job


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_retry_gets_the_same_answer_and_is_charged_once(
    serving: Serving, stream: bool
) -> None:
    first = await send(serving, stream=stream)
    second = await send(serving, stream=stream)
    assert (first.status_code, second.status_code) == (200, 200)
    assert second.content == first.content
    assert REPLAYED not in first.headers and second.headers[REPLAYED] == "true"
    assert second.headers["content-type"] == first.headers["content-type"]
    assert second.headers["x-request-id"] != first.headers["x-request-id"]
    assert len(serving.under_test.ledger.settled) == 1
    assert [one.status for one in serving.under_test.recorder.records] == [200, 200]
    assert serving.under_test.recorder.records[1].cost_nano == 0


async def test_text_completions_too_and_each_route_for_itself(serving: Serving) -> None:
    body = {"model": MODEL, "prompt": "abcd", "max_tokens": 6}
    headers = {"idempotency-key": "one"}
    path = "/v1/completions"
    first = await serving.client.post(path, json=body, headers=headers)
    assert (await serving.client.post(path, json=body, headers=headers)).content == first.content
    assert REPLAYED not in (await send(serving)).headers
    assert len(serving.under_test.ledger.settled) == 2


async def test_the_same_body_in_another_shape_is_another_request(serving: Serving) -> None:
    chat = await send(serving)
    message = await send(serving, path="/v1/messages")
    again = await send(serving, path="/v1/messages")
    assert (chat.json()["object"], message.json()["type"]) == ("chat.completion", "message")
    assert REPLAYED not in message.headers and again.content == message.content
    assert len(serving.under_test.ledger.settled) == 2


async def test_another_body_is_a_mismatch_and_another_key_another_request(
    serving: Serving,
) -> None:
    await send(serving)
    assert code(await send(serving, max_tokens=5)) == (422, "idempotency_mismatch")
    assert (await send(serving, "two")).status_code == 200
    serving.under_test.keys.keys["sk_bob"] = make_key(id="c" * 32)
    assert REPLAYED not in (await send(serving, authorization="sk_bob")).headers
    assert len(serving.under_test.ledger.settled) == 3


async def test_a_twin_is_told_to_wait(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model) as node:
        running = asyncio.create_task(send(bare))
        job = await node.job()
        twin = await send(bare)
        assert code(twin) == (409, "idempotency_in_progress")
        assert twin.headers["retry-after"] == "1"
        await node.answer(job, "x", finish="stop")
        first = await running
        assert (await send(bare)).content == first.content
        await bare.under_test.at_rest()
    assert len(bare.under_test.ledger.held) == 1


async def test_what_was_refused_stores_nothing_and_may_be_tried_again(bare: Serving) -> None:
    assert (await send(bare, max_tokens=0)).status_code == 400
    assert bare.under_test.claims.taken == {}
    bare.under_test.ledger.away = True
    assert code(await send(bare)) == (503, "ledger_unavailable")
    assert bare.under_test.claims.taken == {}
    bare.under_test.ledger.away = False
    assert code(await send(bare)) == (503, "no_node_available")
    await until(lambda: not bare.under_test.claims.taken)
    async with hand_node(bare.under_test, bare.model) as node:
        running = asyncio.create_task(send(bare))
        await node.answer(await node.job(), "x", finish="stop")
        assert (await running).status_code == 200
        await bare.under_test.at_rest()


async def test_an_answer_that_broke_off_is_not_charged_twice(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model) as node:
        begun = asyncio.create_task(begin(node))
        async with bare.client.stream(
            "POST", CHAT_PATH, json={**BODY, "stream": True}, headers={"idempotency-key": "one"}
        ) as answer:
            await anext(answer.aiter_bytes())
        await until(lambda: node.cancelled)
        await node.answer(await begun, finish="cancelled")
        await until(lambda: bare.under_test.claims.done)
        assert code(await send(bare, stream=True)) == (409, "idempotency_charged")
        await bare.under_test.at_rest()
    assert len(bare.under_test.ledger.settled) == 1


async def test_an_answer_beyond_the_bound_is_not_kept(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "ANSWER_BYTES_MAX", 300)
    first = await send(serving, stream=True)
    assert len(first.content) > 300
    refused = await send(serving, stream=True)
    assert code(refused) == (409, "idempotency_charged")
    request = first.headers["x-request-id"]
    assert request in refused.json()["error"]["message"]


async def test_a_claim_that_another_took_over_serves_nothing(serving: Serving) -> None:
    serving.under_test.claims.stolen = True
    assert code(await send(serving)) == (409, "idempotency_in_progress")
    await serving.under_test.at_rest()
    assert [one.amount_nano for one in serving.under_test.ledger.settled.values()] == [0]


async def test_without_a_place_for_claims_it_is_refused_and_others_are_not(
    serving: Serving,
) -> None:
    serving.under_test.claims.away = True
    assert code(await send(serving)) == (503, "ledger_unavailable")
    assert (await serving.chat()).status_code == 200


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_key_that_cannot_be_used_is_named(bare: Serving, key: str) -> None:
    answer = await send(bare, key)
    assert answer.json()["error"]["param"] == "idempotency-key"
