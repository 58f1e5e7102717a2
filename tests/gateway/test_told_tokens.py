"""A server attached by its address alone tells the token ids of prompts: they are what the window,
the hold and the prefix index go by, as with a tokenizer of the gateway's own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from controlplane.gateway.nodes import tokens
from controlplane.gateway.nodes.limits import TOLD_TOKENS
from controlplane.gateway.nodes.measured.times import LearnedBound
from controlplane.gateway.nodes.tokens import TokenQuestions
from controlplane.kernel.receipt import Receipt, read_receipt
from inference.contract.blocks import chain_hashes
from inference.contract.codec import decode_from_gateway
from inference.contract.tokens import Tokenize, Tokens, pack_ids
from tests.support.fleet import MODEL
from tests.support.publisher import publisher, stored
from tests.support.relay import Relay, relaying
from tests.support.serving import Serving
from tests.support.upstream import HandUpstream, text_chunk, usage_chunk
from tests.support.waiting import until

SIZE = 16
LONG = [{"role": "user", "content": "abcd" * 50}]
METRICS = f'vllm:cache_config_info{{block_size="{SIZE}",num_gpu_blocks="64"}} 1.0'


def ids_of(text: str) -> list[int]:
    """As the hand-made server reads a text: its bytes."""
    return list(text.encode())


def as_vllm(upstream: HandUpstream) -> None:
    """It tells ids of prompts and of the contents of chats."""

    def told(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        turns = body.get("messages", [])
        text = body.get("prompt", "".join(turn["content"] for turn in turns))
        return 200, {"tokens": ids_of(text)}

    upstream.listed[0]["owned_by"] = "vllm"
    upstream.answers |= {"/metrics": (200, METRICS), "/tokenize": told}


def asked_of(relay: Relay) -> int:
    """How often the server was asked, but for the trial at the start."""
    return sum(path == "/tokenize" for path, _ in relay.upstream.asked) - 1


@pytest.fixture
async def relay(bare: Serving) -> AsyncIterator[Relay]:
    async with relaying(bare, prepare=as_vllm) as made:
        await until(lambda: bare.under_test.fleet.candidates(MODEL))
        yield made


async def answered(relay: Relay, cached: int = 0, **fields: Any) -> Receipt:
    """Ask the long prompt and let the server answer; the receipt."""
    asked, exchange = await relay.ask(**{"messages": LONG, **fields})
    await exchange.answer(text_chunk("ok", finish="stop"), usage_chunk(200, 1, cached=cached))
    response = await asked
    assert response.status_code == 200, response.text
    records = relay.under_test.recorder.records
    done = len(records)
    await until(lambda: len(relay.under_test.ledger.settled) >= done)
    return read_receipt(records[-1].receipt)


async def test_a_prompt_beyond_the_window_never_reaches_the_server(relay: Relay) -> None:
    messages = [{"role": "user", "content": "a" * 4097}]
    answer = await relay.serving.chat(messages=messages)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert relay.upstream.exchanges.empty()


async def test_what_does_not_fit_as_a_bound_is_held_exactly(relay: Relay) -> None:
    """Escapes make a body longer than its prompt."""
    ledger, messages = relay.under_test.ledger, [{"role": "user", "content": "\u00e9" * 400}]
    await answered(relay, messages=messages)
    (whole,) = ledger.settled.values()
    ledger.room_nano = whole.held_nano - 1
    await answered(relay, messages=messages)
    exact = list(ledger.settled.values())[-1].held_nano
    assert 0 < exact < whole.held_nano


async def test_a_prompt_is_asked_of_once_by_each_tenant(relay: Relay) -> None:
    await answered(relay)
    first = asked_of(relay)
    again = await answered(relay, cached=192)
    assert (first, asked_of(relay)) == (1, 1)
    assert (again.index, again.predicted_cached_tokens) == ("approximate", 192)
    keys = relay.under_test.keys
    projects = {
        name: msgspec.structs.replace(each, salt=b"another")
        for name, each in keys.current.projects.items()
    }
    keys.current = msgspec.structs.replace(keys.current, projects=projects)
    await answered(relay)
    assert asked_of(relay) == 2


async def test_ids_that_a_client_sends_are_taken_as_they_are(relay: Relay) -> None:
    asked = asyncio.create_task(relay.serving.complete(prompt=ids_of("abcd" * 8)))
    exchange = await relay.upstream.next()
    chunk = {"choices": [{"index": 0, "text": "ok", "finish_reason": "stop"}]}
    await exchange.answer(chunk, usage_chunk(32, 1))
    assert (await asked).status_code == 200
    assert asked_of(relay) == 0


@contextlib.asynccontextmanager
async def published(bare: Serving) -> AsyncIterator[tuple[Relay, Any]]:
    async with (
        publisher() as events,
        relaying(bare, prepare=as_vllm, kv_events=events.addresses) as relay,
    ):
        await until(lambda: bare.under_test.fleet.candidates(MODEL))
        yield relay, events


async def test_cache_events_make_the_index_exact_without_any_folder(bare: Serving) -> None:
    async with published(bare) as (relay, events):
        fleet = relay.under_test.fleet
        await until(lambda: not fleet.index(SIZE).unknown)
        first = await answered(relay)
        assert (first.index, first.available_tokens) == ("exact", 0)
        (project,) = relay.under_test.keys.current.projects.values()
        held = ids_of(LONG[0]["content"])[: 3 * SIZE]
        await events.publish(stored([1, 2, 3], held, size=SIZE, salt=project.salt))
        chain = chain_hashes(held, SIZE, project.salt)
        await until(lambda: bool(fleet.index(SIZE).cached_blocks(chain)))
        second = await answered(relay, cached=48)
        assert (second.index, second.available_tokens) == ("exact", 48)
        assert second.candidates[0].cached_tokens == 48


async def test_a_server_that_refuses_leaves_an_estimate(relay: Relay) -> None:
    relay.upstream.answers["/tokenize"] = (500, {})
    await answered(relay)
    again = await answered(relay)
    assert asked_of(relay) == 2
    assert (again.index, again.miss) == ("approximate", None)
    assert again.predicted_cached_tokens >= 48


async def test_a_node_that_is_late_is_not_asked_again_for_a_while(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LearnedBound, "seconds", 0.0)
    (link,) = relay.under_test.fleet.candidates(MODEL)
    await answered(relay)
    assert not link.questions.allowed
    before = asked_of(relay)
    await answered(relay)
    assert asked_of(relay) == before
    # The late answer, if it came, was no fault of the node.
    assert relay.under_test.fleet.candidates(MODEL) == (link,)


async def test_tokens_are_counted_for_clients_that_ask(relay: Relay) -> None:
    body = {"model": MODEL, "messages": LONG}
    answer = await relay.serving.client.post("/v1/messages/count_tokens", json=body)
    assert answer.json() == {"input_tokens": 200}
    relay.upstream.answers["/tokenize"] = (500, {})
    other = [{"role": "user", "content": "abcd" * 51}]
    answer = await relay.serving.client.post(
        "/v1/messages/count_tokens", json={**body, "messages": other}
    )
    assert 0 < answer.json()["input_tokens"] < 200


async def test_the_tokenize_path_asks_the_server_where_nobody_else_can_tell(relay: Relay) -> None:
    client, tools = relay.serving.client, [{"type": "function", "function": {"name": "look"}}]
    body = {"model": MODEL, "messages": LONG, "tools": tools}
    told = (await client.post("/tokenize", json=body)).json()
    assert told == {"count": 200, "max_model_len": 4096, "tokens": ids_of("abcd" * 50)}
    assert relay.upstream.asked[-1][1]["tools"][0]["function"]["name"] == "look"
    for others in ({"add_special_tokens": False}, {"return_token_strs": True}):
        answer = await client.post("/tokenize", json={"model": MODEL, "prompt": "ab", **others})
        assert answer.json()["error"]["code"] == "model_task_mismatch"


async def test_a_node_of_another_pool_sees_no_prompt(relay: Relay) -> None:
    keys = relay.under_test.keys
    models = {
        name: msgspec.structs.replace(each, pool="another")
        for name, each in keys.current.models.items()
    }
    keys.current = msgspec.structs.replace(keys.current, models=models)
    for path in ("/tokenize", "/v1/messages/count_tokens"):
        await relay.serving.client.post(path, json={"model": MODEL, "messages": LONG})
    assert asked_of(relay) == 0


async def test_an_answer_to_an_earlier_link_is_nobody_elses() -> None:
    """A server may take longer than a node needs to be there again."""
    sent: list[Tokenize] = []
    earlier, later = (
        TokenQuestions(lambda data: sent.append(_question(data)), TOLD_TOKENS) for _ in "ab"
    )
    asked = [asyncio.create_task(each.ask(MODEL, b"{}")) for each in (earlier, later)]
    await until(lambda: len(sent) == 2)
    later.answered(Tokens(number=sent[0].number, ids=pack_ids([1])))
    assert not asked[1].done() and len(later) == 1
    for link, question in zip((earlier, later), sent, strict=True):
        link.answered(Tokens(number=question.number, ids=pack_ids([2])))
    assert await asyncio.gather(*asked) == [pack_ids([2])] * 2


def _question(data: bytes) -> Tokenize:
    frame = decode_from_gateway(data)
    assert isinstance(frame, Tokenize)
    return frame


async def test_short_prompts_do_not_fill_the_memory(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "KEPT_BYTES_MAX", 2 * tokens.ENTRY_BYTES + 100)
    for text in ("a", "b", "c", "a"):
        body = {"model": MODEL, "prompt": text}
        assert (await relay.serving.client.post("/tokenize", json=body)).status_code == 200
    assert asked_of(relay) == 4
