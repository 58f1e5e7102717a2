"""What a client reads: chunks, bodies, headers; the same text and cost whichever way it asked."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx2
import msgspec
import pytest

from controlplane.gateway.ports import Allowance, BudgetRoom, KeyStanding, Room
from controlplane.kernel.money import usd_text
from controlplane.kernel.price import TokenCounts, charge_nano
from inference.contract.parts import TokenLogprob
from tests.support.fleet import MODEL
from tests.support.memory_ledger import MemoryBudget
from tests.support.nodes import HandNode, hand_node
from tests.support.ports import ORGANIZATION, PRICE, make_snapshot
from tests.support.serving import Serving
from tests.support.waiting import until

USAGE = {"stream_options": {"include_usage": True}}
DURATION = re.compile(r"\d+ms|\d+s|\d+m\d+s")


def events(answer: httpx2.Response) -> list[dict[str, Any]]:
    """All chunks of a stream that ended well."""
    parts = answer.text.split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def choices(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The one choice of each chunk that has any."""
    return [chunk["choices"][0] for chunk in chunks if chunk["choices"]]


def joined(chunks: list[dict[str, Any]], choice: int = 0) -> str:
    """Text of one choice."""
    mine = [each for each in choices(chunks) if each["index"] == choice]
    return "".join(
        each["text"] if "text" in each else each["delta"].get("content", "") for each in mine
    )


async def recorded_limit(serving: Serving) -> dict[str, Any]:
    """What the record of the one request says of the limit that refused it."""
    records = serving.under_test.recorder.records
    await until(lambda: records)
    (record,) = records
    receipt: dict[str, Any] = msgspec.json.decode(record.receipt)
    limit: dict[str, Any] = receipt["limit"]
    return limit


async def test_chat_body(serving: Serving) -> None:
    answer = await serving.chat()
    body = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert body["id"].startswith("chatcmpl-") and body["object"] == "chat.completion"
    assert body["model"] == MODEL and body["system_fingerprint"].startswith("fp_")
    (choice,) = body["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "abcdab", "refusal": None},
        "logprobs": None,
        "finish_reason": "length",
    }
    assert body["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 6,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    cost = charge_nano(PRICE, TokenCounts(uncached=4, cached=0, output=6))
    assert body["sluice"] == {"cost_usd": usd_text(cost)}


async def test_completion_body(serving: Serving) -> None:
    body = (await serving.complete()).json()
    assert body["id"].startswith("cmpl-") and body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "text": "abcdab", "logprobs": None, "finish_reason": "length"}
    ]


