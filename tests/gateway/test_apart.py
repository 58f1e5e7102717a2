"""Prefill on one node and decode on another: what goes between them, what is charged, and that any
failure of the first costs the client nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.kernel.price import TokenCounts
from controlplane.kernel.receipt import Receipt, read_receipt
from controlplane.kernel.spans import INDEX, unpack_spans
from tests.support.fleet import MODEL
from tests.support.relay import answer_probe
from tests.support.remote import remote_node
from tests.support.serving import Serving
from tests.support.upstream import Exchange, HandUpstream, hand_upstream, text_chunk, usage_chunk
from tests.support.waiting import until

TAKES_S = 0.05
LAYERS = ("", ".prefill", ".decode")
LONG = [{"role": "user", "content": "abcd" * 300}]
PARAMS = {"do_remote_prefill": True, "remote_host": "10.0.0.1", "remote_block_ids": [[1, 2]]}
HANDED_OVER = {
    "choices": [{"index": 0, "finish_reason": "length", "message": {"content": "x"}}],
    "usage": {
        "prompt_tokens": 1200, "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 320},
    },
    "kv_transfer_params": PARAMS,
}  # fmt: skip


class Pair:
    """A gateway in front of a node that prefills and one that decodes."""

    def __init__(self, serving: Serving, prefill: HandUpstream, decode: HandUpstream) -> None:
        self.serving = serving
        self.under_test = serving.under_test
        self.prefill = prefill
        self.decode = decode

    def ask(self, **fields: Any) -> asyncio.Task[Any]:
        """Begin a chat."""
        return asyncio.create_task(self.serving.chat(**{"messages": LONG, **fields}))

    async def answered(self, asked: asyncio.Task[Any]) -> tuple[Exchange, Receipt, TokenCounts]:
        """Let the second server answer; what that was sent, the receipt and the bill."""
        exchange = await self.decode.next()
        await exchange.answer(text_chunk("ok", finish="stop"), usage_chunk(1200, 2, cached=1184))
        response = await asked
        assert response.status_code == 200, response.text
        assert response.headers["x-sluice-node"] == "decode"
        await self.under_test.at_rest()
        receipt = read_receipt(self.under_test.recorder.records[-1].receipt)
        return exchange, receipt, list(self.under_test.ledger.settled.values())[-1].counts


@pytest.fixture
async def pair(bare: Serving) -> AsyncIterator[Pair]:
    async with contextlib.AsyncExitStack() as stack:
        servers = {}
        for role in ("prefill", "decode"):
            upstream = servers[role] = await stack.enter_async_context(hand_upstream())
            upstream.listed = [{"id": MODEL, "context_window": 4096, "owned_by": "vllm"}]
            probed = asyncio.create_task(answer_probe(upstream))
            await stack.enter_async_context(
                remote_node(bare.under_test, upstream.url, name=role, kv_role=role)
            )
            await probed
        await until(lambda: bare.under_test.fleet.candidates(MODEL))
        yield Pair(bare, **servers)
        await bare.under_test.at_rest()


async def test_what_one_server_hands_over_goes_to_the_other(pair: Pair) -> None:
    asked = pair.ask()
    first = await pair.prefill.next()
    assert first.body["max_tokens"] == 1 and not first.body["stream"]
    assert "stream_options" not in first.body
    assert first.body["kv_transfer_params"]["do_remote_decode"] is True
    assert pair.decode.exchanges.empty()
    await asyncio.sleep(TAKES_S)
    await first.refuse(200, HANDED_OVER)
    second, receipt, counts = await pair.answered(asked)
    assert second.body["kv_transfer_params"] == PARAMS and second.body["stream"]
    assert second.body["cache_salt"] == first.body["cache_salt"]
    assert second.body["messages"] == first.body["messages"] == LONG
    # The prompt is charged once, as the first server computed it.
    assert counts == TokenCounts(uncached=880, cached=320, output=2)
    assert (receipt.prefill, receipt.node) == ("prefill", "decode")
    assert receipt.delivered_cached_tokens == 320 and not receipt.attempts
    # Its time is that of the prompt, wherever that was computed.
    spans = unpack_spans(pair.under_test.recorder.records[-1].spans)
    whole, prefill, decode = (spans[INDEX[f"s5_infer{layer}"]] for layer in LAYERS)
    assert TAKES_S * 1e6 <= prefill[1] <= whole[1]
    assert prefill[0] + prefill[1] == decode[0]
    assert len(pair.under_test.ledger.settled) == 1


FAILURES: dict[str, tuple[int, dict[str, Any]]] = {
    "full": (503, {"error": {"message": "busy"}}),
    "another kind of server": (200, {key: HANDED_OVER[key] for key in ("choices", "usage")}),
    "broken": (200, {"usage": 7, "kv_transfer_params": PARAMS}),
    "a fault of the request's": (400, {"error": {"message": "no"}}),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_prefill_that_fails_is_done_where_it_is_decoded(pair: Pair, name: str) -> None:
    asked = pair.ask()
    await (await pair.prefill.next()).refuse(*FAILURES[name])
    second, receipt, counts = await pair.answered(asked)
    assert "kv_transfer_params" not in second.body
    assert counts == TokenCounts(uncached=16, cached=1184, output=2)
    assert [each.node for each in receipt.attempts] == ["prefill"] and not receipt.prefill


async def test_a_server_that_goes_away_is_no_loss_either(pair: Pair) -> None:
    asked = pair.ask()
    await pair.prefill.next()
    pair.prefill.hang_up()
    second, _, _ = await pair.answered(asked)
    assert "kv_transfer_params" not in second.body


async def test_what_is_not_worth_it_or_not_possible_is_done_whole(pair: Pair) -> None:
    turns = [{"role": "user", "content": "abcd"}]
    for turned, choices in ((turns, 1), (LONG, 2)):
        asked = pair.ask(messages=turned, n=choices)
        exchange = await pair.decode.next()
        assert "kv_transfer_params" not in exchange.body
        chunks = [text_chunk("ok", finish="stop", choice=each) for each in range(choices)]
        await exchange.answer(*chunks, usage_chunk(9, 2))
        assert (await asked).status_code == 200
    assert pair.prefill.exchanges.empty()


async def test_a_client_that_leaves_ends_the_prefill(pair: Pair) -> None:
    asked = pair.ask()
    first = await pair.prefill.next()
    asked.cancel()
    await asyncio.wait_for(first.closed.wait(), 10.0)
    await pair.under_test.at_rest()
    assert pair.decode.exchanges.empty()
    (charged,) = pair.under_test.ledger.settled.values()
    assert charged.counts == TokenCounts(uncached=0, cached=0, output=0)


async def test_a_node_that_only_prefills_is_never_given_whole_requests(bare: Serving) -> None:
    async with hand_upstream() as upstream:
        upstream.listed = [{"id": MODEL, "context_window": 4096}]
        probed = asyncio.create_task(answer_probe(upstream))
        async with remote_node(bare.under_test, upstream.url, kv_role="prefill"):
            await probed
            answer = await bare.chat(messages=LONG)
            assert answer.status_code == 503
            assert upstream.exchanges.empty()
