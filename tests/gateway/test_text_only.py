"""A model whose engine takes only text: the request goes on as it is, the count comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from controlplane.kernel.price import TokenCounts
from controlplane.kernel.spans import INDEX
from controlplane.kernel.tracing import child_span, read_parent
from tests.support.fleet import MODEL
from tests.support.relay import MESSAGES, Relay, answer_probe, first_word, next_word, relay
from tests.support.remote import remote_node
from tests.support.serving import CHAT_PATH
from tests.support.upstream import (
    DONE,
    hand_upstream,
    text_chunk,
    usage_chunk,
)
from tests.support.waiting import until

__all__ = ["relay"]


async def test_the_server_gets_the_request_but_not_its_user(relay: Relay) -> None:
    asked, exchange = await relay.ask(
        user="alice", metadata={"ticket": "7"}, temperature=0.0, stop="END", top_k=3
    )
    assert exchange.body == {
        "messages": MESSAGES,
        "stop": ["END"],
        "temperature": 0.0,
        "top_k": 3,
        "max_tokens": 6,
        "model": MODEL,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    await exchange.answer(text_chunk("ok", finish="stop"), usage_chunk(3, 1))
    assert (await asked).json()["choices"][0]["message"]["content"] == "ok"


@pytest.mark.parametrize(("ratio", "is_ours"), [(None, False), (1.0, True)])
async def test_a_callers_trace_goes_on_to_the_server(
    relay: Relay, ratio: float | None, is_ours: bool
) -> None:
    relay.under_test.world.trace_ratio = ratio
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    headers = {"traceparent": f"00-{trace}-{span}-01", "tracestate": "shop=1"}
    relay.serving.client.headers.update(headers)
    asked, exchange = await relay.ask()
    caller = read_parent(exchange.headers["traceparent"])
    assert caller is not None and caller.sampled and caller.trace.hex() == trace
    assert exchange.headers["tracestate"] == "shop=1"
    await exchange.answer(text_chunk("ok", finish="stop"), usage_chunk(3, 1))
    await asked
    await until(lambda: relay.under_test.recorder.records)
    recorded = relay.under_test.recorder.records[-1].trace
    if is_ours:
        assert recorded is not None and recorded.parent.hex() == span
        assert caller.span == child_span(recorded.span, INDEX["s5_infer"])
    else:
        assert recorded is None and caller.span.hex() == span


async def test_a_whole_answer_is_charged_by_the_servers_count(relay: Relay) -> None:
    asked, exchange = await relay.ask()
    await exchange.answer(
        text_chunk("Hel"), text_chunk("lo", finish="length"), usage_chunk(9, 5, cached=4)
    )
    body = (await asked).json()
    assert body["choices"][0]["message"]["content"] == "Hello"
    assert body["choices"][0]["finish_reason"] == "length"
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (9, 5)
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 4
    assert relay.last_counts == TokenCounts(uncached=5, cached=4, output=5)
    assert relay.last_source == "node"
    record = relay.under_test.recorder.records[-1]
    assert msgspec.json.decode(record.receipt)["usage"] == "reported by the engine"
    assert record.ttft_us > 0


async def test_text_is_streamed_as_it_comes(relay: Relay) -> None:
    body = {"model": MODEL, "messages": MESSAGES, "stream": True, "max_tokens": 6}
    options = {"stream_options": {"include_usage": True}}
    begun = asyncio.create_task(first_word(relay.upstream, "one "))
    async with relay.serving.client.stream("POST", CHAT_PATH, json={**body, **options}) as answer:
        exchange = await begun
        lines = answer.aiter_lines()
        assert await next_word(lines) == "one "
        await exchange.event(text_chunk("two "))
        assert await next_word(lines) == "two "
        await exchange.event(text_chunk("", finish="stop"))
        await exchange.event(usage_chunk(4, 2))
        await exchange.event(DONE)
        rest = [line async for line in lines if line]
    assert rest[-1] == f"data: {DONE}"
    assert json.loads(rest[-2].removeprefix("data: "))["usage"]["total_tokens"] == 6


async def test_a_client_that_leaves_closes_the_servers_connection(relay: Relay) -> None:
    body = {"model": MODEL, "messages": MESSAGES, "stream": True, "max_tokens": 600}
    begun = asyncio.create_task(first_word(relay.upstream, "one"))
    async with relay.serving.client.stream("POST", CHAT_PATH, json=body) as answer:
        assert await next_word(answer.aiter_lines()) == "one"
    await (await begun).left()
    await until(lambda: relay.under_test.ledger.settled)
    assert relay.last_source == "estimate"
    assert relay.last_counts.output == 1


async def test_no_claim_costs_more_than_was_held(relay: Relay) -> None:
    asked, exchange = await relay.ask()
    await exchange.answer(text_chunk("ok", finish="stop"), usage_chunk(1_000_000, 1_000_000))
    assert (await asked).status_code == 200
    (settlement,) = relay.under_test.ledger.settled.values()
    assert settlement.amount_nano == settlement.held_nano
    assert relay.last_counts.output == 6


async def test_a_refusal_of_the_server_reaches_the_client_in_words(relay: Relay) -> None:
    asked, exchange = await relay.ask()
    await exchange.refuse(400, {"error": {"message": "stop: too many", "code": 400}})
    answer = await asked
    assert answer.status_code == 400
    assert "stop: too many" in answer.json()["error"]["message"]
    asked, exchange = await relay.ask()
    message = "This model's maximum context length is 10 tokens."
    await exchange.refuse(400, {"error": {"message": message}})
    answer = await asked
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert message in answer.json()["error"]["message"]


async def test_a_full_server_is_an_overload(relay: Relay) -> None:
    asked, exchange = await relay.ask()
    await exchange.refuse(429, {"error": {"message": "slow down"}})
    answer = await asked
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] in ("server_is_overloaded", "no_node_available")


async def test_another_server_takes_what_the_first_cannot(relay: Relay) -> None:
    async with hand_upstream() as second:
        second.listed = relay.upstream.listed
        probed = asyncio.create_task(answer_probe(second))
        async with remote_node(relay.under_test, second.url, name="second"):
            await probed
            asked = asyncio.create_task(relay.serving.chat())
            seen = [asyncio.create_task(each.next()) for each in (relay.upstream, second)]
            await asyncio.wait(seen, return_when=asyncio.FIRST_COMPLETED)
            here, there = seen if seen[0].done() else seen[::-1]
            await here.result().refuse(503, "")
            await (await there).answer(text_chunk("ok", finish="stop"), usage_chunk(1, 1))
            assert (await asked).status_code == 200
            await relay.under_test.at_rest()


async def lines_after_break(relay: Relay, body: dict[str, Any], *, word: str) -> list[str]:
    """What a client still gets of a stream whose server hangs up after its first word."""
    begun = asyncio.create_task(first_word(relay.upstream, word))
    async with relay.serving.client.stream("POST", CHAT_PATH, json=body) as answer:
        lines = answer.aiter_lines()
        assert await next_word(lines) == word
        await begun
        relay.upstream.hang_up()
        return [line async for line in lines if line]


async def test_a_stream_that_breaks_ends_with_an_error_and_is_charged(relay: Relay) -> None:
    body = {"model": MODEL, "messages": MESSAGES, "stream": True, "max_tokens": 6}
    rest = await lines_after_break(relay, body, word="one")
    assert "node_lost" in rest[-1]
    assert not any(DONE in line for line in rest)
    assert (relay.last_source, relay.last_counts.output) == ("estimate", 1)


async def test_stop_strings_hold_even_where_the_server_ignores_them(relay: Relay) -> None:
    asked, exchange = await relay.ask(stop="STOP")
    await exchange.begin()
    await exchange.event(text_chunk("go ST"))
    await exchange.event(text_chunk("OP more"))
    body = (await asked).json()
    assert body["choices"][0]["message"]["content"] == "go "
    assert body["choices"][0]["finish_reason"] == "stop"
    await exchange.left()


async def test_what_needs_a_tokenizer_is_refused_by_name(relay: Relay) -> None:
    answer = await relay.serving.chat(logprobs=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "logprobs"


async def test_without_a_count_there_is_no_second_try_at_a_hold(relay: Relay) -> None:
    relay.under_test.ledger.room_nano = 1
    answer = await relay.serving.chat()
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "insufficient_quota"


async def test_tools_go_out_and_their_calls_come_back(relay: Relay) -> None:
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    asked, exchange = await relay.ask(tools=[tool], tool_choice="required")
    assert exchange.body["tools"] == [tool]
    assert exchange.body["tool_choice"] == "required"
    opening = {"index": 0, "id": "call_9", "function": {"name": "weather", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": '{"city":"Bonn"}'}}
    await exchange.answer(
        {"choices": [{"index": 0, "delta": {"tool_calls": [opening]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [rest]}, "finish_reason": "tool_calls"}]},
        usage_chunk(30, 5),
    )
    choice = (await asked).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Bonn"}
    assert relay.last_counts.output == 5


async def test_a_schema_goes_out_as_it_came(relay: Relay) -> None:
    wanted = {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "schema": {
                "type": "object",
                "properties": {"yes": {"type": "boolean"}},
                "required": ["yes"],
                "additionalProperties": False,
            },
        },
    }
    asked, exchange = await relay.ask(response_format=wanted)
    assert exchange.body["response_format"] == wanted
    await exchange.answer(text_chunk('{"yes":true}', finish="stop"), usage_chunk(9, 4))
    assert (await asked).json()["choices"][0]["message"]["content"] == '{"yes":true}'


async def test_a_broken_stream_is_not_blamed_on_its_schema(relay: Relay) -> None:
    body = {"model": MODEL, "messages": MESSAGES, "stream": True, "max_tokens": 6}
    body["response_format"] = {"type": "json_object"}
    rest = await lines_after_break(relay, body, word="{")
    assert "node_lost" in rest[-1]


async def test_a_tag_that_a_server_writes_as_text_stays_text(relay: Relay) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    asked, exchange = await relay.ask(tools=tools)
    words = "Calls open with <tool_call>."
    await exchange.answer(text_chunk(words, finish="stop"), usage_chunk(9, 4))
    (choice,) = (await asked).json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (words, "stop")


def call_chunk(index: int, arguments: str, name: str | None = None) -> dict[str, Any]:
    """A piece of a tool call, as servers stream it."""
    head = {"id": f"theirs_{index}", "type": "function"} if name else {}
    function = {"arguments": arguments, **({"name": name} if name else {})}
    delta = {"tool_calls": [{"index": index, **head, "function": function}]}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


async def test_tools_go_on_as_they_are_and_calls_come_back(relay: Relay) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    called = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "content": "5", "tool_call_id": "c1"},
    ]
    asked, exchange = await relay.ask(
        messages=messages, tools=tools, tool_choice="auto", parallel_tool_calls=True,
        response_format=wanted, max_tokens=50,
    )  # fmt: skip
    sent = {field: exchange.body[field] for field in ("messages", "tools", "tool_choice")}
    assert sent == {"messages": messages, "tools": tools, "tool_choice": "auto"}
    assert exchange.body["parallel_tool_calls"] and exchange.body["response_format"] == wanted
    await exchange.answer(
        text_chunk("Let me see."),
        call_chunk(0, "", "f"),
        call_chunk(0, '{"a"'),
        call_chunk(0, ": 2}"),
        call_chunk(1, "", "f"),
        text_chunk("", finish="tool_calls"),
        usage_chunk(9, 20),
    )
    (choice,) = (await asked).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    made = [call["function"] for call in choice["message"]["tool_calls"]]
    assert made == [{"name": "f", "arguments": '{"a": 2}'}, {"name": "f", "arguments": "{}"}]


async def test_what_a_server_might_pass_over_is_refused(relay: Relay) -> None:
    answer = await relay.serving.chat(structured_outputs={"regex": "a"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "structured_outputs")
