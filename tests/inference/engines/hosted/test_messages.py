"""Anthropic's dialect: chats written in its terms, its events and counts read as ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference.contract.frames import Job, Output
from inference.errors import JobRefused
from tests.inference.engines.hosted.rig import Rig, connection, started
from tests.inference.engines.remote.rig import make_job
from tests.support.upstream import HandUpstream

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 and 3?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "t1", "type": "function",
             "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}},
        ]},
        {"role": "tool", "tool_call_id": "t1", "content": "5"},
        {"role": "user", "content": "Sure?"},
    ],
    "tools": TOOLS,
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "stop": ["END"],
}  # fmt: skip
STREAM: tuple[dict[str, Any], ...] = (
    {"type": "message_start", "message": {"id": "msg_1", "usage": {
        "input_tokens": 10, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 5,
        "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0,
     "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0,
     "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_delta", "index": 0,
     "delta": {"type": "signature_delta", "signature": "abc"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "I add"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2,
     "content_block": {"type": "tool_use", "id": "t2", "name": "add", "input": {}}},
    {"type": "content_block_delta", "index": 2,
     "delta": {"type": "input_json_delta", "partial_json": '{"a": '}},
    {"type": "content_block_delta", "index": 2,
     "delta": {"type": "input_json_delta", "partial_json": "2}"}},
    {"type": "content_block_stop", "index": 2},
    {"type": "content_block_start", "index": 3,
     "content_block": {"type": "tool_use", "id": "t3", "name": "now", "input": {}}},
    {"type": "content_block_stop", "index": 3},
    {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 20}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 21}},
    {"type": "message_stop"},
)  # fmt: skip


async def _outputs(rig: Rig, job: Job) -> list[Output]:
    return await rig.sink.finished(job.request)


async def test_a_chat_is_written_in_anthropics_terms(upstream: HandUpstream) -> None:
    async with started(connection(upstream.url, "a", kind="anthropic")) as rig:
        rig.engine.submit(
            job := make_job(json.dumps(CHAT).encode(), sampling={"temperature": 1.5, "top_k": 4})
        )
        seen = await upstream.next()
        assert (seen.path, seen.headers["x-api-key"]) == ("/v1/messages", "a")
        assert seen.headers["anthropic-version"] == "2023-06-01"
        assert seen.body == {
            "model": "big",
            "max_tokens": 8,
            "stream": True,
            "system": "Be brief.",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "2 and 3?"}]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2, "b": 3}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "5"},
                    {"type": "text", "text": "Sure?"}]},
            ],
            "tools": [{"name": "add", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "stop_sequences": ["END"],
            "temperature": 1.0,
            "top_k": 4,
        }  # fmt: skip
        await seen.begin()
        for event in STREAM:
            await seen.event(event)
        await seen.end()
        outputs = await _outputs(rig, job)
    assert "".join(each.reasoning or "" for each in outputs) == "Hm."
    assert "".join(each.text or "" for each in outputs) == "I add"
    calls = [call for each in outputs for call in each.tool_calls or ()]
    begun = [(call.index, call.id, call.name) for call in calls if call.id]
    assert begun == [(0, "t2", "add"), (1, "t3", "now")]
    said = ["".join(call.arguments for call in calls if call.index == place) for place in (0, 1)]
    assert said == ['{"a": 2}', "{}"]
    last = outputs[-1]
    assert last.finish == "tool_calls"
    # What it read from its cache and wrote there is part of the prompt.
    assert (last.usage.prompt_tokens, last.usage.cached_tokens) == (45, 30)
    assert (last.usage.completion_tokens, last.usage.source) == (21, "engine_part")


async def test_thoughts_are_asked_for_within_the_bound_of_the_answer(
    upstream: HandUpstream,
) -> None:
    chat = {"messages": [{"role": "user", "content": "Why?"}], "reasoning_effort": "medium"}
    async with started(connection(upstream.url, "a", kind="anthropic")) as rig:
        for most, budget in ((20_000, 8192), (4_000, 3_999), (500, None)):
            rig.engine.submit(make_job(json.dumps(chat).encode(), sampling={"max_tokens": most}))
            seen = await upstream.next()
            assert (seen.body.get("thinking") or {}).get("budget_tokens") == budget


@pytest.mark.parametrize(
    ("chat", "sampling", "field"),
    [
        ({}, {"n": 2}, "n"),
        ({}, {"seed": 3}, "seed"),
        ({"response_format": {"type": "json_object"}}, {}, "response_format"),
    ],
)
async def test_what_anthropic_has_no_word_for_is_refused_by_name(
    upstream: HandUpstream, chat: dict[str, Any], sampling: dict[str, Any], field: str
) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], **chat}
    async with started(connection(upstream.url, "a", kind="anthropic")) as rig:
        with pytest.raises(JobRefused, match=f"'{field}' is not supported") as refused:
            rig.engine.submit(make_job(json.dumps(body).encode(), sampling=sampling))
        assert refused.value.code == "bad_request"


async def test_an_overloaded_provider_is_left_before_the_first_word(upstream: HandUpstream) -> None:
    async with started(connection(upstream.url, "a", "b", kind="anthropic")) as rig:
        rig.engine.submit(job := make_job())
        seen = await upstream.next()
        await seen.begin()
        overloaded = {"type": "overloaded_error", "message": "Overloaded"}
        await seen.event({"type": "error", "error": overloaded})
        await seen.end()
        again = await upstream.next()
        assert again.headers["x-api-key"] != seen.headers["x-api-key"]
        await again.refuse(
            400,
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 9 tokens > 8 maximum",
                },
            },
        )
        await rig.sink.until(lambda: job.request in rig.sink.refused)
        assert rig.sink.refused[job.request].code == "too_long"


async def test_what_was_cut_off_is_charged_by_the_prompt_that_was_told(
    upstream: HandUpstream,
) -> None:
    async with started(connection(upstream.url, "a", kind="anthropic")) as rig:
        rig.engine.submit(job := make_job())
        seen = await upstream.next()
        await seen.begin()
        for event in STREAM[:8]:
            await seen.event(event)
        await rig.sink.until(lambda: any(each.text for each in rig.sink.outputs[job.request]))
        rig.engine.cancel(job.request)
        usage = await rig.usage(job)
    assert (usage.prompt_tokens, usage.cached_tokens, usage.source) == (45, 30, "estimate")
    assert usage.completion_tokens == 2


async def test_a_chat_without_a_turn_and_a_bill_that_is_not_paid(upstream: HandUpstream) -> None:
    async with started(connection(upstream.url, "k-1", "k-2", kind="anthropic")) as rig:
        alone = {"messages": [{"role": "system", "content": "x"}], "reasoning_effort": "low"}
        with pytest.raises(JobRefused, match="need a turn") as refused:
            rig.engine.submit(make_job(json.dumps(alone).encode(), sampling={"max_tokens": 4000}))
        assert refused.value.code == "bad_request"
        rig.engine.submit(job := make_job())
        first = await upstream.next()
        unpaid = "Your credit balance is too low to access the API."
        await first.refuse(400, {"type": "error", "error": {
            "type": "invalid_request_error", "message": unpaid}})  # fmt: skip
        second = await upstream.next()
        assert second.headers["x-api-key"] != first.headers["x-api-key"]
        # A provider that is silent may have computed: nobody else is paid for the same.
        await second.begin()
        await second.end()
        await rig.sink.until(lambda: job.request in rig.sink.refused)
        assert rig.sink.refused[job.request].code == "full"
        assert "credit" not in str(rig.sink.refused[job.request])
