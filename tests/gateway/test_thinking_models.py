"""Models of our own engines that think: an echo says what the prompt says, marks and all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.support.fleet import MODEL, TEMPLATE, echo_node
from tests.support.gateway import GatewayUnderTest
from tests.support.ports import make_snapshot
from tests.support.relay import deltas_of
from tests.support.serving import CHAT_PATH, Serving, bare
from tests.support.thinking import SWITCHED, make_thinking

__all__ = ["bare"]

SAID = "<think>\nHm, 2.\n</think>\n\nYes."
# The marks count as one token each.
SIZE, ANSWER_SIZE = 16, 4
READING = (
    "{% for m in messages %}{{ m.reasoning_content or '' }}{{ m.content }}{% endfor %}"
    "{{ reasoning_effort }}"
)


@pytest.fixture
async def thinking(
    bare: Serving, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Serving]:
    """A gateway with an echo whose tokenizer has think marks."""
    template = getattr(request, "param", TEMPLATE)
    model = make_thinking(tmp_path_factory.mktemp("thinking"), template=template)
    async with echo_node(bare.under_test.fleet_url, model, tokens_per_s=500.0):
        await bare.under_test.served()
        yield Serving(bare.under_test, bare.client, model)
        await bare.under_test.at_rest()


def saying(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": SIZE, **fields}


def receipt_of(under_test: GatewayUnderTest) -> dict[str, Any]:
    receipt: dict[str, Any] = msgspec.json.decode(under_test.recorder.records[-1].receipt)
    return receipt


async def test_a_whole_answer(thinking: Serving) -> None:
    body = (await thinking.chat(**saying(SAID))).json()
    message = body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm, 2.", "Yes.")
    assert body["usage"]["completion_tokens"] == SIZE
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == SIZE - ANSWER_SIZE
    (settled,) = thinking.under_test.ledger.settled.values()
    assert (settled.counts.output, settled.source) == (SIZE, "gateway")
    receipt = receipt_of(thinking.under_test)
    assert receipt["reasoning_tokens"] == SIZE - ANSWER_SIZE and "usage" not in receipt


async def test_a_stream(thinking: Serving) -> None:
    body = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}}
    answer = await thinking.client.post(CHAT_PATH, json={**body, **saying(SAID)})
    lines = [line for line in answer.text.splitlines() if line]
    deltas = [delta for line in lines[:-1] for delta in deltas_of(line)]
    shown = [
        (name, delta[name])
        for delta in deltas
        for name in ("reasoning_content", "content")
        if delta.get(name)
    ]
    names = [name for name, _ in shown]
    assert names == sorted(names, reverse=True), "all thoughts come before the answer"
    texts = {name: "".join(text for each, text in shown if each == name) for name in names}
    assert texts == {"reasoning_content": "Hm, 2.", "content": "Yes."}
    usage = json.loads(lines[-2].removeprefix("data: "))["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == SIZE - ANSWER_SIZE
    record, receipt = thinking.under_test.recorder.records[-1], receipt_of(thinking.under_test)
    assert record.ttft_us <= receipt["first_thought_us"] < receipt["first_answer_us"]
    assert receipt["first_answer_us"] < record.total_us


async def test_no_thought_leaves_no_trace(thinking: Serving) -> None:
    body = (await thinking.chat(**saying("Yes."))).json()
    assert "reasoning_content" not in body["choices"][0]["message"]
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
    assert (
        receipt_of(thinking.under_test).keys().isdisjoint(("reasoning_tokens", "first_thought_us"))
    )


async def test_text_completions_are_as_the_model_writes_them(thinking: Serving) -> None:
    body = (await thinking.complete(prompt=SAID, max_tokens=SIZE)).json()
    assert body["choices"][0]["text"] == SAID
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


async def test_stop_strings_and_tools_are_of_the_answer(thinking: Serving) -> None:
    body = (await thinking.chat(**saying("<think>a es b</think>Yes", stop=["es"]))).json()
    message = body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("a es b", "Y")
    assert body["usage"]["completion_tokens"] == 11


async def test_block_holds_thoughts_too(thinking: Serving) -> None:
    thinking.under_test.keys.current = make_snapshot(MODEL, safety="block")
    secret = "ghp_" + "a" * 36
    said = saying(f"<think>It is {secret} .</think>No", max_tokens=60)
    body = (await thinking.chat(**said)).json()
    assert secret not in json.dumps(body)
    assert body["choices"][0]["finish_reason"] == "content_filter"


@pytest.mark.parametrize("thinking", [SWITCHED], indirect=True)
@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, True),
        ({"reasoning_effort": None, "chat_template_kwargs": None}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "high"}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}, False),
    ],
)
async def test_thinking_is_switched(
    thinking: Serving, fields: dict[str, Any], thinks: bool
) -> None:
    for _ in range(2):
        answer = await thinking.chat(**saying("Hm</think>Yes", max_tokens=6, **fields))
        message = answer.json()["choices"][0]["message"]
        assert "x-sluice-ignored" not in answer.headers
        # The prompt opened the thoughts, so that their end alone is in the answer.
        expected = ("Hm", "Yes") if thinks else (None, "Hm</think>Yes")
        assert (message.get("reasoning_content"), message["content"]) == expected


@pytest.mark.parametrize("thinking", [TEMPLATE, READING], indirect=True)
async def test_what_a_template_does_not_read_is_ignored_and_named(
    thinking: Serving, request: pytest.FixtureRequest
) -> None:
    reads = request.node.callspec.params["thinking"] == READING
    kwargs = {"colour": "red", "messages": 1}
    answer = await thinking.chat(reasoning_effort="low", chat_template_kwargs=kwargs)
    assert answer.status_code == 200
    named = ["chat_template_kwargs.colour", "chat_template_kwargs.messages"]
    expected = named if reads else ["reasoning_effort", *named]
    assert answer.headers["x-sluice-ignored"] == ", ".join(expected)
    assert answer.json()["usage"]["prompt_tokens"] == (7 if reads else 4)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize(
    ("thinking", "prompt"), [(TEMPLATE, "abYes"), (READING, "abOneYes")], indirect=["thinking"]
)
async def test_earlier_thoughts_go_to_templates_that_read_them(
    thinking: Serving, field: str, prompt: str
) -> None:
    turn = {"role": "assistant", "content": "Yes", field: "One"}
    answer = await thinking.chat(messages=[{"role": "user", "content": "ab"}, turn], max_tokens=8)
    assert answer.json()["choices"][0]["message"]["content"] == (prompt * 2)[:8]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"a": [1]}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a b": 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": "x" * 513}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {f"a{n}": n for n in range(17)}}, "chat_template_kwargs"),
    ],
)
async def test_what_is_out_of_bounds_is_refused(
    thinking: Serving, fields: dict[str, Any], param: str
) -> None:
    answer = await thinking.chat(**fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