async def test_chat_chunks(serving: Serving) -> None:
    answer = await serving.chat(stream=True)
    chunks = events(answer)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    for field in ("id", "created", "model", "system_fingerprint", "service_tier", "object"):
        assert len({chunk[field] for chunk in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert choices(chunks)[0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert choices(chunks)[-1] == {
        "index": 0, "delta": {}, "logprobs": None, "finish_reason": "length",
    }  # fmt: skip
    assert {each["finish_reason"] for each in choices(chunks)[:-1]} == {None}
    assert joined(chunks) == "abcdab"
    assert not any("usage" in chunk for chunk in chunks)


async def test_usage_chunk_comes_last_and_only_when_asked_for(serving: Serving) -> None:
    chunks = events(await serving.chat(stream=True, **USAGE))
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] == 10
    assert chunks[-1]["sluice"]["cost_usd"]


async def test_completion_chunks(serving: Serving) -> None:
    chunks = events(await serving.complete(stream=True, **USAGE))
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert joined(chunks) == "abcdab"
    assert choices(chunks)[-1]["finish_reason"] == "length"


@pytest.mark.parametrize("operation", ["chat", "complete"])
@pytest.mark.parametrize(
    "fields", [{}, {"stop": ["da"], "max_tokens": 50}, {"n": 3}, {"max_tokens": 200}]
)
async def test_a_stream_says_and_costs_the_same_as_a_whole_answer(
    serving: Serving, operation: str, fields: dict[str, Any]
) -> None:
    ask = getattr(serving, operation)
    whole = (await ask(**fields)).json()
    chunks = events(await ask(stream=True, **USAGE, **fields))
    for choice in whole["choices"]:
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert joined(chunks, choice["index"]) == text
        reasons = [
            each["finish_reason"]
            for chunk in chunks
            for each in chunk["choices"]
            if each["index"] == choice["index"] and each["finish_reason"]
        ]
        assert reasons == [choice["finish_reason"]]
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-1]["sluice"] == whole["sluice"]
    await serving.under_test.at_rest()
    first, second = serving.under_test.ledger.settled.values()
    assert (first.amount_nano, first.counts) == (second.amount_nano, second.counts)


async def test_every_choice_opens_with_its_role(serving: Serving) -> None:
    chunks = events(await serving.chat(stream=True, n=3))
    opening = [each["index"] for each in choices(chunks) if "role" in each["delta"]]
    assert sorted(opening) == [0, 1, 2]


async def test_text_beyond_ascii_arrives_whole(serving: Serving) -> None:
    message = [{"role": "user", "content": "é€😀"}]
    whole = (await serving.chat(messages=message, max_tokens=18)).json()
    chunks = events(await serving.chat(messages=message, max_tokens=18, stream=True))
    assert whole["choices"][0]["message"]["content"] == joined(chunks) == "é€😀é€😀"
    assert all("\ufffd" not in each["delta"].get("content", "") for each in choices(chunks))


async def test_headers_of_an_answer(serving: Serving) -> None:
    rooms = (
        Room("requests", "key", 60, 59, 1.0),
        Room("tokens", "project", 9000, 8000, 367.0),
        Room("requests-day", "organization", 5000, 4000, 4000.0),
        Room("concurrency", "key", 4, 3, 0.0),
    )
    serving.under_test.limiter.answer = Allowance(allowed=True, rooms=rooms)
    for answer in (await serving.chat(), await serving.chat(stream=True)):
        headers = answer.headers
        assert re.fullmatch(r"req_[0-9a-f]{32}", headers["x-request-id"])
        assert headers["openai-organization"] == f"org_{ORGANIZATION}"
        assert int(headers["openai-processing-ms"]) >= 0 and headers["openai-version"]
        assert headers["x-ratelimit-limit-requests"] == "60"
        assert headers["x-ratelimit-remaining-requests"] == "59"
        assert headers["x-ratelimit-reset-requests"] == "1s"
        assert headers["x-ratelimit-limit-tokens"] == "9000"
        assert headers["x-ratelimit-remaining-tokens"] == "8000"
        assert headers["x-ratelimit-reset-tokens"] == "6m7s"
        assert headers["x-ratelimit-limit-requests-day"] == "5000"
        assert headers["x-ratelimit-reset-requests-day"] == "1h6m40s"
        assert headers["x-ratelimit-remaining-concurrency"] == "3"
        assert "x-ratelimit-reset-concurrency" not in headers
        assert headers["x-sluice-pool"] == "default" and headers["x-sluice-model"] == MODEL
        assert headers["x-sluice-route"] == "direct"
        timing = headers["server-timing"]
        assert re.fullmatch(r"(s\d_[a-z]+;dur=\d+\.\d{3}(, )?)+", timing)
        assert "s1_admission" in timing and "s3_tokenize" in timing


async def test_an_answer_names_its_node_only_where_the_operator_says_so(serving: Serving) -> None:
    world = serving.under_test.world
    for world.node_header in (True, False):
        assert ("x-sluice-node" in (await serving.chat(max_tokens=1)).headers) == world.node_header


async def test_stages_are_all_timed_in_a_whole_answer(serving: Serving) -> None:
    timing = (await serving.chat()).headers["server-timing"]
    assert [part[:2] for part in timing.split(", ")] == ["s1", "s2", "s3", "s4", "s5", "s6", "s7"]


@pytest.mark.parametrize(
    ("wait_s", "after", "after_ms", "retries"),
    [
        (0.0, "1", "100", True),
        (0.0004, "1", "100", True),
        (1.4, "2", "1400", True),
        (600.0, "600", "600000", False),
    ],
)
async def test_rate_limit(
    serving: Serving, wait_s: float, after: str, after_ms: str, retries: bool
) -> None:
    room = Room("tokens", "key", 1000, 0, wait_s)
    serving.under_test.limiter.answer = Allowance(
        allowed=False, rooms=(room,), refused_by=room, retry_after_s=wait_s
    )
    answer = await serving.chat()
    assert answer.status_code == 429
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("tokens", "rate_limit_exceeded")
    assert "1000 tokens per minute" in error["message"]
    assert " 0ms" not in error["message"]
    assert answer.headers["retry-after"] == after
    assert answer.headers["retry-after-ms"] == after_ms
    assert answer.headers.get("x-should-retry") == (None if retries else "false")
    assert answer.headers["x-ratelimit-remaining-tokens"] == "0"
    assert DURATION.fullmatch(answer.headers["x-ratelimit-reset-tokens"])
    assert not serving.under_test.ledger.held
    told = await recorded_limit(serving)
    assert told.pop("asked") == serving.under_test.limiter.taken[-1]
    times = {"retry_after_ms": int(after_ms), "reset_ms": round(wait_s * 1000)}
    assert told == {"kind": "tokens", "scope": "key", "limit": 1000, **times}


async def test_limits_without_a_clock_are_recorded_without_times(serving: Serving) -> None:
    limiter = serving.under_test.limiter
    room = Room("concurrency", "project", 4, 0, 0.0)
    limiter.answer = Allowance(allowed=False, refused_by=room, retry_after_s=1.0)
    assert (await serving.chat()).status_code == 429
    assert await recorded_limit(serving) == {"kind": "concurrency", "scope": "project", "limit": 4}


async def test_limits_that_could_not_be_counted_are_recorded_as_that(serving: Serving) -> None:
    serving.under_test.limiter.answer = Allowance(allowed=False, retry_after_s=1.0)
    assert (await serving.chat()).status_code == 429
    assert await recorded_limit(serving) == {"kind": "uncounted", "retry_after_ms": 1000}


async def test_budget_without_room(serving: Serving) -> None:
    serving.under_test.ledger.room_nano = 1
    answer = await serving.chat()
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (429, "insufficient_quota")
    assert error["type"] == "insufficient_quota" and "USD" in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    told = await recorded_limit(serving)
    assert f"up to {usd_text(told.pop('asked'))} USD" in error["message"]
    assert told == {"kind": "budget", "scope": "organization", "budget": ORGANIZATION}


async def test_the_budget_of_the_key_is_told_to_who_has_the_key(serving: Serving) -> None:
    under_test = serving.under_test
    own = BudgetRoom(
        scope="key",
        limit_nano=2_000,
        spent_nano=1_500,
        held_nano=499,
        period="day",
        turns_at_s=1_795_046_400.0,
    )
    whole = msgspec.structs.replace(own, scope="organization", limit_nano=987_654_321)
    under_test.standings.standing = KeyStanding(budgets=(own, whole))
    under_test.ledger.budgets[ORGANIZATION] = MemoryBudget(lim=1, scope="key")
    told = (await serving.chat()).json()["error"]["message"]
    assert told.startswith("The key's budget is too low for this request, which could cost up to")
    assert (
        "0.000000001 USD of 0.000002000 USD a day is left: 0.000001500 is spent and 0.000000499 is"
        " held for requests in progress. It resets at 2026-11-19T00:00:00Z. Lower max_tokens"
    ) in told
    # Whoever calls may have no right to see what the organization spends.
    assert "987" not in told
    under_test.ledger.budgets[ORGANIZATION].scope = "organization"
    told = (await serving.chat()).json()["error"]["message"]
    assert told.startswith("The organization's budget is too low") and "left" not in told
    # Figures that cannot be read, or are better by now, keep nobody from the answer.
    under_test.ledger.budgets[ORGANIZATION].scope = "key"
    later = msgspec.structs.replace(own, limit_nano=10**9)
    asked, no, yes = under_test.standings, False, True
    for room, asked.away, asked.busy in ((later, no, no), (own, yes, no), (own, no, yes)):
        asked.standing = KeyStanding(budgets=(room,))
        answer = await serving.chat()
        assert answer.status_code == 429 and "left" not in answer.json()["error"]["message"]


async def test_exact_count_is_tried_before_a_budget_refuses(serving: Serving) -> None:
    exact = charge_nano(PRICE, TokenCounts(uncached=4, cached=0, output=6))
    serving.under_test.ledger.room_nano = exact
    assert (await serving.chat()).status_code == 200


async def test_models(serving: Serving) -> None:
    listed = (await serving.client.get("/v1/models")).json()
    (model,) = listed["data"]
    assert listed["object"] == "list" and model["object"] == "model"
    assert (model["id"], model["owned_by"]) == (MODEL, "sluice")
    assert (await serving.client.get(f"/v1/models/{MODEL}")).json() == model
    missing = await serving.client.get("/v1/models/none")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_blocked_answer(serving: Serving) -> None:
    serving.under_test.keys.current = make_snapshot(MODEL, safety="block")
    message = [{"role": "user", "content": "idiot "}]
    whole = await serving.chat(messages=message, max_tokens=60)
    assert whole.json()["choices"][0]["finish_reason"] == "content_filter"
    assert whole.json()["choices"][0]["message"]["content"] == ""
    chunks = events(await serving.chat(messages=message, max_tokens=60, stream=True))
    assert joined(chunks) == "" and choices(chunks)[-1]["finish_reason"] == "content_filter"
    await serving.under_test.at_rest()
    assert [record.safety for record in serving.under_test.recorder.records] == ["abuse"] * 2


async def test_flagged_answer_is_shown_and_marked(serving: Serving) -> None:
    serving.under_test.keys.current = make_snapshot(MODEL, safety="flag")
    message = [{"role": "user", "content": "idiot "}]
    answer = await serving.chat(messages=message, max_tokens=60, stream=True)
    assert joined(events(answer)) == "idiot " * 10
    await serving.under_test.at_rest()
    assert serving.under_test.recorder.records[0].safety == "abuse"


# Logprobs: an echo has none, so these nodes' frames are written by hand.

# The second is below what the API writes for "no chance at all".
TOP = [(65, -0.5), (66, -20_000.0)]


async def say_ab(node: HandNode) -> None:
    """Two tokens in two steps."""
    job = await node.job()
    for text, finish in (("A", None), ("B", "stop")):
        entry = TokenLogprob(token=ord(text), logprob=-0.5, top=TOP)
        await node.answer(job, text, finish=finish, logprobs=[entry])


async def both_ways(bare: Serving, ask: Any, **fields: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The same answer whole and as chunks."""
    async with hand_node(bare.under_test, bare.model, capabilities=["logprobs"]) as node:
        whole = asyncio.create_task(ask(**fields))
        await say_ab(node)
        stream = asyncio.create_task(ask(stream=True, **fields))
        await say_ab(node)
        await whole
        await stream
        await bare.under_test.at_rest()
    return whole.result().json(), events(stream.result())


async def test_logprobs_of_a_chat(bare: Serving) -> None:
    whole, chunks = await both_ways(bare, bare.chat, logprobs=True, top_logprobs=2)
    content = whole["choices"][0]["logprobs"]["content"]
    assert [entry["logprob"] for entry in content] == [-0.5, -0.5]
    for entry in content:
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert [top["logprob"] for top in entry["top_logprobs"]] == [-0.5, -9999.0]
    text = whole["choices"][0]["message"]["content"]
    assert "".join(entry["token"] for entry in content) == text
    streamed = [
        entry
        for each in choices(chunks)
        for entry in (each["logprobs"] or {"content": []})["content"]
    ]
    assert streamed == content


async def test_logprobs_of_a_completion(bare: Serving) -> None:
    whole, chunks = await both_ways(bare, bare.complete, logprobs=2)
    logprobs = whole["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == whole["choices"][0]["text"]
    assert logprobs["token_logprobs"] == [-0.5, -0.5]
    assert logprobs["text_offset"] == [0, 1]
    assert all(list(top.values()) == [-0.5, -9999.0] for top in logprobs["top_logprobs"])
    parts = [each["logprobs"] for each in choices(chunks) if each["logprobs"]]
    for field in logprobs:
        assert [value for part in parts for value in part[field]] == logprobs[field]


async def test_no_logprobs_unless_asked_for(bare: Serving) -> None:
    whole, chunks = await both_ways(bare, bare.chat)
    assert whole["choices"][0]["logprobs"] is None
    assert all(each["logprobs"] is None for each in choices(chunks))
