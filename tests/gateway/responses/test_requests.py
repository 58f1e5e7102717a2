"""Bodies of responses as the chats that they ask for; what is wrong is named as it was written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.ask import StoredParts
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.responses.request import parse

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
KINDS = st.sampled_from(
    ["message", "function_call", "function_call_output", "custom_tool_call", "reasoning", "other",
     "custom_tool_call_output", "item_reference"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["role", "content", "call_id", "name", "arguments", "input", "output", "summary", "text", "id"]
)
BAD = {"name": "n", "schema": {"type": "object", "not": {}}}
SEARCH = {"type": "web_search"}
RUN = {"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}}
PATCH = {"type": "custom", "name": "patch", "description": "Takes a patch."}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "input": "Hi", **fields}).encode()


def refused(**fields: Any) -> str | None:
    """The field that the refusal names."""
    with pytest.raises(Refusal) as found:
        parse(body(**fields))
    assert found.value.status == 400
    return found.value.param


def test_items_become_turns() -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Run it"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "Running", "annotations": []}]},
        {"type": "function_call", "call_id": "a", "name": "run", "arguments": '{"x": 1}'},
        {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "+ line"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "custom_tool_call_output", "call_id": "b",
         "output": [{"type": "input_text", "text": "2"}]},
        {"type": "web_search_call", "id": "ws_1"},
    ]  # fmt: skip
    ask = parse(body(input=items, instructions="Rules"))
    assert [(turn.role, turn.content) for turn in ask.turns] == [
        ("system", "Rules"),
        ("system", "Be brief."),
        ("user", "Run it"),
        ("assistant", "Running"),
        ("tool", "1"),
        ("tool", "2"),
    ]
    said = ask.turns[3]
    assert said.reasoning == "Hm"
    assert [(call.id, call.name, call.arguments) for call in said.calls] == [
        ("a", "run", {"x": 1}),
        ("b", "patch", {"input": "+ line"}),
    ]
    assert ask.ignored == ("input[8]",)


def test_tools_in_all_their_forms() -> None:
    tools = [SEARCH, {"type": "namespace", "name": "files", "tools": [PATCH]}, RUN]
    ask = parse(body(tools=tools, tool_choice={"type": "web_search"}))
    assert [tool["function"]["name"] for tool in ask.tools] == ["patch", "run"]
    assert ask.ignored == ("tools[0]",)
    assert (ask.echo["namespaces"], ask.echo["custom"]) == ({"patch": "files"}, ["patch"])
    some = {"type": "allowed_tools", "mode": "required", "tools": [{"name": "run"}]}
    assert [
        tool["function"]["name"] for tool in parse(body(tools=tools, tool_choice=some)).tools
    ] == ["run"]
    assert parse(body(tools=[SEARCH], tool_choice="auto")).tools == ()


def test_thoughts_without_text_are_none() -> None:
    items = [{"type": "reasoning", "summary": [{"text": 5}]}, {"role": "user", "content": "Hi"}]
    assert [turn.reasoning for turn in parse(body(input=items, top_logprobs=0)).turns] == [None]
    assert parse(body(top_logprobs=0)).sampling.logprobs is None


def test_the_answer_repeats_the_request() -> None:
    repeated = json.loads(b"{" + parse(body(metadata={"a": "b"}, top_p=0.5)).echo["request"] + b"}")
    assert (repeated["metadata"], repeated["top_p"], repeated["temperature"]) == (
        {"a": "b"},
        0.5,
        1,
    )


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["Hi"]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "owner", "content": ""}]}, "input[0].role"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "x"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id"),
        (
            {"input": [{"role": "user", "content": ""},
                       {"type": "function_call_output", "call_id": "z", "output": ""}]},
            "input[1].tool_call_id",
        ),
        ({"tools": [RUN, RUN]}, "tools[1].name"),
        ({"tools": [{"type": "namespace", "tools": [RUN, RUN]}]}, "tools[0].tools[1].name"),
        ({"tools": [RUN], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"not": {}}}}},
         "text.format.schema.not"),
        ({"tools": [{"type": "namespace", "tools": 5}]}, "tools[0].tools"),
        ({"tools": [{"type": "namespace", "tools": [dict(RUN, name=f"f{n}") for n in range(129)]}]},
         "tools"),
        ({"input": [{"type": "function_call", "call_id": f"c{n}", "name": "f"}
                    for n in range(129)]}, "input[128]"),
        ({"input": [{"role": "user", "content": [{"type": []}]}]}, "input[0].content[0]"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(fields: dict[str, Any], named: str) -> None:
    assert refused(**fields) == named


@given(
    items=st.lists(
        st.builds(
            lambda kind, fields: {"type": kind, **fields}, KINDS, st.dictionaries(NAMES, JSON)
        ),
        max_size=6,
    ),
    tools=st.lists(st.dictionaries(NAMES, JSON) | st.just(RUN), max_size=4),
)
def test_whatever_comes_is_read_or_refused(items: list[Any], tools: list[Any]) -> None:
    try:
        parse(body(input=items, tools=tools))
    except Refusal as refusal:
        assert refusal.status == 400
        assert refusal.message


def test_what_is_read_with_a_stored_template_is_a_response_too() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    fields = {"input": None, "prompt": {"id": "a"}, "text": {"format": form}, "tools": [SEARCH]}
    stub = parse(body(**fields, store=True, max_output_tokens=5), keeps=True)
    assert stub.again is not None
    whole = stub.again(StoredParts({}, ()))
    assert (whole.output_field, whole.effort_field) == ("max_output_tokens", "reasoning.effort")
    assert (whole.output_tokens, whole.grammar_field) == (5, "text.format")
    assert whole.echo["kept"] and whole.echo["background"] is False
    assert whole.ignored == ("tools[0]",)
    assert whole.echo == stub.echo and whole.echo is not stub.echo


def test_stored_tools_are_chosen_among_as_its_own_are() -> None:
    found = ({"name": "run"}, {"name": "find"})
    named = [{"id": "run"}, {"id": "find", "version": 2}]
    forced = parse(body(stored_tools=named, tool_choice={"type": "function", "name": "find"}))
    assert [(one.id, one.version) for one in forced.stored_tools] == [("run", None), ("find", 2)]
    assert forced.again is not None
    whole = forced.again(StoredParts({}, found))
    assert [tool["function"]["name"] for tool in whole.tools] == ["run", "find"]
    assert whole.calls is not None and [*whole.calls.functions] == ["find"]
    some = {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "find"}]}
    # Of a template's tools as well.
    for named_by in ({"stored_tools": named}, {"prompt": {"id": "a"}}):
        assert parse(body(tool_choice=some, **named_by)).stored_allowed == frozenset({"find"})


def test_what_is_wrong_with_a_stored_template_is_named_as_in_a_response() -> None:
    stub = parse(body(prompt={"id": "a"}, tools=[SEARCH, RUN]))
    assert stub.again is not None
    run = {"name": "run"}
    form = {"response_format": {"type": "json_schema", "json_schema": BAD}}
    # Of a request's own tools the places are told, and stored ones stand behind them.
    for stored, param in (
        (StoredParts(form, ()), "text.format.schema.not"),
        (StoredParts({}, (run,)), "tools[1].function.name"),
    ):
        with pytest.raises(Refusal) as found:
            stub.again(stored)
        assert found.value.param == param
