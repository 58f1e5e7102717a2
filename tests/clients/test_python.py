"""The official Python client against the gateway: answers, streams, error classes, retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from controlplane.gateway.ports import Allowance, Room
from tests.support.fleet import MODEL
from tests.support.nodes import hand_node
from tests.support.ports import KEY
from tests.support.serving import Serving
from tests.support.waiting import until

MESSAGES: Any = [{"role": "user", "content": "abcd"}]


@pytest.fixture
async def official(serving: Serving) -> AsyncIterator[AsyncOpenAI]:
    """The asynchronous client."""
    async with AsyncOpenAI(base_url=f"{serving.under_test.url}/v1", api_key=KEY) as client:
        yield client


def limited(serving: Serving, *, wait_s: float) -> list[int]:
    """Refuse every request from now on; the list grows by one per request."""
    limiter = serving.under_test.limiter
    limiter.answer = Allowance(
        allowed=False, refused_by=Room("requests", "key", 1, 0, wait_s), retry_after_s=wait_s
    )
    limiter.taken.clear()
    return limiter.taken


async def test_whole_answer(official: AsyncOpenAI) -> None:
    answer = await official.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=6)
    assert answer.choices[0].message.content == "abcdab"
    assert answer.usage is not None and answer.usage.total_tokens == 10
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert answer._request_id is not None and answer._request_id.startswith("req_")


async def test_stream(official: AsyncOpenAI) -> None:
    text, usage = "", None
    stream = await official.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=6, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    async for chunk in stream:
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
        usage = chunk.usage or usage
    assert text == "abcdab" and usage is not None and usage.completion_tokens == 6


async def test_text_completion_and_models(official: AsyncOpenAI) -> None:
    answer = await official.completions.create(model=MODEL, prompt="abcd", max_tokens=6, n=2)
    assert [choice.text for choice in answer.choices] == ["abcdab"] * 2
    assert [model.id async for model in official.models.list()] == [MODEL]
    assert (await official.models.retrieve(MODEL)).owned_by == "sluice"


async def test_synchronous_client(serving: Serving) -> None:
    def talk() -> tuple[str | None, str]:
        with OpenAI(base_url=f"{serving.under_test.url}/v1", api_key=KEY) as client:
            whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=6)
            stream = client.completions.create(
                model=MODEL, prompt="abcd", max_tokens=6, stream=True
            )
            return whole.choices[0].message.content, "".join(
                chunk.choices[0].text for chunk in stream
            )

    assert await asyncio.to_thread(talk) == ("abcdab", "abcdab")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"temperature": 5}, openai.BadRequestError),
        ({"model": "none"}, openai.NotFoundError),
        ({"extra_headers": {"authorization": "Bearer no"}}, openai.AuthenticationError),
    ],
)
async def test_error_classes(
    official: AsyncOpenAI, fields: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as caught:
        await official.chat.completions.create(
            **{"model": MODEL, "messages": MESSAGES, "max_tokens": 1, **fields}
        )
    assert caught.value.request_id and caught.value.type == "invalid_request_error"
    if "temperature" in fields:
        assert caught.value.param == "temperature"


async def test_overload_and_budget(serving: Serving, official: AsyncOpenAI) -> None:
    serving.under_test.ledger.room_nano = 0
    with pytest.raises(openai.RateLimitError) as caught:
        await official.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1)
    assert caught.value.code == "insufficient_quota"
    assert len(serving.under_test.limiter.taken) == 1
    serving.under_test.ledger.away = True
    with pytest.raises(openai.InternalServerError) as failed:
        await official.with_options(max_retries=0).chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=1
        )
    assert failed.value.code == "ledger_unavailable"


async def test_short_wait_is_kept_and_retried(serving: Serving, official: AsyncOpenAI) -> None:
    taken = limited(serving, wait_s=0.05)
    with pytest.raises(openai.RateLimitError) as caught:
        await official.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1)
    assert caught.value.code == "rate_limit_exceeded"
    assert len(taken) == 1 + openai.DEFAULT_MAX_RETRIES


async def test_retry_that_succeeds(serving: Serving, official: AsyncOpenAI) -> None:
    taken = limited(serving, wait_s=0.2)
    asked = asyncio.create_task(
        official.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=6)
    )
    await until(lambda: taken)
    serving.under_test.limiter.answer = Allowance(allowed=True)
    assert (await asked).choices[0].message.content == "abcdab"
    assert len(taken) == 2


async def test_long_wait_is_not_retried(serving: Serving, official: AsyncOpenAI) -> None:
    taken = limited(serving, wait_s=3600.0)
    with pytest.raises(openai.RateLimitError):
        await official.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1)
    assert len(taken) == 1


async def test_stream_that_breaks_raises(bare: Serving) -> None:
    async with (
        AsyncOpenAI(base_url=f"{bare.under_test.url}/v1", api_key=KEY) as client,
        hand_node(bare.under_test, bare.model) as node,
    ):
        opening = asyncio.create_task(
            client.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_tokens=50, stream=True
            )
        )
        await node.answer(await node.job(), "abc")
        stream = await opening
        await node.socket.close()
        with pytest.raises(openai.APIError) as caught:
            async for _ in stream:
                pass
        assert caught.value.code == "node_lost"
        await bare.under_test.at_rest()
