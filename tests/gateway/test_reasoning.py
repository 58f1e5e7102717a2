"""What a model thinks before it speaks: shown, looked at, counted and charged."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from tests.support.ports import make_snapshot
from tests.support.relay import MESSAGES, Relay, deltas_of, next_word, relay
from tests.support.serving import CHAT_PATH
from tests.support.upstream import DONE, Exchange, text_chunk, thought_chunk, usage_chunk
from tests.support.waiting import until

__all__ = ["relay"]

SECRET = "ghp_" + "a" * 36
BODY = {
    "model": "tiny",
    "messages": MESSAGES,
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 60,
}


async def begun(relay: Relay, *chunks: dict[str, Any]) -> Exchange:
    exchange = await relay.upstream.next()
    await exchange.begin()
    for chunk in chunks:
        await exchange.event(chunk)
    return exchange


async def lines_of(relay: Relay, *chunks: dict[str, Any], **changes: Any) -> list[str]:
    """All of what a client gets of a whole stream."""

    async def answer() -> None:
        exchange = await relay.upstream.next()
        await exchange.answer(*chunks)

    answering = asyncio.create_task(answer())
    asked = await relay.serving.client.post(CHAT_PATH, json={**BODY, **changes})
    await answering
    return [line for line in asked.text.splitlines() if line]


def added(lines: list[str], field: str) -> str:
    return "".join(delta.get(field) or "" for line in lines[:-1] for delta in deltas_of(line))


def last_usage(lines: list[str]) -> dict[str, Any]:
    usage: dict[str, Any] = json.loads(lines[-2].removeprefix("data: "))["usage"]
    return usage


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_it_is_streamed_and_is_the_first_token(relay: Relay, field: str) -> None:
    begins = asyncio.create_task(begun(relay, thought_chunk("Well, ", field=field)))
    async with relay.serving.client.stream("POST", CHAT_PATH, json=BODY) as answer:
        lines = answer.aiter_lines()
        assert await next_word(lines, "reasoning_content") == "Well, "
        exchange = await begins
        await exchange.event(thought_chunk("two.", field=field))
        assert await next_word(lines, "reasoning_content") == "two."
        await exchange.event(text_chunk("2", finish="stop"))
        assert await next_word(lines) == "2"
        await exchange.event(usage_chunk(9, 7, reasoning=5))
        await exchange.event(DONE)
        rest = [line async for line in lines if line]
    assert last_usage(rest)["completion_tokens"] == 7
    assert last_usage(rest)["completion_tokens_details"]["reasoning_tokens"] == 5
    assert relay.last_counts.output == 7
    record = relay.under_test.recorder.records[-1]
    assert record.ttft_us > 0 and len(record.inter_token_us) >= 2
    assert msgspec.json.decode(record.receipt)["reasoning_tokens"] == 5


async def test_a_whole_answer_has_it_beside_the_text(relay: Relay) -> None:
    asked, exchange = await relay.ask()
    await exchange.answer(
        thought_chunk("a"), thought_chunk("b"), text_chunk("c", finish="stop"), usage_chunk(9, 3)
    )
    body = (await asked).json()
    message = body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("ab", "c")
    # The server did not tell how many: two of three pieces.
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2
    asked, exchange = await relay.ask()
    await exchange.answer(text_chunk("c", finish="stop"), usage_chunk(9, 1))
    body = (await asked).json()
    assert "reasoning_content" not in body["choices"][0]["message"]
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


async def test_a_stream_cut_in_its_thoughts_is_charged_for_them(relay: Relay) -> None:
    begins = asyncio.create_task(begun(relay, thought_chunk("one"), thought_chunk("two")))
    async with relay.serving.client.stream("POST", CHAT_PATH, json=BODY) as answer:
        lines = answer.aiter_lines()
        seen = await next_word(lines, "reasoning_content")
        while seen != "onetwo":
            seen += await next_word(lines, "reasoning_content")
    await (await begins).left()
    await until(lambda: relay.under_test.ledger.settled)
    assert (relay.last_source, relay.last_counts.output) == ("estimate", 2)


async def test_a_server_that_thinks_beyond_the_bound_is_cut(relay: Relay) -> None:
    lines = await lines_of(relay, thought_chunk("x" * 300), thought_chunk("y"), max_tokens=2)
    assert added(lines, "reasoning_content") == "x" * 300
    assert '"finish_reason":"length"' in lines[-3]


async def test_stop_strings_are_of_the_answer_alone(relay: Relay) -> None:
    chunks = (thought_chunk("think STOP on"), text_chunk("go STOP no", finish="stop"))
    lines = await lines_of(relay, *chunks, usage_chunk(9, 3), stop=["STOP"])
    assert (added(lines, "reasoning_content"), added(lines, "content")) == ("think STOP on", "go ")


async def test_flag_notes_what_a_thought_tells(relay: Relay) -> None:
    relay.under_test.keys.current = make_snapshot("tiny", safety="flag")
    chunks = (thought_chunk(f"It is {SECRET} "), text_chunk("no", finish="stop"))
    lines = await lines_of(relay, *chunks, usage_chunk(9, 3))
    assert SECRET in added(lines, "reasoning_content") and added(lines, "content") == "no"
    assert relay.under_test.recorder.records[-1].safety == "github_token"


async def test_block_ends_an_answer_in_its_thoughts(relay: Relay) -> None:
    relay.under_test.keys.current = make_snapshot("tiny", safety="block")
    chunks = (
        thought_chunk(f"It is {SECRET} "),
        thought_chunk("."),
        text_chunk("no", finish="stop"),
    )
    lines = await lines_of(relay, *chunks, usage_chunk(9, 3))
    assert SECRET not in "".join(lines) and added(lines, "content") == ""
    assert '"finish_reason":"content_filter"' in "".join(lines)


async def test_block_shows_the_rest_of_a_thought_before_the_answer(relay: Relay) -> None:
    relay.under_test.keys.current = make_snapshot("tiny", safety="block")
    chunks = (thought_chunk("harmless"), text_chunk("too", finish="stop"), usage_chunk(9, 3))
    lines = await lines_of(relay, *chunks)
    shown = [delta for line in lines[:-1] for delta in deltas_of(line)]
    order = [name for delta in shown for name in delta if name in ("reasoning_content", "content")]
    assert order[-2:] == ["reasoning_content", "content"]
    assert added(lines, "reasoning_content") == "harmless" and added(lines, "content") == "too"


async def test_a_client_may_send_it_back(relay: Relay) -> None:
    history = [*MESSAGES, {"role": "assistant", "content": "2", "reasoning_content": "one and one"}]
    asked, exchange = await relay.ask(messages=[*history, *MESSAGES])
    assert exchange.body["messages"][1] == history[1]
    await exchange.answer(text_chunk("ok", finish="stop"), usage_chunk(9, 1))
    assert (await asked).status_code == 200
    refused = await relay.serving.chat(messages=[{**MESSAGES[0], "reasoning_content": "x"}])
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "messages[0].reasoning_content"
