"""A server behind a node whose model's tokenizer is known: the request goes on as it is, its tokens
are counted and looked for here, and the server's count is the bill.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from controlplane.kernel.price import TokenCounts
from controlplane.kernel.receipt import Receipt, read_receipt
from inference.contract.blocks import chain_hashes
from inference.text.chat import ChatMessage
from tests.support.fleet import MODEL
from tests.support.publisher import publisher, stored
from tests.support.relay import Relay, relaying
from tests.support.serving import Serving
from tests.support.upstream import text_chunk, usage_chunk
from tests.support.waiting import until

SIZE = 16
LONG = [{"role": "user", "content": "abcd" * 50}]
METRICS = f'vllm:cache_config_info{{block_size="{SIZE}",num_gpu_blocks="64"}} 1.0'


@pytest.fixture
async def relay(bare: Serving) -> AsyncIterator[Relay]:
    async with relaying(bare, folder=bare.model) as made:
        await until(lambda: bare.under_test.fleet.candidates(MODEL))
        yield made


async def answered(relay: Relay, cached: int = 0, **fields: Any) -> tuple[Any, Receipt]:
    """Ask the long prompt, let the server answer; what it got, and the receipt."""
    asked, exchange = await relay.ask(messages=LONG, **fields)
    await exchange.answer(text_chunk("ok", finish="stop"), usage_chunk(240, 1, cached=cached))
    response = await asked
    assert response.status_code == 200, response.text
    records = relay.under_test.recorder.records
    done = len(records)
    await until(lambda: len(relay.under_test.ledger.settled) >= done)
    return exchange.body, read_receipt(records[-1].receipt)


async def test_a_prompt_beyond_the_window_never_reaches_the_server(relay: Relay) -> None:
    messages = [{"role": "user", "content": "a" * 5000}]
    answer = await relay.serving.chat(messages=messages)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert relay.upstream.exchanges.empty()


async def test_the_server_gets_messages_and_its_count_is_charged(relay: Relay) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    body, receipt = await answered(relay, tools=tools)
    assert body["messages"] == LONG and body["tools"] == tools and "prompt" not in body
    assert relay.last_counts == TokenCounts(uncached=240, cached=0, output=1)
    assert relay.last_source == "node"
    assert receipt.index == "approximate"


async def test_what_was_sent_is_expected_there_and_a_miss_is_explained(relay: Relay) -> None:
    await answered(relay)
    _, again = await answered(relay, cached=192)
    assert (again.index, again.predicted_cached_tokens) == ("approximate", 192)
    assert again.delivered_cached_tokens == 192
    _, missed = await answered(relay)
    assert missed.miss is not None and missed.miss.cause == "not_kept"


async def test_without_a_tokenizer_a_beginning_is_known_by_its_bytes(bare: Serving) -> None:
    async with relaying(bare) as relay:
        await answered(relay)
        _, again = await answered(relay)
        assert again.index == "approximate" and again.predicted_cached_tokens >= 48
        assert again.miss is None


@contextlib.asynccontextmanager
async def published(bare: Serving, folder: Any) -> AsyncIterator[tuple[Relay, Any]]:
    async with publisher() as events:

        def as_vllm(upstream: Any) -> None:
            upstream.listed[0]["owned_by"] = "vllm"
            upstream.answers["/metrics"] = (200, METRICS)

        options = {"folder": folder, "kv_events": events.addresses}
        async with relaying(bare, prepare=as_vllm, **options) as relay:
            await until(lambda: bare.under_test.fleet.candidates(MODEL))
            yield relay, events


async def test_cache_events_make_the_index_exact(bare: Serving) -> None:
    async with published(bare, bare.model) as (relay, events):
        fleet = relay.under_test.fleet
        await until(lambda: not fleet.index(SIZE).unknown)
        _, first = await answered(relay)
        assert (first.index, first.available_tokens) == ("exact", 0)
        (key,) = relay.under_test.keys.current.projects.values()
        text = fleet.models()[MODEL].text
        assert text is not None
        prompt = text.render([ChatMessage(role="user", content="abcd" * 50)], (), {})
        draft = text.draft(prompt, add_special=False, owner=b"")
        draft.encode()
        tokens = draft.ids()[: 3 * SIZE]
        event = stored([1, 2, 3], tokens, size=SIZE, salt=key.salt)
        await events.publish(event)
        chain = chain_hashes(tokens, SIZE, key.salt)
        await until(lambda: bool(fleet.index(SIZE).cached_blocks(chain)))
        _, second = await answered(relay, cached=48)
        assert (second.index, second.available_tokens) == ("exact", 48)
        # What the events do not hold is not believed, though it was sent.
        assert second.candidates[0].cached_tokens == 48
        await events.publish({"type": "Strange"})
        await until(lambda: bool(fleet.index(SIZE).unknown))
        _, third = await answered(relay)
        assert third.index == "approximate"


async def test_an_adapter_is_a_model_whose_prompts_are_cached_apart(bare: Serving) -> None:
    def with_adapter(upstream: Any) -> None:
        upstream.listed += [{"id": "poet", "parent": MODEL, "root": "/adapters/poet"}]
        upstream.listed[0]["owned_by"] = "vllm"

    keys = bare.under_test.keys
    poet = msgspec.structs.replace(keys.current.models[MODEL], name="poet")
    models = {**keys.current.models, "poet": poet}
    keys.current = msgspec.structs.replace(
        keys.current, models=models, model_names=frozenset(models)
    )
    async with relaying(bare, prepare=with_adapter, folder=bare.model) as relay:
        await until(lambda: bare.under_test.fleet.candidates("poet"))
        first, _ = await answered(relay)
        other, receipt = await answered(relay, model="poet")
        assert (other["model"], receipt.predicted_cached_tokens) == ("poet", 0)
        assert other["cache_salt"] != first["cache_salt"]
        _, again = await answered(relay, cached=192, model="poet")
        assert again.predicted_cached_tokens == 192


async def test_log_probabilities_come_by_token_ids(bare: Serving) -> None:
    async with published(bare, bare.model) as (relay, _):
        asked, exchange = await relay.ask(logprobs=True, top_logprobs=1)
        assert exchange.body["return_tokens_as_token_ids"] is True
        text = relay.under_test.fleet.models()[MODEL].text
        assert text is not None
        draft = text.draft("ok", add_special=False, owner=b"")
        draft.encode()
        names = [f"token_id:{token}" for token in draft.ids()]
        scores = [
            {"token": name, "logprob": -0.5, "top_logprobs": [{"token": name, "logprob": -0.5}]}
            for name in names
        ]
        # The one that ends the answer has no text.
        end = {"token": "token_id:0", "logprob": -0.1, "top_logprobs": []}
        chunk = text_chunk("ok", finish="stop")
        chunk["choices"][0]["logprobs"] = {"content": [*scores, end]}
        await exchange.answer(chunk, usage_chunk(9, 3))
        told = (await asked).json()["choices"][0]["logprobs"]["content"]
        assert "".join(entry["token"] for entry in told) == "ok"
        assert {entry["top_logprobs"][0]["logprob"] for entry in told} == {-0.5}


async def test_log_probabilities_without_ids_are_refused_by_name(relay: Relay) -> None:
    answer = await relay.serving.chat(logprobs=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "logprobs"
