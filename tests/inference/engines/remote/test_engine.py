"""The remote engine: what it asks, what it makes of answers, and what it declines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from inference.contract.frames import Usage
from inference.engines.remote import engine as remote
from inference.engines.remote.engine import RemoteEngine
from inference.engines.remote.server import FIRST_BYTE_TIMEOUT_S, RemoteOptions
from inference.errors import JobRefused, ModelError
from tests.inference.engines.remote.rig import (
    KEY,
    MESSAGES,
    Rig,
    make_job,
    rig,
    started,
    text_of,
    upstream,
)
from tests.inference.engines.sink import Sink
from tests.support.upstream import DONE, HandUpstream, hand_upstream, text_chunk, usage_chunk

__all__ = ["rig", "upstream"]


async def test_the_window_comes_from_the_servers_list(rig: Rig) -> None:
    assert rig.engine.facts.context_window == 4096
    assert "salt" not in rig.engine.facts.capabilities
    assert "text" in rig.engine.facts.capabilities


@pytest.mark.parametrize(
    ("listed", "status", "options", "named"),
    [
        ([{"id": "other"}], 200, {}, "--upstream-model: the server has no 'big'; it offers other"),
        ([], 401, {}, "SLUICE_UPSTREAM_KEY"),
        ([{"id": "big"}], 200, {}, "--context-window"),
        ([], 404, {}, "--context-window"),
    ],
)
async def test_a_server_that_cannot_serve_is_named_at_the_start(
    upstream: HandUpstream, listed: list[Any], status: int, options: dict[str, Any], named: str
) -> None:
    upstream.listed, upstream.list_status = listed, status
    with pytest.raises(ModelError) as caught:
        async with started(upstream, **options):
            pass
    assert named in str(caught.value)
    assert KEY not in str(caught.value)


async def test_a_server_that_is_not_there_is_named() -> None:
    async with hand_upstream() as gone:
        url = gone.url
    engine = RemoteEngine(RemoteOptions(url=url, name="ours"))
    with pytest.raises(ModelError, match="--url: .* does not answer"):
        await engine.start(Sink())
    await engine.close()


async def test_a_window_may_be_given_where_the_server_has_no_list(upstream: HandUpstream) -> None:
    upstream.list_status = 404
    async with started(upstream, context_window=512) as rig:
        assert rig.engine.facts.context_window == 512


async def test_the_request_says_what_is_asked_and_not_who_asks(rig: Rig) -> None:
    sampling = {"temperature": 0.5, "top_p": 1.0, "seed": 7, "n": 2, "logit_bias": {5: -1.0}}
    exchange = await rig.submit(make_job(sampling=sampling))
    assert exchange.path == "/v1/chat/completions"
    assert exchange.headers["authorization"] == f"Bearer {KEY}"
    assert exchange.body == {
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.5,
        "seed": 7,
        "n": 2,
        "logit_bias": {"5": -1.0},
        "max_tokens": 8,
        "model": "big",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_vllm_is_told_the_tenant_and_to_count_as_it_goes(upstream: HandUpstream) -> None:
    upstream.listed[0]["owned_by"] = "vllm"
    async with started(upstream, output_field="max_completion_tokens") as rig:
        assert "salt" in rig.engine.facts.capabilities
        exchange = await rig.submit(make_job())
        assert exchange.body["cache_salt"] == b"tenant".hex()
        assert exchange.body["stream_options"]["continuous_usage_stats"] is True
        assert exchange.body["max_completion_tokens"] == 8
        assert "max_tokens" not in exchange.body


async def test_what_vllm_counts_of_each_choice_is_added_up(upstream: HandUpstream) -> None:
    """A stream that its client leaves ends before the count of all choices comes."""
    upstream.listed[0]["owned_by"] = "vllm"
    async with started(upstream) as rig:
        job = make_job(sampling={"n": 2})
        exchange = await rig.submit(job)
        await exchange.begin()
        for choice, count in ((0, 1), (0, 5), (1, 3)):
            usage = usage_chunk(9, count)["usage"]
            await exchange.event({**text_chunk("a", choice=choice), "usage": usage})
        await rig.sink.until(lambda: text_of(rig.sink.outputs[job.request]) == "aaa")
        rig.engine.cancel(job.request)
        usages = [output.usage for output in await rig.sink.finished(job.request, 2)]
        assert [usage.completion_tokens for usage in usages] == [1, 5, 8, 8, 8]
        whole = make_job(sampling={"n": 2})
        exchange = await rig.submit(whole)
        parts = [text_chunk("a", finish="stop", choice=choice) for choice in range(2)]
        await exchange.answer(*parts, usage_chunk(9, 4))
        assert (await rig.sink.finished(whole.request, 2))[-1].usage.completion_tokens == 4


async def test_a_prompt_goes_to_text_completions(rig: Rig) -> None:
    exchange = await rig.submit(make_job(b'{"prompt":[1,2,3]}'))
    assert exchange.path == "/v1/completions"
    await exchange.answer(
        {"choices": [{"index": 0, "text": "one", "finish_reason": "stop"}]}, usage_chunk(3, 1)
    )
    await rig.sink.until(lambda: bool(rig.sink.outputs))


async def test_text_comes_as_it_is_made_and_the_count_with_the_end(rig: Rig) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.begin()
    await exchange.event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
    await exchange.event(text_chunk("Hel"))
    await rig.sink.until(lambda: text_of(rig.sink.outputs[job.request]) == "Hel")
    await exchange.event(text_chunk("lo", finish="length"))
    await rig.sink.until(lambda: text_of(rig.sink.outputs[job.request]) == "Hello")
    assert rig.sink.finishes(job.request) == []
    await exchange.event(usage_chunk(20, 5, cached=16))
    await exchange.event(DONE)
    last = (await rig.sink.finished(job.request))[-1]
    assert last.finish == "length"
    assert last.usage == Usage(
        prompt_tokens=20, cached_tokens=16, completion_tokens=5, source="engine"
    )
    assert last.timing.held_us >= last.timing.prefill_us > 0


async def test_without_a_count_one_is_estimated_and_said_so(rig: Rig) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.answer(text_chunk("a"), text_chunk("b"), text_chunk("", finish="stop"))
    last = (await rig.sink.finished(job.request))[-1]
    assert last.usage == Usage(
        prompt_tokens=len(MESSAGES) // 4, cached_tokens=0, completion_tokens=2, source="estimate"
    )


async def test_a_count_that_contradicts_itself_is_put_right(rig: Rig) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.answer(text_chunk("a", finish="stop"), usage_chunk(4, 3, cached=9))
    usage = (await rig.sink.finished(job.request))[-1].usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (4, 4, 3)


@pytest.mark.parametrize(("prompt", "completion"), [(4, 0), (4, -1), (0, 0), (0, 5)])
async def test_a_count_of_nothing_is_none(rig: Rig, prompt: int, completion: int) -> None:
    """Else an answer would be free whose server counts only at its end, and is cut off before."""
    job = make_job()
    exchange = await rig.submit(job)
    counted = {**text_chunk("a"), **usage_chunk(prompt, completion), "choices": [{"index": 0}]}
    await exchange.answer(text_chunk("a"), counted, text_chunk("b", finish="stop"))
    last = (await rig.sink.finished(job.request))[-1]
    assert last.usage == Usage(
        prompt_tokens=prompt or len(MESSAGES) // 4,
        cached_tokens=0,
        completion_tokens=max(completion, 2),
        source="estimate",
    )


async def test_choices_and_tool_calls_are_kept_apart(rig: Rig) -> None:
    job = make_job(sampling={"n": 2})
    exchange = await rig.submit(job)
    call = {"index": 0, "id": "call_1", "function": {"name": "look", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": '{"x":1}'}}
    await exchange.answer(
        text_chunk("one"),
        {"choices": [{"index": 1, "delta": {"tool_calls": [call]}}]},
        {"choices": [{"index": 1, "delta": {"tool_calls": [rest]}, "finish_reason": "tool_calls"}]},
        text_chunk("", finish="content_filter"),
        usage_chunk(1, 2),
    )
    outputs = await rig.sink.finished(job.request, choices=2)
    ends = {output.choice: output.finish for output in outputs if output.finish}
    assert ends == {0: "content_filter", 1: "tool_calls"}
    calls = [call for output in outputs for call in output.tool_calls or ()]
    assert [(call.id, call.name, call.arguments) for call in calls] == [
        ("call_1", "look", ""),
        (None, None, '{"x":1}'),
    ]


async def test_more_than_the_credits_are_refused_and_come_back(rig: Rig) -> None:
    jobs = [make_job() for _ in range(4)]
    exchanges = [await rig.submit(job) for job in jobs]
    with pytest.raises(JobRefused) as caught:
        rig.engine.submit(make_job())
    assert caught.value.code == "full"
    with pytest.raises(JobRefused, match="request: "):
        rig.engine.submit(jobs[0])
    await exchanges[0].answer(text_chunk("a", finish="stop"))
    await rig.sink.finished(jobs[0].request)
    await rig.submit(make_job())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"request_json": b""}, "request_json"),
        ({"request_json": b"[]"}, "request_json"),
        ({"request_json": b'{"input":"x"}'}, "request_json"),
        ({"request_json": b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}"}, "too deeply"),
        ({"sampling": {"logprobs": 1}}, "sampling.logprobs"),
        ({"sampling": {"n": 99}}, "sampling.n"),
        ({"deadline_ms": 0}, "deadline_ms"),
    ],
)
async def test_what_it_cannot_do_is_refused_by_field(
    rig: Rig, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(JobRefused, match=named.replace(".", r"\.")):
        rig.engine.submit(make_job(**changes))


async def test_a_long_thought_is_not_taken_for_a_stall(
    upstream: HandUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "HEARTBEAT_S", 0.02)
    async with started(upstream) as rig:
        await rig.submit(make_job())
        await rig.sink.until(lambda: len(rig.sink.steps) >= 3)
        assert all(not step.outputs and step.waiting == 1 for step in rig.sink.steps)
        silences = [[each.silent_ms for each in step.processing] for step in rig.sink.steps]
        assert all(len(of_step) == 1 for of_step in silences) and sorted(silences) == silences
    assert rig.engine.facts.silence_s == FIRST_BYTE_TIMEOUT_S


async def test_large_answers_are_spread_over_steps(rig: Rig) -> None:
    job = make_job(sampling={"max_tokens": 100_000})
    exchange = await rig.submit(job)
    await exchange.begin()
    piece = "y" * 200_000
    for _ in range(4):
        await exchange.part(f"data: {json.dumps(text_chunk(piece))}\n\n".encode())
    await exchange.event(text_chunk("", finish="stop"))
    await exchange.event(DONE)
    outputs = await rig.sink.finished(job.request)
    assert len(text_of(outputs)) == 4 * len(piece)
    sizes = [len(text_of(step.outputs)) for step in rig.sink.steps]
    assert max(sizes) <= remote.STEP_CHARS_MAX


async def test_a_connection_serves_one_job_after_another(rig: Rig) -> None:
    ports = set()
    for _ in range(3):
        job = make_job()
        exchange = await rig.submit(job)
        ports.add(exchange.writer.get_extra_info("peername")[1])
        await exchange.answer(text_chunk("a", finish="stop"))
        await rig.sink.finished(job.request)
        await asyncio.sleep(0)
    assert len(ports) == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"url": "ftp://host"}, "--url"),
        ({"url": "http://user:pw@host"}, "SLUICE_UPSTREAM_KEY"),
        ({"url": "http://host:port"}, "--url"),
        ({"url": "http://host", "name": ""}, "--model-name"),
        ({"url": "http://host", "context_window": 0}, "--context-window"),
        ({"url": "http://host", "idle_timeout_s": 0}, "--idle-timeout"),
        ({"url": "http://host", "idle_timeout_s": float("nan")}, "--idle-timeout"),
        ({"url": "http://host", "output_field": "n"}, "--output-field"),
        ({"url": "http://host", "key": "two\nlines"}, "SLUICE_UPSTREAM_KEY"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        RemoteOptions(**{"name": "ours", **options})


def test_the_key_comes_from_the_environment_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLUICE_UPSTREAM_KEY", KEY)
    options = RemoteOptions(url="http://host/v1/", name="ours")
    assert options.key == KEY
    assert KEY not in repr(options)
    assert options.url == "http://host/v1"
