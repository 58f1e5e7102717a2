"""C6 for tool schemas and templates: drafted, checked, published, named in requests, rolled back.

A real gateway process with a node; a developer's work goes by the API.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, NotFoundError

from controlplane.composed.demo import ADMIN_EMAIL, MODEL
from controlplane.kernel.ids import public_id
from controlplane.tenants.models import User
from tests.product.traffic import open_client
from tests.support.money import rows
from tests.support.operations import answered
from tests.support.orm import orm
from tests.support.people import signed_in
from tests.support.product import Plan, Product, demo_key, running_product
from tests.support.servers import Servers
from tests.support.waiting import until

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"tool": {"description": "The weather in a city.", "parameters": SCHEMA}}

TURN = {"messages": [{"role": "user", "content": "Rain?"}]}


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan()) as product:
        yield product


@pytest.fixture
async def client(product: Product) -> AsyncIterator[httpx2.AsyncClient]:
    made = open_client(product.urls[0])
    yield made
    await made.aclose()


async def operate(path: str, body: object = None) -> tuple[int, dict[str, Any]]:
    organization = public_id("org", demo_key().organization_id)
    return await answered("POST", f"catalog/templates/{organization}{path}", body)


async def publish(name: str, body: dict[str, Any]) -> int:
    _, made = await operate(f"/{name}/versions", {"body": body})
    version = made["version"]
    status, told = await operate(f"/{name}/versions/{version}/publish", {"revision": 1})
    assert status == 200, told
    return int(version)


async def test_c6_a_tool_from_draft_to_requests_and_back(
    product: Product, client: httpx2.AsyncClient
) -> None:
    key = {"authorization": f"Bearer {product.key}"}

    async def ask(**fields: Any) -> httpx2.Response:
        body = {"model": MODEL.name, **TURN, "max_tokens": 1, "tool_choice": "none"}
        return await client.post("/v1/chat/completions", json={**body, **fields}, headers=key)

    async def label(**fields: Any) -> str:
        return (await ask(**fields)).headers.get("x-sluice-tools", "")

    named = {"stored_tools": [{"id": "weather"}]}
    unknown = await ask(**named)
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "stored_tools[0].id")
    assert (await operate("", {"name": "weather"}))[0] == 201
    wrong = {"tool": {"description": "x", "parameters": {"type": "thing"}}}
    _, draft = await operate("/weather/versions", {"body": wrong})
    assert [one["field"] for one in draft["problems"]] == [
        "tool.parameters.type",
        "tool.parameters",
    ]
    refused, _ = await operate("/weather/versions/1/publish", {"revision": 1})
    assert refused == 400
    assert await publish("weather", WEATHER) == 2
    await until(lambda: _is(label(**named), "weather:2"))

    openai = AsyncOpenAI(base_url=f"{product.urls[0]}/v1", api_key=product.key, max_retries=0)
    asked: Any = {"model": MODEL.name, "extra_body": named, "tool_choice": "none"}
    answer = await openai.responses.with_raw_response.create(
        **asked, input="Rain?", max_output_tokens=1
    )
    assert answer.headers["x-sluice-tools"] == "weather:2"
    with pytest.raises(NotFoundError) as missing:
        nobody: Any = {"stored_tools": [{"id": "nobody"}]}
        await openai.responses.create(model=MODEL.name, input="Rain?", extra_body=nobody)
    assert missing.value.param == "stored_tools[0].id"
    await openai.close()
    message = {"model": MODEL.name, "max_tokens": 1, "tool_choice": {"type": "none"}}
    by_messages = await client.post("/v1/messages", json={**message, **named, **TURN}, headers=key)
    assert by_messages.headers["x-sluice-tools"] == "weather:2"
    counted = "/v1/messages/count_tokens"
    told = [
        (await client.post(counted, json=each, headers=key)).json()["input_tokens"]
        for each in ({"model": MODEL.name, **TURN}, {"model": MODEL.name, **named, **TURN})
    ]
    assert told[0] < told[1]

    await publish("weather", {"tool": {"description": "Other."}})
    await until(lambda: _is(label(**named), "weather:3"))
    assert await label(stored_tools=[{"id": "weather", "version": 2}]) == "weather:2"
    await operate("/weather/rollback")
    await until(lambda: _is(label(**named), "weather:4"))

    async def recorded() -> bool:
        found = await orm(lambda: rows("SELECT receipt FROM request_records WHERE status = 200"))()
        told = {tuple(json.loads(bytes(each)).get("tools", ())) for (each,) in found}
        return {("weather:2",), ("weather:3",), ("weather:4",)} <= told

    await until(recorded, 10)


async def test_c6_some_of_the_tools_of_a_template_are_allowed(
    product: Product, client: httpx2.AsyncClient
) -> None:
    for name in ("weather", "tides"):
        await operate("", {"name": name})
        await publish(name, WEATHER)
    await operate("", {"name": "coast"})
    both = [{"id": "weather"}, {"id": "tides"}]
    messages = [{"role": "system", "content": "Be brief."}]
    await publish("coast", {"messages": messages, "tools": both})
    headers = {"authorization": f"Bearer {product.key}"}

    async def labels(*names: str, **fields: Any) -> str:
        some = {"type": "allowed_tools", "tools": [{"name": name} for name in names]}
        said = {"model": MODEL.name, "input": "Rain?", "max_output_tokens": 1, "tool_choice": some}
        answer = await client.post("/v1/responses", json={**said, **fields}, headers=headers)
        return answer.headers.get("x-sluice-tools", "")

    template = {"prompt": {"id": "coast"}}
    await until(lambda: _is(labels("weather", "tides", **template), "weather:1, tides:1"))
    assert await labels("tides", **template) == "tides:1"
    assert await labels("tides", stored_tools=both) == "tides:1"
    # What the request names itself stands in the place of the template's.
    assert await labels("tides", stored_tools=both[:1], **template) == ""


async def test_p6_a_template_says_what_its_requests_leave_out(
    product: Product, client: httpx2.AsyncClient
) -> None:
    await operate("", {"name": "style"})
    await publish("style", {"messages": [{"role": "system", "content": "Be brief."}]})
    await operate("", {"name": "short"})
    body = {
        "model": MODEL.name,
        "parameters": {"max_tokens": 3},
        "messages": [{"role": "system", "content": "{{> style}} And kind."}],
    }
    await publish("short", body)
    headers = {"authorization": f"Bearer {product.key}"}
    turn = {"messages": [{"role": "user", "content": "What is a hold? " * 8}]}

    async def answered(**fields: Any) -> tuple[int, int]:
        sent = {"prompt": {"id": "short"}, **turn, **fields}
        answer = await client.post("/v1/chat/completions", json=sent, headers=headers)
        told = answer.json().get("usage", {})
        return answer.status_code, told.get("completion_tokens", 0)

    await until(lambda: _is(answered(), (200, 3)))
    assert await answered(max_tokens=2) == (200, 2)


@orm
def trial(name: str, **fields: str) -> tuple[list[dict[str, Any]], str]:
    """What the page of a trial would send, and a token that it is sent with."""
    pages, project = signed_in(User.objects.get(email=ADMIN_EMAIL)), str(demo_key().project_id)
    asked = {"first": "1", "second": "2", "project": project, "tokens": "9", "count": "1"}
    answer = pages.post(f"/templates/{name}/trial", {**asked, **fields})
    assert answer.status_code == 200, answer.content.decode()
    found = re.findall(r'data-body="([^"]*)"', answer.content.decode())
    token = pages.post("/playground/token", {"project": project})
    return [json.loads(html.unescape(each)) for each in found], token.json()["token"]


async def test_p6_a_trial_asks_a_draft_and_the_live_version_and_is_charged(
    product: Product, client: httpx2.AsyncClient
) -> None:
    await operate("", {"name": "greet"})
    variable = {"variables": [{"name": "who", "chars_max": 20}], "model": MODEL.name}
    hello = {"role": "user", "content": "Hello {{who}}."}
    await publish("greet", {**variable, "messages": [hello]})
    draft = {**variable, "messages": [{"role": "system", "content": "Be kind."}, hello]}
    await operate("/greet/versions", {"body": {**draft, "parameters": {"max_tokens": 2}}})
    bodies, token = await trial("greet", **{"value-who": "Ann"})
    answers = []
    for body in bodies:
        body |= {"stream": False, "stream_options": None}
        headers = {"authorization": f"Bearer {token}"}
        answers.append(await client.post("/v1/chat/completions", json=body, headers=headers))
    assert [each.status_code for each in answers] == [200, 200], [each.text for each in answers]
    used = [each.json()["usage"] for each in answers]
    assert [each["completion_tokens"] for each in used] == [9, 2]
    assert used[0]["prompt_tokens"] < used[1]["prompt_tokens"]
    assert bodies[1]["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello Ann."},
    ]

    @orm
    def charged() -> int:
        found = rows("SELECT project FROM request_records WHERE cost_nano > 0")
        return sum(project == demo_key().project_id for (project,) in found)

    async def both() -> bool:
        return await charged() == 2

    await until(both)


async def _is(found: Any, wanted: object) -> bool:
    return bool(await found == wanted)
