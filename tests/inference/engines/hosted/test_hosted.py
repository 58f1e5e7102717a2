"""Models of hosted providers: keys in turns, their limits, rotation, and Anthropic's dialect."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from inference.contract.frames import Job, Output, Usage
from inference.engines.hosted.engine import HostedEngine, HostedOptions
from inference.errors import JobRefused, ModelError
from tests.inference.engines.remote.rig import make_job
from tests.inference.engines.sink import Sink
from tests.support.upstream import HandUpstream, hand_upstream, text_chunk, usage_chunk
from tests.support.waiting import until

ANSWER = (text_chunk("Hi"), text_chunk("", finish="stop"), usage_chunk(7, 1))
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def connection(url: str, *keys: str, **changes: Any) -> dict[str, Any]:
    """With keys named after their secrets."""
    model = {"name": "ours", "upstream": "big", "context_window": 4096}
    return {
        "name": "one",
        "kind": "openai",
        "url": url,
        "keys": [{"id": f"id-{key}", "secret": key} for key in keys],
        "models": [model | changes.pop("model", {})],
        **changes,
    }


class Rig:
    """A started engine, and the lines that it reads."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.engine = HostedEngine(HostedOptions(credits=8), lines=self._read)
        self.sink = Sink()

    def configure(self, *connections: dict[str, Any]) -> None:
        self.lines.put_nowait(json.dumps({"connections": connections}).encode() + b"\n")

    async def _read(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.lines.get()

    async def usage(self, job: Job) -> Usage:
        return (await self.sink.finished(job.request))[-1].usage


@contextlib.asynccontextmanager
async def started(*connections: dict[str, Any]) -> AsyncIterator[Rig]:
    rig = Rig()
    rig.configure(*connections)
    try:
        await rig.engine.start(rig.sink)
        yield rig
    finally:
        await rig.engine.close()
    assert not rig.sink.deaths


@pytest.fixture
async def upstream() -> AsyncIterator[HandUpstream]:
    async with hand_upstream() as server:
        yield server


def _key(headers: dict[str, str]) -> str:
    return headers["authorization"].removeprefix("Bearer ")


async def test_a_chat_travels_as_it_is_and_the_providers_count_is_the_bill(
    upstream: HandUpstream,
) -> None:
    async with started(connection(upstream.url, "a", model={"max_output": 5})) as rig:
        assert rig.engine.facts.models == (("ours", 4096),)
        rig.engine.submit(job := make_job())
        seen = await upstream.next()
        assert (seen.path, _key(seen.headers)) == ("/v1/chat/completions", "a")
        assert seen.body["model"] == "big"
        # What the provider allows, under the name that covers thoughts.
        assert seen.body["max_completion_tokens"] == 5
        assert seen.body["stream_options"] == {"include_usage": True}
        await seen.answer(*ANSWER)
        usage = await rig.usage(job)
        assert (usage.prompt_tokens, usage.completion_tokens, usage.source) == (7, 1, "engine")


async def test_a_key_at_its_limit_rests_and_another_takes_the_job(upstream: HandUpstream) -> None:
    async with started(connection(upstream.url, "a", "b")) as rig:
        rig.engine.submit(job := make_job())
        first = await upstream.next()
        await first.begin(429, "application/json", "retry-after: 60")
        await first.end()
        second = await upstream.next()
        assert {_key(first.headers), _key(second.headers)} == {"a", "b"}
        await second.answer(*ANSWER)
        assert (await rig.usage(job)).prompt_tokens == 7
        # The first still rests.
        rig.engine.submit(job := make_job())
        third = await upstream.next()
        assert _key(third.headers) == _key(second.headers)
        await third.begin(429, "application/json", "retry-after: 60")
        await third.end()
        await rig.sink.until(lambda: job.request in rig.sink.refused)
        assert rig.sink.refused[job.request].code == "full"
        with pytest.raises(JobRefused, match="every key of this model rests") as refused:
            rig.engine.submit(make_job())
        assert refused.value.code == "full"


async def test_the_key_with_the_most_left_is_taken(upstream: HandUpstream) -> None:
    left = {"a": 10, "b": 90}
    async with started(connection(upstream.url, "a", "b")) as rig:
        taken = []
        for _ in range(4):
            rig.engine.submit(job := make_job())
            seen = await upstream.next()
            taken.append(key := _key(seen.headers))
            told = [f"x-ratelimit-{name}-tokens: {value}" for name, value in (
                ("remaining", left[key]), ("limit", 100), ("reset", "60s"))]  # fmt: skip
            await seen.begin(200, "text/event-stream", *told)
            for chunk in ANSWER:
                await seen.event(chunk)
            await seen.event("[DONE]")
            await seen.end()
            await rig.usage(job)
        assert set(taken[:2]) == {"a", "b"}
        assert taken[2:] == ["b", "b"]


async def test_a_key_that_is_refused_is_told_without_its_secret(
    upstream: HandUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(connection(upstream.url, "sk-secret-1", "sk-secret-2")) as rig:
        rig.engine.submit(job := make_job())
        first = await upstream.next()
        await first.refuse(401, {"error": {"message": f"Bad key {_key(first.headers)}"}})
        second = await upstream.next()
        await second.answer(*ANSWER)
        await rig.usage(job)
    assert f"key=id-{_key(first.headers)}" in caplog.text
    assert f"Bad key {_key(first.headers)}" not in caplog.text


async def test_keys_are_rotated_under_running_jobs(upstream: HandUpstream) -> None:
    async with started(connection(upstream.url, "old")) as rig:
        rig.engine.submit(job := make_job())
        running = await upstream.next()
        rig.configure(
            connection(upstream.url, "new", models=[
                {"name": "ours", "upstream": "big", "context_window": 4096},
                {"name": "more", "upstream": "small", "context_window": 512},
            ])
        )  # fmt: skip
        await until(lambda: len(rig.engine.facts.models) == 2)
        rig.engine.submit(msgspec.structs.replace(make_job(), model="more"))
        fresh = await upstream.next()
        assert (_key(fresh.headers), fresh.body["model"]) == ("new", "small")
        await running.answer(*ANSWER)
        assert (await rig.usage(job)).prompt_tokens == 7
        # A line that cannot be read changes nothing.
        rig.lines.put_nowait(b'{"connections": [{"name": 1}]}\n')
        rig.engine.submit(make_job())
        assert _key((await upstream.next()).headers) == "new"
        # The last key is revoked: nothing is asked with it any more.
        rig.configure(connection(upstream.url))
        await until(lambda: not rig.lines.qsize())
        with pytest.raises(JobRefused, match="no connection serves"):
            rig.engine.submit(make_job())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"nonsense\n", "malformed"),
        (b'{"connections": []}\n', "none has a key and a model"),
        (json.dumps({"connections": [connection("http://a/v1", "s", kind="tgi")]}).encode(),
            "none has a key and a model"),
        (json.dumps({"connections": [connection("nowhere", "s")]}).encode(),
            "none has a key and a model"),
    ],
)  # fmt: skip
async def test_what_cannot_be_served_is_said_at_the_start(line: bytes, said: str) -> None:
    rig = Rig()
    rig.lines.put_nowait(line)
    with pytest.raises(ModelError, match=said):
        await rig.engine.start(rig.sink)
    await rig.engine.close()


