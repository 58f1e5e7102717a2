"""Messages through a whole gateway: answers, streams, counts and errors in Anthropic's shape."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx2
import msgspec
import pytest

from controlplane.gateway.ports import Allowance, Room
from controlplane.gateway.tasks import preflight_turns
from tests.gateway.anthropic.test_events import joined, read
from tests.support.fleet import MODEL
from tests.support.nodes import hand_node
from tests.support.ports import KEY, make_key, make_snapshot
from tests.support.relay import Relay, relay
from tests.support.serving import Serving
from tests.support.upstream import text_chunk, thought_chunk, usage_chunk

__all__ = ["relay"]

PATH = "/v1/messages"
COUNT_PATH = f"{PATH}/count_tokens"
BODY: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 6,
    "messages": [{"role": "user", "content": "abcd"}],
}


async def send(serving: Serving, path: str = PATH, **fields: Any) -> httpx2.Response:
    return await serving.client.post(path, json={**BODY, **fields})


def error_of(answer: httpx2.Response, kind: str) -> dict[str, Any]:
    """Its error, in Anthropic's shape."""
    body = answer.json()
    assert body["type"] == "error" and body["error"]["type"] == kind
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    error: dict[str, Any] = body["error"]
    return error


async def test_a_whole_answer(serving: Serving) -> None:
    answer = await send(serving, "/v1/messages?beta=true")
    body = answer.json()
    assert re.fullmatch("msg_[0-9a-f]{32}", body["id"])
    assert (body["type"], body["role"], body["model"]) == ("message", "assistant", MODEL)
    assert body["content"] == [{"type": "text", "text": "abcdab"}]
    assert (body["stop_reason"], body["stop_sequence"]) == ("max_tokens", None)
    usage = body["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == 4
    assert (usage["output_tokens"], usage["service_tier"]) == (6, "standard")
    assert answer.headers["request-id"] == "req_" + body["id"].removeprefix("msg_")
    (record,) = serving.under_test.recorder.records
    assert record.operation == "chat"


@pytest.mark.parametrize("stop", [[], ["da"]])
async def test_a_stream_joined_is_the_whole_answer(serving: Serving, stop: list[str]) -> None:
    whole = (await send(serving, stop_sequences=stop)).json()
    answer = await send(serving, stop_sequences=stop, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = read(answer.content)
    assert events[0]["message"]["usage"]["input_tokens"] == 4
    message = joined(events)
    for varies in ("id", "usage", "sluice"):
        assert message.pop(varies) and whole.pop(varies)
    assert message == whole
    expected = ("stop_sequence", "da", "abc") if stop else ("max_tokens", None, "abcdab")
    assert (whole["stop_reason"], whole["stop_sequence"], whole["content"][0]["text"]) == expected


async def test_the_end_is_sent_after_the_charge(steady: Serving) -> None:
    ledger = steady.under_test.ledger
    async with hand_node(steady.under_test, steady.model) as node:
        request = steady.client.build_request("POST", PATH, json={**BODY, "stream": True})
        asking = asyncio.create_task(steady.client.send(request, stream=True))
        job = await node.job()
        await node.answer(job, "ab")
        chunks = (await asking).aiter_text()
        assert (await anext(chunks)).startswith("event: message_start\n")
        assert not ledger.settled
        await node.answer(job, finish="stop")
        assert "event: message_stop" in "".join([chunk async for chunk in chunks])
        assert ledger.settled
    await steady.under_test.at_rest()


async def test_more_than_the_model_writes_is_capped(serving: Serving) -> None:
    snapshot = make_snapshot(MODEL)
    model = msgspec.structs.replace(snapshot.models[MODEL], output_tokens_max=3)
    serving.under_test.keys.current = msgspec.structs.replace(snapshot, models={MODEL: model})
    body = (await send(serving, max_tokens=32_000)).json()
    assert body["usage"]["output_tokens"] == 3


async def test_thoughts_and_the_engines_count(relay: Relay) -> None:
    async def asked(**fields: Any) -> httpx2.Response:
        asking = asyncio.create_task(send(relay.serving, **fields))
        exchange = await relay.upstream.next()
        assert exchange.body["messages"] == BODY["messages"]
        await exchange.answer(
            thought_chunk("Well."),
            text_chunk("2", finish="stop"),
            usage_chunk(9, 7, cached=4, reasoning=5),
        )
        return await asking

    whole = (await asked()).json()
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
    assert whole["content"][0]["thinking"] == "Well." and whole["content"][0]["signature"]
    assert (whole["usage"]["input_tokens"], whole["usage"]["cache_read_input_tokens"]) == (5, 4)
    assert whole["usage"]["output_tokens_details"] == {"thinking_tokens": 5}
    message = joined(read((await asked(stream=True)).content))
    assert message["content"] == whole["content"] and message["usage"] == whole["usage"]


async def test_tokens_are_counted_without_a_node_working(serving: Serving) -> None:
    answer = await send(serving, COUNT_PATH, system="xyz", max_tokens=None)
    assert (answer.status_code, answer.json()) == (200, {"input_tokens": 7})
    assert answer.headers["request-id"].startswith("req_")
    assert not serving.under_test.recorder.records and not serving.under_test.limiter.taken
    error = error_of(await send(serving, COUNT_PATH, messages=[]), "invalid_request_error")
    assert error["param"] == "messages"


async def test_counts_are_limited(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight_turns, "PER_MIN_MAX", 1)
    assert (await send(serving, COUNT_PATH)).status_code == 200
    refused = await send(serving, COUNT_PATH)
    error_of(refused, "rate_limit_error")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


async def test_where_no_tokenizer_is_here_a_count_is_an_estimate(relay: Relay) -> None:
    answer = await send(relay.serving, COUNT_PATH, system="x" * 4000)
    assert 1000 <= answer.json()["input_tokens"] <= 1100


async def test_errors_of_the_key(serving: Serving) -> None:
    client = serving.client
    for path in (PATH, COUNT_PATH):
        bad = await client.post(path, json=BODY, headers={"authorization": "Bearer nothing"})
        error = error_of(bad, "authentication_error")
        assert (bad.status_code, error["code"]) == (401, "invalid_api_key")
    del client.headers["authorization"]
    assert (await client.post(PATH, json=BODY, headers={"x-api-key": KEY})).status_code == 200
    serving.under_test.keys.keys[KEY] = make_key(endpoints=("chat",))
    for path in (PATH, COUNT_PATH):
        refused = await client.post(path, json=BODY, headers={"x-api-key": KEY})
        error_of(refused, "permission_error")
        assert refused.status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("POST", f"{PATH}/batches", 404, "not_found_error"),
        ("GET", f"{PATH}/batches/b_1", 404, "not_found_error"),
        ("GET", PATH, 405, "invalid_request_error"),
        ("GET", COUNT_PATH, 405, "invalid_request_error"),
    ],
)
async def test_other_paths(
    serving: Serving, method: str, path: str, status: int, kind: str
) -> None:
    answer = await serving.client.request(method, path)
    error_of(answer, kind)
    assert answer.status_code == status
    elsewhere = await serving.client.get("/v1/messagesx")
    assert "type" not in elsewhere.json() and "request-id" not in elsewhere.headers


