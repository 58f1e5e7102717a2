"""Which nodes get a grammar, what they may say of it, and calls on their way to clients."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from inference.contract.frames import Rejected
from inference.contract.grammar import Grammar
from tests.support.fleet import MODEL, TEMPLATE, make_output, make_step, make_usage
from tests.support.nodes import hand_node, say
from tests.support.serving import CHAT_PATH, Serving
from tests.support.waiting import until

FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
GRAMMAR = ["grammar"]
CALLS = (
    'Well. <tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
)


@pytest.fixture
def model(model: Path) -> Path:
    """The byte model with a template that shows tools."""
    config = {"chat_template": TEMPLATE + "{% if tools %}<tool_call>{% endif %}"}
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    return model


def chat(**fields: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": "abcd"}],
        "max_tokens": 500,
        **fields,
    }


def asking(bare: Serving, **fields: Any) -> asyncio.Task[httpx2.Response]:
    return asyncio.create_task(bare.client.post(CHAT_PATH, json=chat(**fields)))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": FORMAT}, "response_format"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"tools": [TOOL]}, "tools"),
    ],
)
async def test_without_an_able_node_the_parameter_is_refused(
    serving: Serving, fields: dict[str, Any], param: str
) -> None:
    answer = await serving.chat(**fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (
        400, param, "unsupported_parameter",
    )  # fmt: skip
    assert (await serving.chat(response_format={"type": "text"})).status_code == 200
    assert (await serving.chat(tools=[TOOL], tool_choice="none")).status_code == 200


async def test_only_able_nodes_are_asked(bare: Serving, model: Path) -> None:
    async with (
        hand_node(bare.under_test, model, name="plain") as plain,
        hand_node(bare.under_test, model, name="able", capabilities=GRAMMAR) as able,
    ):
        for _ in range(4):
            answer = asking(bare, response_format=FORMAT)
            job = await able.job()
            assert job.sampling.grammar == Grammar(kind="json_schema", source='{"type":"integer"}')
            await say(able, job, model, "5", width=1)
            assert (await answer).json()["choices"][0]["message"]["content"] == "5"
        assert plain.jobs == []
        await bare.under_test.at_rest()


async def test_who_waits_for_an_able_node_holds_up_nobody(bare: Serving, model: Path) -> None:
    """Room on a plain node is for those whom it can serve, wherever they stand."""
    waiting = bare.under_test.world.waiting
    async with hand_node(
        bare.under_test, model, name="able", capabilities=GRAMMAR, credits=1
    ) as able:
        answers = [asking(bare, response_format=FORMAT)]
        on_able = await able.job()
        async with hand_node(bare.under_test, model, name="plain", credits=1) as plain:
            answers.append(asking(bare))
            on_plain = await plain.job()
            answers.append(asking(bare, response_format=FORMAT))
            await until(lambda: len(waiting) == 1)
            answers.append(asking(bare))
            await until(lambda: len(waiting) == 2)
            await say(plain, on_plain, model, "a", width=1)
            await say(plain, await plain.job(), model, "b", width=1)
            await say(able, on_able, model, "5", width=1)
            await say(able, await able.job(), model, "6", width=1)
            found = [answer.status_code for answer in await asyncio.gather(*answers)]
            assert found == [200] * 4
            await bare.under_test.at_rest()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": FORMAT}, "response_format.json_schema.schema"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs.regex"),
        ({"tools": [TOOL]}, "tools"),
    ],
)
async def test_a_grammar_that_a_node_refuses_is_named(
    bare: Serving, model: Path, fields: dict[str, Any], param: str
) -> None:
    async with hand_node(bare.under_test, model, capabilities=GRAMMAR) as node:
        answer = asking(bare, **fields)
        job = await node.job()
        await node.send(Rejected(request=job.request, code="bad_grammar", message="too large"))
        error = (await answer).json()["error"]
        assert ((await answer).status_code, error["param"]) == (400, param)
        assert param in error["message"] and "too large" in error["message"]
        await bare.under_test.at_rest()
    assert not any(each.amount_nano for each in bare.under_test.ledger.settled.values())


async def test_a_grammar_that_fails_on_the_way_is_no_lost_node(bare: Serving, model: Path) -> None:
    async with hand_node(bare.under_test, model, capabilities=GRAMMAR) as node:
        answer = asking(bare, response_format=FORMAT)
        job = await node.job()
        usage = make_usage(prompt=4, completion=0)
        end = make_output(job.request, tokens=[], usage=usage, finish="error")
        await node.send(make_step(end))
        error = (await answer).json()["error"]
        assert ((await answer).status_code, error["code"]) == (500, "grammar_failed")
        assert node.jobs == []
        await bare.under_test.at_rest()


async def test_a_whole_answer_with_calls(bare: Serving, model: Path) -> None:
    async with hand_node(bare.under_test, model, capabilities=GRAMMAR) as node:
        answer = asking(bare, tools=[TOOL])
        await say(node, await node.job(), model, CALLS, width=5)
        (choice,) = (await answer).json()["choices"]
        await bare.under_test.at_rest()
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert (message["role"], message["content"]) == ("assistant", "Well. ")
    first, second = message["tool_calls"]
    assert first["type"] == "function" and first["id"] != second["id"]
    assert [each["function"] for each in (first, second)] == [
        {"name": "f", "arguments": '{"a": "é"}'}, {"name": "f", "arguments": "{}"},
    ]  # fmt: skip
    assert bare.under_test.recorder.records[-1].finish == "tool_calls"


async def test_a_stream_with_calls(bare: Serving, model: Path) -> None:
    async with hand_node(bare.under_test, model, capabilities=GRAMMAR) as node:
        answer = asking(bare, tools=[TOOL], stream=True)
        await say(node, await node.job(), model, CALLS, width=1)
        lines = (await answer).text.split("\n\n")
        await bare.under_test.at_rest()
    chunks = [
        json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")
    ]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    told = [call for delta in deltas for call in delta.get("tool_calls", [])]
    heads = [call for call in told if "id" in call]
    assert [call["index"] for call in heads] == [0, 1]
    assert all(call["function"] == {"name": "f", "arguments": ""} for call in heads)
    arguments = {0: "", 1: ""}
    for call in told:
        arguments[call["index"]] += call["function"]["arguments"]
    assert arguments == {0: '{"a": "é"}', 1: "{}"}
    assert len(told) > 10, "arguments leave as they come"
    assert "".join(delta.get("content") or "" for delta in deltas) == "Well. "
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert lines[-2] == "data: [DONE]"


async def test_a_template_that_knows_no_tools(bare: Serving, model: Path) -> None:
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    async with hand_node(bare.under_test, model, capabilities=GRAMMAR) as node:
        answer = await bare.client.post(CHAT_PATH, json=chat(tools=[TOOL]))
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")
        assert node.jobs == []
        await bare.under_test.at_rest()


async def test_the_hold_covers_what_a_template_makes_of_tools(bare: Serving, model: Path) -> None:
    often = "{% for i in range(20) %}{{ tools | tojson }}{% endfor %}<tool_call>"
    config = {"chat_template": TEMPLATE + "{% if tools %}" + often + "{% endif %}"}
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    async with hand_node(bare.under_test, model, capabilities=GRAMMAR) as node:
        answer = asking(bare, tools=[TOOL], max_tokens=2)
        job = await node.job()
        assert len(job.tokens) > len(json.dumps(chat(tools=[TOOL])))
        await say(node, job, model, "ok", width=1)
        assert (await answer).status_code == 200
        await bare.under_test.at_rest()
    (settlement,) = bare.under_test.ledger.settled.values()
    assert 0 < settlement.amount_nano <= settlement.held_nano
