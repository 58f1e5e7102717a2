"""Policies of a project at work in a gateway: what is refused, masked, cut and told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import msgspec
import pytest

from controlplane.gateway.snapshot import PromptRecord
from controlplane.kernel.policies.terms import OwnPattern, Policies
from controlplane.kernel.prompts import PromptBody, PromptMessage, Variable
from tests.support.fleet import MODEL, TEMPLATE
from tests.support.nodes import hand_node, say
from tests.support.ports import ORGANIZATION, PROJECT
from tests.support.serving import Serving

MAIL = "ann@example.org"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n'


def demand(serving: Serving, **more: Any) -> None:
    """Policies of the one project; `keeps_days` and the like beside them."""
    names = set(Policies.__struct_fields__)
    policies = Policies(**{name: more.pop(name) for name in names & more.keys()})
    keys = serving.under_test.keys
    project = msgspec.structs.replace(keys.current.projects[PROJECT], policies=policies, **more)
    keys.current = msgspec.structs.replace(keys.current, projects={PROJECT: project})


def receipt(serving: Serving) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(serving.under_test.recorder.records[-1].receipt)
    return made


def said(answer: httpx2.Response) -> str:
    if answer.headers["content-type"].startswith("application/json"):
        text: str = answer.json()["choices"][0]["message"]["content"]
        return text
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line][:-1]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def refused(answer: httpx2.Response) -> tuple[int, str, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"], answer.headers["x-sluice-policy"]


async def test_a_bound_on_the_output_may_be_required(serving: Serving) -> None:
    demand(serving, require_max_tokens=True)
    answer = await serving.chat(max_tokens=None)
    wanted = (400, "policy_violation", "max_tokens", "require_max_tokens")
    assert refused(answer) == wanted
    assert (await serving.chat(max_tokens=None, max_completion_tokens=2)).status_code == 200
    bare = await serving.complete(max_tokens=None)
    assert refused(bare) == wanted
    body = {"model": MODEL, "input": "abcd"}
    response = await serving.client.post("/v1/responses", json=body)
    assert refused(response)[2] == "max_output_tokens"
    talk = {"model": MODEL, "messages": [{"role": "user", "content": "abcd"}]}
    counted = await serving.client.post("/v1/messages/count_tokens", json=talk)
    assert counted.status_code == 200
    await serving.under_test.at_rest()
    assert receipt(serving)["policy"] == "require_max_tokens"


async def test_long_answers_may_have_to_be_streamed(serving: Serving) -> None:
    demand(serving, unstreamed_tokens_max=6)
    assert (await serving.chat(max_tokens=6)).status_code == 200
    assert (await serving.chat(max_tokens=7, stream=True)).status_code == 200
    wanted = (400, "policy_violation", "stream", "unstreamed_tokens_max")
    assert refused(await serving.chat(max_tokens=7)) == wanted
    # All choices together, and the model's default where none is named.
    assert refused(await serving.chat(max_tokens=3, n=3)) == wanted
    assert refused(await serving.chat(max_tokens=None)) == wanted


async def test_tools_that_are_offered_have_a_bound(serving: Serving) -> None:
    demand(serving, tools_max=0)
    assert refused(await serving.chat(tools=[TOOL])) == (
        400, "policy_violation", "tools", "tools_max",
    )  # fmt: skip
    assert (await serving.chat(tools=[TOOL], tool_choice="none")).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_ends_with_the_last_call_that_it_may_have(
    bare: Serving, stream: bool
) -> None:
    under_test = bare.under_test
    config = {"chat_template": TEMPLATE + "{% if tools %}<tool_call>{% endif %}"}
    (bare.model / "tokenizer_config.json").write_text(json.dumps(config))
    demand(bare, calls_max=2)
    async with hand_node(under_test, bare.model, capabilities=["grammar"]) as node:
        asked = asyncio.create_task(bare.chat(tools=[TOOL], max_tokens=500, stream=stream))
        await say(node, await node.job(), bare.model, CALL * 4, width=1)
        answer = await asked
        await under_test.at_rest()
    assert answer.headers["x-sluice-policy"] == "calls_max=2"
    assert answer.text.count('"name":"f"') == 2
    assert '"finish_reason":"tool_calls"' in answer.text
    assert receipt(bare)["policy"] == "calls_max"
    (record,) = under_test.recorder.records
    assert record.output_tokens <= 3 * len(CALL)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_sees_placeholders_and_the_client_what_it_sent(
    serving: Serving, stream: bool
) -> None:
    text = f"to {MAIL} from {MAIL} cc b@example.org"
    demand(serving, personal={"email": "mask"}, keeps_days=1)
    messages = [{"role": "user", "content": text}]
    # An echo node answers with its prompt, byte by byte: so many.
    hidden = len(text) - 2 * len(MAIL) - len("b@example.org") + 3 * len("[EMAIL_01234567]")
    answer = await serving.chat(messages=messages, max_tokens=2 * hidden, stream=stream)
    assert said(answer) == 2 * text
    assert answer.headers["x-sluice-masked"] == "email=3"
    await serving.under_test.at_rest()
    assert receipt(serving)["masked"] == {"email": 3}
    (kept,) = serving.under_test.contents.kept.values()
    whole = msgspec.json.encode(kept).decode() + kept.body.decode()
    assert MAIL not in whole and "[EMAIL_" in kept.choices[0].text and "[EMAIL_" in whole


async def test_a_stored_response_is_masked_and_its_answer_is_not(serving: Serving) -> None:
    demand(serving, personal={"email": "mask"}, keeps_days=1)
    body = {"model": MODEL, "input": f"to {MAIL}", "instructions": f"as {MAIL}: "}
    answer = await serving.client.post("/v1/responses", json={**body, "max_output_tokens": 60})
    first = answer.json()
    assert MAIL in first["output"][0]["content"][0]["text"]
    assert first["instructions"] == body["instructions"]
    stored = (await serving.client.get(f"/v1/responses/{first['id']}")).json()
    assert MAIL not in json.dumps(stored) and "[EMAIL_" in stored["instructions"]
    more = {"model": MODEL, "input": f" {MAIL}", "previous_response_id": first["id"]}
    second = await serving.client.post("/v1/responses", json={**more, "max_output_tokens": 200})
    # What was said before comes back, too: the same text has the same placeholder.
    assert f"to {MAIL}" in second.json()["output"][0]["content"][0]["text"]
    await serving.under_test.at_rest()


async def test_what_was_stored_before_there_were_policies_is_masked_when_it_is_followed(
    serving: Serving,
) -> None:
    demand(serving, keeps_days=1)
    asked = {"model": MODEL, "input": f"to {MAIL}", "max_output_tokens": 60}
    first = (await serving.client.post("/v1/responses", json=asked)).json()
    demand(serving, personal={"email": "mask"}, keeps_days=1)
    more = {**asked, "input": " b", "previous_response_id": first["id"]}
    answer = await serving.client.post("/v1/responses", json=more)
    assert f"to {MAIL}" in answer.json()["output"][0]["content"][0]["text"]
    assert answer.headers["x-sluice-masked"].startswith("email=")
    demand(serving, personal={"email": "refuse"}, keeps_days=1)
    told = await serving.client.post("/v1/responses", json=more)
    assert refused(told) == (400, "policy_violation", "previous_response_id", "email")
    await serving.under_test.at_rest()
    last = list(serving.under_test.contents.kept.values())[-1]
    assert MAIL.encode() not in last.body + last.response


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_values_of_a_stored_template_are_masked_and_come_back(
    serving: Serving, path: str
) -> None:
    demand(serving, personal={"email": "mask"}, keeps_days=1)
    keys = serving.under_test.keys
    body = PromptBody(
        messages=(PromptMessage("user", "to {{who}}"),), variables=(Variable(name="who"),)
    )
    record = PromptRecord(
        name="a", project=None, published=1, canary=None, share_permille=0, versions={1: body}
    )
    prompts = {f"{ORGANIZATION}/a": record}
    keys.current = msgspec.structs.replace(keys.current, prompts=prompts)
    named = {"id": "a", "variables": {"who": MAIL}}
    bound = "max_output_tokens" if path.endswith("responses") else "max_tokens"
    answer = await serving.client.post(path, json={"model": MODEL, "prompt": named, bound: 40})
    assert (answer.status_code, answer.headers["x-sluice-masked"]) == (200, "email=1")
    assert f"to {MAIL}" in answer.text and "[EMAIL_" not in answer.text
    await serving.under_test.at_rest()
    (kept,) = serving.under_test.contents.kept.values()
    assert MAIL.encode() not in kept.body + kept.response and b"[EMAIL_" in kept.body


async def test_own_patterns_are_masked_or_refused(serving: Serving) -> None:
    own = (
        OwnPattern(name="staff", pattern="ACME-[0-9]{6}"),
        OwnPattern(name="secret", pattern="(?i)top secret", action="refuse"),
    )
    demand(serving, patterns=own)
    messages = [{"role": "user", "content": "ask ACME-123456 now"}]
    answer = await serving.chat(messages=messages, max_tokens=60)
    assert said(answer).startswith("ask ACME-123456 now")
    assert answer.headers["x-sluice-masked"] == "staff=1"
    messages[0]["content"] = "a Top Secret"
    assert refused(await serving.chat(messages=messages)) == (
        400, "policy_violation", "messages[0].content", "secret",
    )  # fmt: skip
    large = f"{'x ' * 40_000}{MAIL} ACME-654321"
    messages[0]["content"] = large
    told = await serving.chat(messages=messages, max_tokens=1)
    assert told.json()["error"]["code"] == "context_length_exceeded"


async def test_a_project_without_policies_is_left_alone(serving: Serving) -> None:
    answer = await serving.chat(messages=[{"role": "user", "content": MAIL}], max_tokens=15)
    assert said(answer) == MAIL
    assert not {"x-sluice-masked", "x-sluice-policy"} & set(answer.headers)
