"""The remote engine when servers refuse, break, fall silent or do not stop; and cancels."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from inference.engines.remote.errors import MESSAGE_CHARS_MAX
from inference.engines.remote.events import EVENT_BYTES_MAX
from inference.engines.remote.job import CHARS_PER_TOKEN_MAX
from tests.inference.engines.remote.rig import (
    KEY,
    Rig,
    make_job,
    rig,
    started,
    text_of,
    upstream,
)
from tests.support.upstream import HandUpstream, text_chunk, usage_chunk

__all__ = ["rig", "upstream"]


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"message": "no such thing", "code": 400}, "bad_request"),
        (422, {"message": "no such thing"}, "bad_request"),
        (400, {"message": "x", "code": "context_length_exceeded"}, "too_long"),
        (400, {"message": "This model's maximum context length is 9"}, "too_long"),
        (400, {"message": "not this", "code": "content_filter"}, "content_filter"),
        (400, {"message": "not this", "code": "content_policy_violation"}, "content_filter"),
        (401, {"message": f"Incorrect key {KEY}"}, "full"),
        (403, {"message": "no"}, "full"),
        (404, {"message": "no model"}, "unknown_model"),
        (429, {"message": "slow down"}, "full"),
        (500, {"message": "oops"}, "full"),
        (503, "not json", "full"),
        (302, "", "bad_job"),
    ],
)
async def test_each_status_has_its_code(rig: Rig, status: int, error: Any, code: str) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.refuse(status, {"error": error} if isinstance(error, dict) else error)
    refused = await rig.refused(job)
    assert refused.code == code
    assert KEY not in str(refused)


async def test_a_message_is_cleaned_and_bounded(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    message = f"bad\x1b[31m\n{KEY} " + "canary " * 200
    await exchange.refuse(400, {"error": {"message": message}})
    refused = str(await rig.refused(job))
    assert refused.startswith("bad [31m [key] canary")
    assert refused.isprintable() and len(refused) <= MESSAGE_CHARS_MAX + 1
    assert "HTTP 400" in caplog.text
    assert "canary" not in caplog.text and KEY not in caplog.text


async def test_content_that_is_refused_in_the_stream_is_no_fault_of_the_server(rig: Rig) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.begin()
    await exchange.event('{"error": {"message": "no", "code": "content_filter"}}')
    assert (await rig.refused(job)).code == "content_filter"


@pytest.mark.parametrize("kind", ["application/json", ""])
async def test_an_answer_that_is_no_stream_is_refused(rig: Rig, kind: str) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.begin(200, kind)
    assert (await rig.refused(job)).code == "bad_job"


@pytest.mark.parametrize(
    "broken",
    [
        b"data: {not json}\n\n",
        b'data: {"choices": 3}\n\n',
        b"data: " + b"x" * (EVENT_BYTES_MAX + 1),
        b"data: [DONE]\n\n",
        b'data: {"error": {"message": "died"}}\n\n',
        b'data: {"error": "died"}\n\n',
        'data: {"error": {"code": "²"}}\n\n'.encode(),
    ],
)
@pytest.mark.parametrize("delivered", [True, False])
async def test_a_broken_stream_goes_back_or_ends_with_what_it_has(
    rig: Rig, broken: bytes, delivered: bool
) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.begin()
    if delivered:
        await exchange.event(text_chunk("some"))
        await exchange.event(usage_chunk(9, 1))
    with contextlib.suppress(OSError):
        await exchange.part(broken)
    if not delivered:
        assert (await rig.refused(job)).code == "full"
        return
    outputs = await rig.sink.finished(job.request)
    assert text_of(outputs) == "some"
    assert (outputs[-1].finish, outputs[-1].usage.prompt_tokens) == ("error", 9)


async def test_an_error_event_of_the_client_is_the_clients(rig: Rig) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.begin()
    await exchange.event({"error": {"message": "bad schema", "code": 400}})
    assert (await rig.refused(job)).code == "bad_request"


@pytest.mark.parametrize("delivered", [True, False])
async def test_a_lost_connection_is_like_a_broken_stream(rig: Rig, delivered: bool) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    if delivered:
        await exchange.begin()
        await exchange.event(text_chunk("some"))
        await rig.sink.until(lambda: bool(rig.sink.outputs[job.request]))
    rig.upstream.hang_up()
    if delivered:
        assert (await rig.sink.finished(job.request))[-1].finish == "error"
    else:
        assert (await rig.refused(job)).code == "full"


async def test_a_stream_cut_after_its_last_word_is_whole(rig: Rig) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.begin()
    await exchange.event(text_chunk("all", finish="stop"))
    await rig.sink.until(lambda: bool(rig.sink.outputs[job.request]))
    rig.upstream.hang_up()
    last = (await rig.sink.finished(job.request))[-1]
    assert (last.finish, last.usage.source) == ("stop", "estimate")


async def test_silence_before_and_in_an_answer_is_bounded(upstream: HandUpstream) -> None:
    async with started(upstream, first_byte_timeout_s=0.2, idle_timeout_s=0.2) as rig:
        silent, stopping = make_job(), make_job()
        first = await rig.submit(silent)
        second = await rig.submit(stopping)
        await second.begin()
        await second.event(text_chunk("some"))
        assert (await rig.refused(silent)).code == "full"
        assert (await rig.sink.finished(stopping.request))[-1].finish == "error"
        await first.left()
        await second.left()


async def test_a_job_past_its_deadline_ends_as_cancelled(rig: Rig) -> None:
    job = make_job(deadline_ms=200)
    exchange = await rig.submit(job)
    await exchange.begin()
    assert (await rig.sink.finished(job.request))[-1].finish == "cancelled"
    await exchange.left()


@pytest.mark.parametrize("state", ["asked", "begun", "streaming", "finishing"])
async def test_a_cancel_closes_the_connection_in_every_state(rig: Rig, state: str) -> None:
    job = make_job()
    exchange = await rig.submit(job)
    if state != "asked":
        await exchange.begin()
    if state in ("streaming", "finishing"):
        await exchange.event(text_chunk("some", finish="stop" if state == "finishing" else None))
        await rig.sink.until(lambda: bool(rig.sink.outputs[job.request]))
    rig.engine.cancel(job.request)
    rig.engine.cancel(job.request)
    outputs = await rig.sink.finished(job.request)
    assert outputs[-1].finish == ("stop" if state == "finishing" else "cancelled")
    await exchange.left()
    rig.engine.cancel(job.request)
    assert len(rig.sink.finishes(job.request)) == 1


async def test_a_cancel_before_the_request_is_sent_sends_none(rig: Rig) -> None:
    job, other = make_job(), make_job(b'{"prompt":"other"}')
    rig.engine.submit(job)
    rig.engine.cancel(job.request)
    assert (await rig.submit(other)).body["prompt"] == "other"
    assert rig.sink.finishes(job.request) == ["cancelled"]


async def test_a_server_that_does_not_stop_is_cut(rig: Rig) -> None:
    job = make_job(sampling={"max_tokens": 1})
    exchange = await rig.submit(job)
    await exchange.begin()
    await exchange.event(text_chunk("x" * (CHARS_PER_TOKEN_MAX + 1)))
    assert (await rig.sink.finished(job.request))[-1].finish == "length"
    await exchange.left()