async def test_one_connection_that_cannot_be_served_leaves_the_others(
    upstream: HandUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {**connection("nowhere", "sk-secret"), "name": "two"}
    async with started(connection(upstream.url, "a"), wrong) as rig:
        rig.engine.submit(make_job())
        assert _key((await upstream.next()).headers) == "a"
    assert "'two'" in caplog.text and "--url" in caplog.text and "sk-secret" not in caplog.text


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
    async with started(connection(upstream.url, "a", "b", kind="anthropic")) as rig:
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


async def test_the_end_of_the_input_is_the_end_of_the_engine(upstream: HandUpstream) -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield json.dumps({"connections": [connection(upstream.url, "a")]}).encode()

    sink = Sink()
    engine = HostedEngine(HostedOptions(credits=8), lines=lines)
    await engine.start(sink)
    await sink.until(lambda: bool(sink.deaths))
    await engine.close()


async def test_azure_is_asked_by_deployment_and_version(upstream: HandUpstream) -> None:
    root = upstream.url.removesuffix("/v1")
    azure = connection(root, "a", kind="azure", api_version="2024-10-21")
    async with started(azure) as rig:
        rig.engine.submit(make_job())
        seen = await upstream.next()
        path = "/openai/deployments/big/chat/completions?api-version=2024-10-21"
        assert (seen.path, seen.headers["api-key"]) == (path, "a")


# Anthropic's dialect.

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
