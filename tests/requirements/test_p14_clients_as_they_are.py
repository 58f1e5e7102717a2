"""P14: what real clients send is taken: it does what it says, or is ignored and named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, AuthenticationError, BadRequestError

from controlplane.composed.demo import MODEL
from controlplane.kernel.receipt import read_receipt
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.people import demo_admin
from tests.support.product import Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import until

IGNORED = "x-sluice-ignored"
MESSAGES: Any = [{"role": "user", "content": "Book a room in Rome for two nights."}]
TOOL: Any = {"type": "function", "function": {"name": "book", "parameters": {"properties": {}}}}
WITHOUT_BASE = (
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/models",
    "/responses",
    "/messages",
)


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers) as product:
        yield product


@pytest.fixture
async def client(product: Product) -> AsyncIterator[AsyncOpenAI]:
    """The official client."""
    base = f"{product.urls[0]}/v1"
    async with AsyncOpenAI(base_url=base, api_key=product.key, max_retries=0) as client:
        yield client


async def ask(client: AsyncOpenAI, **fields: Any) -> tuple[Any, Any]:
    """The headers of a chat's answer, and the answer."""
    wanted = {"model": MODEL.name, "messages": MESSAGES, "max_tokens": 6, **fields}
    raw = await client.chat.completions.with_raw_response.create(**wanted)
    return raw.headers, raw.parse()


async def test_answers_go_back_as_history(client: AsyncOpenAI) -> None:
    history = list(MESSAGES)
    for _ in range(3):
        _, answer = await ask(client, messages=history)
        history.append(answer.choices[0].message.model_dump())
        history.append({"role": "user", "content": "And for three?"})
    call = {"id": "c1", "type": "function", "index": 0}
    call["function"] = {"name": "book", "arguments": "{}"}
    said = {**history[1], "content": None, "tool_calls": [call], "annotations": [{"type": "x"}]}
    done = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    headers, answer = await ask(client, messages=[*history, said, done])
    assert answer.choices[0].message.content
    place = len(history)
    assert headers[IGNORED] == (
        f"messages[{place}].annotations, messages[{place}].tool_calls[0].index"
    )


async def test_what_changes_nothing_is_named_and_kept_with_the_request(
    client: AsyncOpenAI,
) -> None:
    headers, _ = await ask(
        client,
        store=False,
        prompt_cache_key="user-1",
        safety_identifier="s",
        verbosity="low",
        modalities=["text"],
        stop=list("¹²³¼½"),
        extra_body={"num_ctx": 4096, "think": None, "keep_alive": "5m"},
    )
    named = {"store", "verbosity", "num_ctx", "keep_alive"}
    assert set(headers[IGNORED].split(", ")) == named
    request = headers["x-request-id"].removeprefix("req_")

    async def recorded() -> bool:
        query = "SELECT receipt FROM request_records WHERE replace(request::text, '-', '') = %s"
        found = rows(query, request)
        return bool(found) and "keep_alive" in read_receipt(bytes(found[0][0])).ignored

    await until(recorded)


async def test_a_plain_answer_names_nothing(client: AsyncOpenAI) -> None:
    headers, _ = await ask(client, user=None, n=2)
    assert IGNORED not in headers


async def test_null_is_not_sent(client: AsyncOpenAI) -> None:
    names = (
        "stop", "n", "tools", "tool_choice", "response_format", "logprobs", "top_logprobs", "seed",
        "stream", "stream_options", "functions", "function_call", "store", "audio", "metadata",
        "logit_bias", "service_tier", "reasoning_effort", "unheard_of",
    )  # fmt: skip
    message = {"role": "user", "content": "a", "name": None, "tool_calls": None, "x": None}
    headers, answer = await ask(client, messages=[message], extra_body=dict.fromkeys(names))
    assert answer.choices[0].message.content and IGNORED not in headers


async def test_a_strict_project_refuses_what_no_api_has_and_no_more(
    client: AsyncOpenAI, product: Product
) -> None:
    await orm(_set_strict)(True)
    try:

        async def refused() -> bool:
            try:
                await ask(client, extra_body={"unheard_of": 1})
            except BadRequestError as error:
                assert (error.code, error.param) == ("unknown_parameter", "unheard_of")
                return True
            return False

        await until(refused)
        headers, _ = await ask(client, store=True, user="u")
        assert headers[IGNORED] == "store"
    finally:
        await orm(_set_strict)(False)


def _set_strict(strict: bool) -> None:
    """By the form on the page."""
    ((project, name),) = rows("SELECT id, name FROM projects")
    form = {"name": name, "safety_mode": "off", **({"strict": "on"} if strict else {})}
    demo_admin().post(f"/projects/{project.hex}", form)


async def test_what_asks_for_nothing_is_tolerated_and_a_loss_is_refused(
    client: AsyncOpenAI,
) -> None:
    await ask(client, tools=[], tool_choice="none", parallel_tool_calls=True)
    await ask(client, tools=[TOOL], tool_choice="none")
    for field, value in (("functions", [{"name": "f"}]), ("modalities", ["audio"])):
        with pytest.raises(BadRequestError) as caught:
            await ask(client, extra_body={field: value})
        assert (caught.value.param or "").startswith(field)


async def test_a_wrong_key_is_told_in_the_words_that_clients_look_for(product: Product) -> None:
    for key in ("sk-wrong", product.key[:-1] + "_"):
        async with AsyncOpenAI(base_url=f"{product.urls[0]}/v1", api_key=key) as client:
            with pytest.raises(AuthenticationError) as caught:
                await client.models.list()
        assert "Incorrect API key provided" in str(caught.value)
        assert key not in str(caught.value)
    async with httpx2.AsyncClient(base_url=product.urls[0]) as bare:
        told = (await bare.get("/v1/models")).json()["error"]["message"]
    assert told.startswith("You didn't provide an API key.")


async def test_programs_read_json_wherever_they_ask(product: Product) -> None:
    async with httpx2.AsyncClient(base_url=product.urls[0]) as bare:
        assert (await bare.get("/health")).json()["status"] == "ok"
        assert "version" in (await bare.get("/version")).json()
        for path in WITHOUT_BASE:
            answer = await bare.post(path, json={})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
            assert "must end in /v1" in answer.json()["error"]["message"]
        for path in ("/v1/unheard-of", "/"):
            answer = await bare.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
        assert (await bare.head("/")).status_code == 404


async def test_embeddings_take_fields_of_others_too(client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        await client.embeddings.create(
            model=MODEL.name, input="a", user="u", extra_body={"truncate_prompt_tokens": None}
        )
    assert caught.value.code == "model_task_mismatch"
    assert caught.value.param == "model"