@pytest.mark.parametrize(
    ("fields", "status", "kind", "code"),
    [
        ({"max_tokens": "x"}, 400, "invalid_request_error", None),
        ({"model": "nothing"}, 404, "not_found_error", "model_not_found"),
        (
            {"messages": [{"role": "user", "content": "a" * 5000}]},
            400,
            "invalid_request_error",
            "context_length_exceeded",
        ),
    ],
)
async def test_errors_of_a_request(
    serving: Serving, fields: dict[str, Any], status: int, kind: str, code: str | None
) -> None:
    answer = await send(serving, **fields)
    error = error_of(answer, kind)
    assert (answer.status_code, error["code"]) == (status, code)
    if code == "context_length_exceeded":
        assert error["message"].startswith("prompt is too long: ")


async def test_no_node_is_an_overload(bare: Serving) -> None:
    answer = await send(bare)
    error_of(answer, "overloaded_error")
    assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0


async def test_limits_are_told_in_headers(serving: Serving) -> None:
    rooms = (
        Room("requests", "key", 60, 59, 1.0),
        Room("tokens", "project", 1000, 900, 6.0),
        Room("concurrency", "key", 4, 3, 0.0),
    )
    limiter = serving.under_test.limiter
    limiter.answer = Allowance(allowed=True, rooms=rooms)
    headers = (await send(serving)).headers
    assert headers["anthropic-ratelimit-requests-limit"] == "60"
    assert headers["anthropic-ratelimit-requests-remaining"] == "59"
    assert headers["anthropic-ratelimit-tokens-remaining"] == "900"
    reset = headers["anthropic-ratelimit-tokens-reset"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", reset)
    assert not any("concurrency" in name for name in headers if name.startswith("anthropic"))
    limiter.answer = Allowance(allowed=False, rooms=rooms, refused_by=rooms[0], retry_after_s=2.0)
    refused = await send(serving)
    error_of(refused, "rate_limit_error")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    for name in ("requests-limit", "requests-remaining", "tokens-limit", "tokens-remaining"):
        assert refused.headers.get_list(f"anthropic-ratelimit-{name}") == [
            headers[f"anthropic-ratelimit-{name}"]
        ]
    assert refused.headers["anthropic-ratelimit-requests-reset"] >= reset[:4]
    body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    other = await serving.client.post("/v1/chat/completions", json=body)
    assert other.status_code == 429
    assert not any(name.startswith("anthropic") for name in other.headers)


async def test_a_stream_that_fails_ends_with_an_error_event(steady: Serving) -> None:
    async with hand_node(steady.under_test, steady.model) as node:
        asked = asyncio.create_task(send(steady, stream=True))
        job = await node.job()
        await node.answer(job, "ab")
        await node.socket.close()
        answer = await asked
    *_, failed = answer.text.strip().split("\n\n")
    name, line = failed.split("\n")
    error = json.loads(line.removeprefix("data: "))
    assert name == "event: error"
    assert (error["type"], error["error"]["type"]) == ("error", "api_error")
    assert error["error"]["code"] == "node_lost" and error["request_id"].startswith("req_")
    await steady.under_test.at_rest()
