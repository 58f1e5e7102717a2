"""The official Node client against the gateway, as a process of its own."""

from __future__ import annotations

import asyncio
import json

from controlplane.gateway.ports import Allowance, Room
from controlplane.kernel.ids import REQUEST, public_id, uuid_of
from tests.support.fleet import MODEL
from tests.support.node_client import run
from tests.support.nodes import hand_node
from tests.support.serving import Serving
from tests.support.shipped_node import shipped_node


async def test_answers_streams_and_error_classes(serving: Serving) -> None:
    seen = await run("talk.mjs", serving)
    assert seen["whole"] == seen["streamed"] == seen["completion"] == "abcdab"
    assert seen["requestID"] == public_id(REQUEST, uuid_of(seen["requestID"], REQUEST))
    assert seen["usage"]["total_tokens"] == 10
    assert seen["models"] == [MODEL]
    assert (seen["badField"]["name"], seen["badField"]["param"]) == ("BadRequestError", "n")
    assert seen["badField"]["requestID"]
    assert seen["badKey"]["name"] == "AuthenticationError"
    assert (seen["badModel"]["name"], seen["badModel"]["code"]) == (
        "NotFoundError", "model_not_found",
    )  # fmt: skip


async def test_short_wait_is_retried_and_a_long_one_is_not(serving: Serving) -> None:
    limiter = serving.under_test.limiter
    for wait_s, requests in ((0.05, 3), (3600.0, 1)):
        limiter.taken.clear()
        limiter.answer = Allowance(
            allowed=False, refused_by=Room("requests", "key", 1, 0, wait_s), retry_after_s=wait_s
        )
        seen = await run("refused.mjs", serving)
        assert seen == {"name": "RateLimitError", "code": "rate_limit_exceeded"}
        assert len(limiter.taken) == requests


async def test_stream_that_breaks_raises(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model) as node:
        running = asyncio.create_task(run("refused.mjs", bare))
        await node.answer(await node.job(), "abc")
        await asyncio.sleep(0.1)
        await node.socket.close()
        assert (await running)["code"] == "node_lost"
        await bare.under_test.at_rest()


async def test_tools_and_a_schema(bare: Serving) -> None:
    async with shipped_node(bare.under_test):
        seen = await run("tools.mjs", bare)
    for made in (seen["whole"], seen["streamed"]):
        (call,) = made["message"]["tool_calls"]
        assert (made["finish_reason"], call["type"]) == ("tool_calls", "function")
        assert call["function"]["name"] == "find" and call["id"]
        assert json.loads(call["function"]["arguments"])["city"] in ("Rome", "Oslo")
    assert json.loads(seen["formatted"]["message"]["content"])["city"] in ("Rome", "Oslo")
